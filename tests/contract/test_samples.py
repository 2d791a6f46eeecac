"""What README and docs show is what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contract.samples import PAPERS, Sample, edited_tree, printed, samples

SAMPLES = list(samples())
# Each new rule proves more; a paper need not be written again for that.
_COUNTS = re.compile(r"\d+ -> \d+ obligations proved")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return edited_tree(tmp_path_factory.mktemp("tree"))


def test_there_are_samples() -> None:
    shown = {sample.paper.name for sample in SAMPLES}
    assert {"README.md", "diff.md", "reading_a_finding.md"} <= shown <= {paper.name for paper in PAPERS}


@pytest.mark.toolchain
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.paper.name}: {sample.command}")
def test_a_sample_is_what_is_printed(sample: Sample, tree: Path) -> None:
    shown, today = ([_COUNTS.sub("", line) for line in lines] for lines in (sample.lines, printed(sample, tree)))
    assert shown == today, "run `make docs`"
