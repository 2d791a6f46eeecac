"""Each small mistake in the synchronization of a right kernel is reported by some rule, or is none.

`caught.toml` names the rule for each mutant (`python -m tests.mutants.update` writes it), `equivalent.toml` the reason
why one is as right as the original.
"""

from __future__ import annotations

import pytest

from tests.mutants.judge import CAUGHT, EQUIVALENT, PROTOCOL, caught_by, ptx_rules, read, violated
from tests.mutants.mutate import LAUNCHES, Mutant, mutants, original
from verifier.rules import find_rule

ALL = [mutant for kernel in LAUNCHES for mutant in mutants(kernel)]
OPERATORS = {
    "delete",
    "+1 in",
    "-1 in",
    "+16 in",
    "-16 in",
    "release early",
    "relax every",
    "fence.proxy.async.global for",
    "fence.acq_rel.cta for",
    "tcgen05.wait::st for",
    "narrow",
    "relax",
    "raise",
    "drop .read of",
    "acquire a neighbour with",
    "do not retry",
    "hoist",
    "sink",
    "swap",
}

by_mutant = pytest.mark.parametrize("mutant", ALL, ids=lambda m: f"{m.kernel}: {m.name}")


@by_mutant
def test_mutant_is_reported_or_equivalent(mutant: Mutant) -> None:
    caught = read(CAUGHT).get(mutant.kernel, {}).get(mutant.name)
    if caught is not None:
        assert violated(mutant.kernel, mutant.text, [find_rule(caught)]) == [caught]
    elif mutant.name in read(EQUIVALENT).get(mutant.kernel, {}):
        local = [rule for rule in ptx_rules() if rule.code not in PROTOCOL]
        assert not violated(mutant.kernel, mutant.text, local), "a rule reports what is right"
    else:
        found = caught_by(mutant) or "nobody: a rule lacks something, or equivalent.toml a reason"
        pytest.fail(f"on neither list; reported by {found} (`python -m tests.mutants.update`)")


@pytest.mark.parametrize("kernel", LAUNCHES)
def test_the_original_is_right(kernel: str) -> None:
    assert violated(kernel, original(kernel), ptx_rules()) == []


@pytest.mark.parametrize("path", [CAUGHT, EQUIVALENT], ids=lambda path: path.stem)
def test_lists_name_mutants_that_exist(path: object) -> None:
    for kernel, entries in read(path).items():  # type: ignore[arg-type]
        assert set(entries) <= {m.name for m in ALL if m.kernel == kernel}


def test_no_mutant_is_on_both_lists() -> None:
    caught, equivalent = read(CAUGHT), read(EQUIVALENT)
    assert not [name for kernel in caught for name in caught[kernel] if name in equivalent.get(kernel, {})]


def test_every_operator_makes_mutants() -> None:
    assert {operator for operator in OPERATORS if any(m.name.startswith(operator) for m in ALL)} == OPERATORS


def test_names_are_unique_and_texts_differ() -> None:
    assert len({(m.kernel, m.name) for m in ALL}) == len(ALL)
    assert len({(m.kernel, m.text) for m in ALL}) == len(ALL)
