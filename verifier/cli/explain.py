"""`verifier explain` and `verifier rules`: the docstrings of the rules, for reading."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

import click

from verifier.cli import output
from verifier.rules import SECTIONS, Rule, all_rules, find_rule
from verifier.rules.reference import markdown, metadata

_PREFIX = re.compile(r"[A-Za-z]{1,3}\d{0,2}")
_HEADINGS = {"What": "What it checks", "Why": "Why it matters", "ISA": "ISA", "Bad": "Bad", "Good": "Good"}


@click.command()
@click.argument("code")
@click.option("--format", type=click.Choice(["text", "md", "json"]), default="text", show_default=True)
def explain(code: str, format: str) -> None:
    """Explain the rule CODE (a code like TCG101, or a name); the letters of a code list the rules that share them."""
    group = _group(code)
    if group and format == "text":
        output.emit(f"{_table(group)}\n`verifier explain {group[0].code}` explains one of them\n")
    elif group:
        output.emit("\n".join(map(markdown, group)) if format == "md" else _encoded(list(map(_facts, group))))
    else:
        renderers = {"text": _text, "md": markdown, "json": _json}
        output.emit(renderers[format](find_rule(code)))


@click.command()
@click.option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def rules(format: str) -> None:
    """List all rules."""
    known = all_rules()
    output.emit(_encoded([_facts(rule) for rule in known]) if format == "json" else _table(known))


def _group(prefix: str) -> tuple[Rule, ...]:
    """The rules whose codes begin with these letters, where they are not the whole code of one."""
    if not _PREFIX.fullmatch(prefix):
        return ()
    return tuple(rule for rule in all_rules() if rule.code.startswith(prefix.upper()))


def _table(known: Sequence[Rule]) -> str:
    width = max(len(rule.name) for rule in known)
    lines = [f"{r.code}  {r.name:{width}}  {r.hazard.value:11}  {'+'.join(r.isa):8}  {r.doc.summary}" for r in known]
    return "\n".join(lines) + "\n"


def _text(rule: Rule) -> str:
    parts = [f"{rule.code} {rule.name}", rule.doc.summary, metadata(rule)]
    for section in SECTIONS:
        body = "\n".join(line for line in rule.doc.sections[section].splitlines() if not line.startswith("```"))
        parts.append(f"{_HEADINGS.get(section, section)}\n{textwrap.indent(body, '    ')}")
    return "\n\n".join(parts) + "\n"


def _json(rule: Rule) -> str:
    return _encoded({**_facts(rule), "sections": rule.doc.sections})


def _encoded(value: object) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


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
