"""`verifier explain` and `verifier rules`: the docstrings of the rules, for reading."""

from __future__ import annotations

import textwrap

import click

from verifier.cli import output
from verifier.rules import SECTIONS, Rule, all_rules, find_rule
from verifier.rules.reference import markdown, metadata

_HEADINGS = {"What": "What it checks", "Why": "Why it matters", "ISA": "ISA", "Bad": "Bad", "Good": "Good"}


@click.command()
@click.argument("code")
@click.option("--format", type=click.Choice(["text", "md", "json"]), default="text", show_default=True)
def explain(code: str, format: str) -> None:
    """Explain the rule CODE (a code like TCG101, or a name)."""
    rule = find_rule(code)
    renderers = {"text": _text, "md": markdown, "json": _json}
    output.emit(renderers[format](rule))


@click.command()
@click.option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def rules(format: str) -> None:
    """List all rules."""
    known = all_rules()
    if format == "json":
        import msgspec

        encoded = msgspec.json.encode([_facts(rule) for rule in known])
        output.emit(msgspec.json.format(encoded, indent=2).decode() + "\n")
        return
    width = max((len(rule.name) for rule in known), default=0)
    lines = [f"{r.code}  {r.name:{width}}  {r.hazard.value:11}  {'+'.join(r.isa):8}  {r.doc.summary}" for r in known]
    output.emit("\n".join(lines) + "\n" if lines else "no rules\n")


def _text(rule: Rule) -> str:
    parts = [f"{rule.code} {rule.name}", rule.doc.summary, metadata(rule)]
    for section in SECTIONS:
        body = "\n".join(line for line in rule.doc.sections[section].splitlines() if not line.startswith("```"))
        parts.append(f"{_HEADINGS.get(section, section)}\n{textwrap.indent(body, '    ')}")
    return "\n\n".join(parts) + "\n"


def _json(rule: Rule) -> str:
    import msgspec

    encoded = msgspec.json.encode({**_facts(rule), "sections": rule.doc.sections})
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def _facts(rule: Rule) -> dict[str, object]:
    return {
        "code": rule.code,
        "name": rule.name,
        "summary": rule.doc.summary,
        "hazard": rule.hazard.value,
        "isa": list(rule.isa),
        "arch": list(rule.arch),
        "since": rule.since,
    }
