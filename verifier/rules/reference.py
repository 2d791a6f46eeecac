"""The documentation of rules as Markdown, made from their docstrings.

`python -m verifier.rules.reference FILE` writes docs/rules.md; a test says when it is stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from verifier.rules.docs import SECTIONS
from verifier.rules.registry import Rule, all_rules

_HEADINGS = {"What": "What it checks", "Why": "Why it matters"}
_FAMILIES = {
    "TCG": "tcgen05 and tensor memory",
    "MBR": "mbarrier",
    "SCP": "scopes",
    "PRX": "proxies",
    "TMA": "bulk copies",
    "MEM": "shared memory",
    "PRF": "cost",
    "CTL": "control flow",
    "PDL": "dependent launch",
    "WGM": "wgmma",
    "RES": "resources",
    "SAS": "machine code",
}
_INTRO = """# Rules

Made from the docstrings of `verifier/rules/` by `make docs`; edit those. `verifier explain CODE` prints one of them.
How verdicts and severities come about stands in [verdicts.md](verdicts.md).
"""


def markdown(rule: Rule, level: int = 2) -> str:
    """The documentation of one rule under a heading of this level."""
    parts = [f"{'#' * level} {rule.code} {rule.name}", rule.doc.summary, metadata(rule)]
    for section in SECTIONS:
        parts += [f"{'#' * (level + 1)} {_HEADINGS.get(section, section)}", rule.doc.sections[section]]
    return "\n\n".join(parts) + "\n"


def metadata(rule: Rule) -> str:
    """What a rule needs and since when it exists, as one line."""
    where = ", ".join(rule.arch) or "every architecture"
    reads = " and ".join(isa.upper() for isa in rule.isa)
    return f"Hazard: {rule.hazard.value}. Reads {reads}. For {where}. Since {rule.since}."


def page(rules: Sequence[Rule]) -> str:
    """All rules as one page: a table, then each of them."""
    lines = [_INTRO, "| rule | what is wrong | hazard |", "|---|---|---|"]
    for rule in rules:
        lines.append(f"| [{rule.code} {rule.name}](#{_anchor(rule)}) | {rule.doc.summary} | {rule.hazard.value} |")
    family = ""
    for rule in rules:
        if rule.code[:3] != family:
            family = rule.code[:3]
            lines += ["", f"## {family}: {_FAMILIES.get(family, 'more')}"]
        lines += ["", markdown(rule, level=3).rstrip()]
    return "\n".join(lines) + "\n"


def _anchor(rule: Rule) -> str:
    """What GitHub makes of the heading."""
    return re.sub(r"[^a-z0-9 -]", "", f"{rule.code} {rule.name}".lower()).replace(" ", "-")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(all_rules()), encoding="utf-8")
