"""The decorator that makes a function a rule, and the ways to look rules up.

Rule modules are found by scanning the package; nothing is imported before somebody asks for a rule, and
`find_rule` imports only the one asked for.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

import msgspec

from verifier.config import ARCH_FAMILIES, Policy
from verifier.errors import ConfigError
from verifier.findings import Hazard, Judgement
from verifier.rules.docs import RuleDoc, parse_doc
from verifier.rules.engine import Check, Subject

K = TypeVar("K", bound=Subject)
RuleFunction = Callable[[K, Policy], Iterator[Judgement]]

_CODE = re.compile(r"[A-Z]{3}\d{3}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MODULE = re.compile(r"[a-z]{3}\d{3}_")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. `isa` lists what it reads ("ptx", "sass"): all of it must be at hand; `arch` families, () = any."""

    code: str
    name: str
    hazard: Hazard
    since: str
    isa: tuple[str, ...]
    arch: tuple[str, ...]
    doc: RuleDoc
    check: Check


_rules: dict[str, Rule] = {}


def rule(
    *, code: str, name: str, hazard: Hazard, since: str, isa: tuple[str, ...] = ("ptx",), arch: tuple[str, ...] = ()
) -> Callable[[RuleFunction[K]], RuleFunction[K]]:
    """Register the decorated `check(kernel, policy)` under `code` and `name`; its module's docstring is its doc.

    `since` is the version of the verifier that first had the rule. Raises `ValueError` when a field is malformed,
    the file name is not `<code>_<name>.py`, or the code is taken.
    """

    def register(function: RuleFunction[K]) -> RuleFunction[K]:
        module = importlib.import_module(function.__module__)
        _demand(bool(_CODE.fullmatch(code)), f"{code!r} is not a rule code like TCG101")
        _demand(bool(_NAME.fullmatch(name)), f"{code}: {name!r} is not a kebab-case name")
        _demand(set(isa) <= {"ptx", "sass"} and bool(isa), f"{code}: isa must name ptx, sass or both")
        _demand(set(arch) <= ARCH_FAMILIES, f"{code}: arch must name families like sm_100")
        expected = f"{code.lower()}_{name.replace('-', '_')}"
        actual = module.__name__.rpartition(".")[2]
        _demand(actual == expected, f"{code}: the file must be named {expected}.py, not {actual}.py")
        _demand(code not in _rules and name not in {r.name for r in _rules.values()}, f"{code} {name} is taken")
        try:
            doc = parse_doc(module.__doc__)
        except ValueError as error:
            raise ValueError(f"{code}: {error}") from None
        _rules[code] = Rule(
            code=code, name=name, hazard=hazard, since=since, isa=isa, arch=arch, doc=doc, check=cast(Check, function)
        )
        return function

    return register


def all_rules() -> tuple[Rule, ...]:
    """Every rule of the package, by code."""
    for module in _modules():
        _load(module)
    return tuple(_rules[code] for code in sorted(_rules))


def find_rule(wanted: str) -> Rule:
    """The rule with this code or name, in any case. Raises `ConfigError` with the nearest names."""
    key = wanted.strip().lower().replace("_", "-")
    for module in _modules():
        code, _, name = module.partition("_")
        if key in (code, name.replace("_", "-")):
            return _load(module)
    import difflib

    known = [f"{m[:6].upper()} {m[7:].replace('_', '-')}" for m in _modules()]
    near = difflib.get_close_matches(key, [part.lower() for k in known for part in k.split()], n=1)
    hint = next((k for k in known if near and near[0] in k.lower().split()), None)
    raise ConfigError(f"no rule {wanted!r}", do=f"did you mean {hint}?" if hint else "`verifier rules` lists them")


def select_rules(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> tuple[Rule, ...]:
    """Rules that match `select` (empty: all) and not `ignore`, each a code, a prefix of codes or a name.

    Raises `ConfigError` when an entry matches no rule, or no rule is left.
    """
    rules = all_rules()
    chosen = {r.code for r in rules} if not select else set().union(*(_matching(rules, item) for item in select))
    dropped = set().union(*(_matching(rules, item) for item in ignore))
    left = tuple(r for r in rules if r.code in chosen - dropped)
    if rules and not left:
        raise ConfigError("no rule is selected", do="widen --select or narrow --ignore")
    return left


def _matching(rules: Sequence[Rule], item: str) -> set[str]:
    found = {r.code for r in rules if r.name == item.lower() or (item and r.code.startswith(item.upper()))}
    if not found:
        raise ConfigError(f"{item!r} selects no rule", do="give a code, a prefix of codes or a name: `verifier rules`")
    return found


def _modules() -> list[str]:
    package = importlib.import_module("verifier.rules")
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if _MODULE.match(m.name))


def _load(module: str) -> Rule:
    importlib.import_module(f"verifier.rules.{module}")
    code = module[:6].upper()
    _demand(code in _rules, f"{module}.py registers no rule {code}")
    return _rules[code]


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
