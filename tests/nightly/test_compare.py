"""A run against the last good run: what is new, fixed, changed, grown, and what makes the exit code 1."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.nightly.support import build, found, result, write_run
from verifier.config import Bar
from verifier.findings import Severity, Verdict
from verifier.nightly.cells import CellResult, CellStore
from verifier.nightly.compare import across, compare
from verifier.nightly.history import History
from verifier.nightly.rows import cells_of
from verifier.nightly.settings import Settings, Threshold
from verifier.report.comparison import Build, Comparison, Counts

ONE, TWO = build(), build("other", toolchain="two")
Results = Mapping[Build, CellResult]


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "history.sqlite")


def after(history: History, before: Results | None, now: Results, settings: Settings = Settings()) -> Comparison:  # noqa: B008
    try:
        if before is not None:
            write_run(history, before, 0, "before", "old")
        number = write_run(history, now, None, "now", "new")
        return compare(history, number, settings, CellStore(history.path.parent / "cells"))
    finally:
        history.db.close()


def test_nothing_changed(history: History) -> None:
    same = {ONE: result(ONE), TWO: result(TWO)}
    assert after(history, same, same) == Comparison(bases=(1,))


def test_a_new_violation_is_a_regression(history: History) -> None:
    changes = after(history, {ONE: result(ONE)}, {ONE: result(ONE, findings=(found(),), counts={"TCG101": (1, 1, 0)})})
    (new,) = changes.new
    assert (new.rule, new.failing, new.place, new.builds) == ("TCG101", True, "gemm.py:9", (ONE,))
    (verdict,) = changes.verdicts
    assert (verdict.before, verdict.after) == (Counts(2), Counts(1, 1))
    assert changes.regressions == 1


def test_without_a_good_run_every_finding_is_new(history: History) -> None:
    changes = after(history, None, {ONE: result(ONE, findings=(found(),))})
    assert changes.bases == ()
    assert [change.failing for change in changes.new] == [True]


def test_a_finding_that_is_gone_is_fixed(history: History) -> None:
    changes = after(history, {ONE: result(ONE, findings=(found(),))}, {ONE: result(ONE)})
    assert [change.rule for change in changes.fixed] == ["TCG101"]
    assert changes.regressions == 0


def test_one_finding_of_several_builds_is_one_change(history: History) -> None:
    labels = [build(arch=arch, toolchain=tool) for arch in ("sm_100a", "sm_103a") for tool in ("one", "two")]
    changes = after(history, {x: result(x) for x in labels}, {x: result(x, findings=(found(),)) for x in labels})
    (new,) = changes.new
    assert sorted(new.builds) == sorted(labels)


@pytest.mark.parametrize(
    ("bar", "severity", "verdict", "failing"),
    [
        (Bar(), Severity.ERROR, Verdict.VIOLATED, True),
        (Bar(), Severity.WARNING, Verdict.VIOLATED, False),
        (Bar(fail_on=Severity.WARNING), Severity.WARNING, Verdict.VIOLATED, True),
        (Bar(), Severity.ERROR, Verdict.UNKNOWN, False),
        (Bar(strict=True), Severity.NOTE, Verdict.UNKNOWN, True),
    ],
)
def test_the_bar_decides(history: History, bar: Bar, severity: Severity, verdict: Verdict, failing: bool) -> None:
    finding = found(severity=severity, verdict=verdict)
    changes = after(history, {ONE: result(ONE)}, {ONE: result(ONE, findings=(finding,))}, Settings(bar=bar))
    assert [change.failing for change in changes.new] == [failing]


@pytest.mark.parametrize(("value", "failing"), [(40, None), (36, False), (48, False), (49, True)])
def test_a_metric_may_grow_as_far_as_its_threshold(history: History, value: int, failing: bool | None) -> None:
    settings = Settings(thresholds={"registers": Threshold(8, False)})
    now = {ONE: result(ONE, metrics={"registers": value, "fresh": 1})}
    changes = after(history, {ONE: result(ONE, metrics={"registers": 40})}, now, settings)
    assert [(c.name, c.before, c.after, c.failing) for c in changes.metrics] == (
        [] if failing is None else [("registers", 40, value, failing)]
    )
    assert changes.regressions == int(bool(failing))


def test_a_percentage_is_of_what_it_was() -> None:
    assert not Threshold(10, True).exceeded(200, 220)
    assert Threshold(10, True).exceeded(200, 221)
    assert Threshold(10, True).exceeded(0, 1)


def test_changed_code_is_named_by_level(history: History) -> None:
    before = {ONE: result(ONE, ptx="a", sass="a"), TWO: result(TWO, ptx="a", sass="")}
    now = {ONE: result(ONE, ptx="a", sass="b"), TWO: result(TWO, ptx="b", sass="b")}
    changes = {change.build: (change.ptx, change.sass, change.levels) for change in after(history, before, now).code}
    assert changes == {ONE: (False, True, "SASS"), TWO: (True, None, "PTX")}


def test_what_was_not_checked_is_listed_and_nothing_of_it_is_fixed(history: History) -> None:
    before = {ONE: result(ONE, findings=(found(),)), TWO: result(TWO)}
    changes = after(history, before, {ONE: result(ONE, state="memory"), TWO: result(TWO)})
    assert [(item.build, item.state) for item in changes.unchecked] == [(ONE, "memory")]
    assert changes.fixed == ()


def test_an_upgrade_under_the_same_name_is_told(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.nightly import support

    write_run(history, {ONE: result(ONE)}, 0, "before")
    monkeypatch.setattr(support, "TOOLCHAINS", {"one": {"dsl": "4.9.0", "packages": "a==2 b==1"}})
    changes = after(history, None, {ONE: result(ONE)})
    assert changes.toolchains == ("one: dsl 4.8.0 -> 4.9.0", "one: packages nothing -> a==2 b==1")


def test_toolchains_side_by_side(history: History) -> None:
    labels = [build(toolchain=name) for name in ("one", "two", "three")]
    given = dict(
        zip(
            labels,
            (
                result(labels[0], ptx="p", sass="s", counts={"SAS801": (2, 0, 0), "TCG101": (1, 0, 0)}),
                result(labels[1], ptx="p", sass="t", counts={"SAS801": (1, 1, 0), "TCG101": (1, 0, 0)}),
                result(labels[2], ptx="p", sass="s", counts={"TCG101": (1, 0, 0)}),
            ),
            strict=True,
        )
    )
    number = write_run(history, {**given, TWO: result(TWO)}, 0)
    (row,) = across(cells_of(history, number))
    history.db.close()
    assert (row.kernel, row.arch, row.rules) == ("gemm", "sm_100a", ("SAS801",))
    assert [(c.toolchain, c.ptx, c.sass, c.verdicts) for c in row.columns] == [
        ("one", "A", "A", ("2 proved",)),
        ("three", "A", "A", ("not run",)),
        ("two", "A", "B", ("1 proved, 1 violated",)),
    ]
