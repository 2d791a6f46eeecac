"""Bounds on metrics in a claim: `=`, `40`, `+2`, `<= 40`, `<= +2`. A sign makes a number the difference."""

from __future__ import annotations

import operator
from collections.abc import Callable

from verifier.diff.metrics import LOOPS, Delta, Metrics, Number, family
from verifier.errors import ConfigError

_OPERATORS: dict[str, Callable[[Number, Number], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


def check_metric(metrics: Metrics, measured: frozenset[str], name: str, bound: str | Number) -> str:
    """What is wrong with a metric, "" when it is as claimed. `measured` are the levels whose opcodes were counted.

    Raises ConfigError when the bound or the name makes no sense, or the metric is not known.
    """
    delta = _find(metrics, measured, name)
    holds = _holds(delta, bound, name)
    return "" if holds else f"{name} is {delta.before} -> {delta.after}, claimed {bound}"


def _find(metrics: Metrics, measured: frozenset[str], name: str) -> Delta:
    delta = family(metrics, name)
    if delta is not None and delta.before is not None and delta.after is not None:
        return delta
    stem = name.removesuffix(LOOPS)
    level = "sass" if stem.isupper() or stem.split(".")[0].isupper() else "ptx" if "." in stem else ""
    if delta is None and level in measured:
        return Delta(0, 0)  # an opcode that neither side has
    raise ConfigError(
        f"the metric {name!r} of the claim is not known",
        do=f"known are the names in the report (--format json), among them {', '.join(list(metrics)[:6])}",
    )


def _holds(delta: Delta, bound: str | Number, name: str) -> bool:
    assert delta.before is not None
    assert delta.after is not None
    if not isinstance(bound, str):
        return delta.after == bound
    text = bound.replace(" ", "")
    if text == "=":
        return not delta.changed
    sign = next((sign for sign in _OPERATORS if text.startswith(sign)), "")
    number = text[len(sign) :]
    value = delta.after - delta.before if number[:1] in ("+", "-") else delta.after
    return _OPERATORS[sign or "=="](value, _number(number, bound, name))


def _number(text: str, bound: str, name: str) -> Number:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        do = 'say "=", 40, "+2", "<= 40" or "<= +2"'
        raise ConfigError(f"the bound {bound!r} of {name!r} makes no sense", do=do) from None
