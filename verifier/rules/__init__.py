"""Rules, one a file: `<code>_<name>.py` holds the documentation (its docstring) and the check of one rule.

There is no list to keep: every module of this package whose name starts with a code is a rule. A rule is a function
`check(kernel, policy)` under the decorator `rule`; it yields one `Judgement` for every place it must justify, also for
those it proves. `engine.run_rules` turns judgements into obligations, findings and counts.
"""

from verifier.rules.docs import SECTIONS, RuleDoc, parse_doc
from verifier.rules.engine import KernelOutcome, Role, RuleCount, Subject, run_rules
from verifier.rules.registry import Rule, all_rules, find_rule, rule, select_rules

__all__ = [
    "SECTIONS",
    "KernelOutcome",
    "Role",
    "Rule",
    "RuleCount",
    "RuleDoc",
    "Subject",
    "all_rules",
    "find_rule",
    "parse_doc",
    "rule",
    "run_rules",
    "select_rules",
]
