"""The page: one file, no script, everything escaped, links that lead somewhere, and quiet in a real browser."""

from __future__ import annotations

import os
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report.lines import Lines
from tests.report.samples import TOOLS, finding, outcome
from verifier.findings import Suppressed, Verdict, Waiver
from verifier.report import html
from verifier.report.comparison import (
    Build,
    CodeChange,
    Comparison,
    Counts,
    FindingChange,
    MetricChange,
    Unchecked,
    VerdictChange,
)
from verifier.report.results import Results
from verifier.rules import select_rules

HOSTILE = "</pre><script>alert(1)</script>\"'&<b>"
BUILD = Build(kernel="gemm", arch="sm_100a", toolchain="ptxas 13.4.59")


class Document(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.tags.append(tag)
        self.ids += [value for key, value in found.items() if key == "id" and value]
        self.targets += [value for key, value in found.items() if key in ("href", "src") and value]
        assert not [key for key in found if key.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def comparison(**changes: object) -> Comparison:
    new = FindingChange(
        fingerprint="f" * 64, rule="TCG101", name="release", severity="error", verdict="violated", role="epilogue",
        message="released early", builds=(BUILD,), file="gemm.py", line=9, failing=True,
    )  # fmt: skip
    facts: dict[str, object] = {
        "bases": (3,),
        "new": (new,),
        "fixed": (FindingChange(**{**{f: getattr(new, f) for f in new.__struct_fields__}, "fingerprint": "0" * 64}),),
        "verdicts": (VerdictChange(build=BUILD, rule="TCG101", before=Counts(2), after=Counts(1, 1)),),
        "code": (CodeChange(build=BUILD, ptx=False, sass=True, before="old", after="new"),),
        "metrics": (MetricChange(build=BUILD, name="registers", before=32, after=40, limit="4", failing=True),),
        "unchecked": (Unchecked(build=BUILD, state="crash", what="SIGSEGV"),),
    }
    return Comparison(**{**facts, **changes})  # type: ignore[arg-type]


def page(results: Results, **changes: object) -> str:
    facts: dict[str, object] = {"title": "Run 4", "facts": {"started": "today"}, "comparison": comparison()}
    return html.render(results, Lines(), select_rules(), html.Page(**{**facts, **changes}))  # type: ignore[arg-type]


def test_the_page_needs_nothing_else(results: Results) -> None:
    document = Document(page(results))
    assert not {"script", "iframe", "img", "object", "embed"} & set(document.tags)
    assert [target for target in document.targets if not target.startswith(("#", "data:,"))] == []


def test_every_link_leads_to_a_place(results: Results) -> None:
    document = Document(page(results))
    assert len(document.ids) == len(set(document.ids))
    links = {target[1:] for target in document.targets if target.startswith("#")}
    assert html.anchor("f" * 64) in links
    assert links <= set(document.ids)


def test_the_page_tells_everything(results: Results) -> None:
    text = " ".join(Document(page(results)).text.split())
    for words in (
        "the stage is released while a load of it may be in flight",
        "epilogue: the load starts",
        "pipeline.release()",
        "mbarrier.arrive.shared.b64 _, [%r3]; // free",
        "verifier diff old new",
        "gemm sm_100a ptxas 13.4.59: SIGSEGV",
        "2 proved",
        "1 proved, 1 violated",
        "40 +8",
        "contract: the PTX memory model does not order it",
        "Nothing to check in any kernel: PRF601, SCP301.",
    ):
        assert words in text, words


def test_kernels_of_several_inputs_name_them() -> None:
    kernels = tuple(outcome(source=source) for source in ("a/gemm.ptx", "b/gemm.ptx"))
    text = page(Results(kernels, (), TOOLS))
    assert "; a/gemm.ptx, b/gemm.ptx</p>" in text
    assert all(f'<th title="{source}">gemm</th>' in text for source in ("a/gemm.ptx", "b/gemm.ptx"))


def test_everything_from_a_kernel_is_escaped() -> None:
    hostile = finding(message=HOSTILE, role=HOSTILE, fix=HOSTILE, kernel=HOSTILE)
    waived = Suppressed(finding=hostile, waiver=Waiver.SOURCE, reason=HOSTILE, origin=HOSTILE)
    kernel = outcome(
        name=HOSTILE, source=HOSTILE, toolchain={"assembler": HOSTILE}, findings=(hostile,), suppressed=(waived,)
    )
    change = FindingChange(
        fingerprint="1", rule="TCG101", name="release", severity="error", verdict="violated", role=HOSTILE,
        message=HOSTILE, builds=(Build(kernel=HOSTILE, arch="sm_100a", toolchain=HOSTILE),),
    )  # fmt: skip
    document = Document(
        page(Results((kernel,), (), TOOLS, (HOSTILE,)), title=HOSTILE, comparison=comparison(new=(change,)))
    )
    assert "script" not in document.tags
    assert "b" not in document.tags
    assert document.text.count("alert(1)") >= 8


def test_unknown_and_waived_are_not_the_colour_of_proved() -> None:
    unknown = finding(rule="MBR201", verdict=Verdict.UNKNOWN)
    rendered = page(Results((outcome(findings=(unknown,)),), (), TOOLS))
    assert 'class="v unknown"' in rendered
    waived = Suppressed(finding=finding(), waiver=Waiver.SOURCE, reason="r", origin="o")
    rendered = page(Results((outcome(findings=(unknown,), suppressed=(waived,)),), (), TOOLS))
    assert 'class="v waived"' in rendered
    assert 'class="v violated"' not in rendered


def test_a_page_without_a_comparison(results: Results, incomplete: Results) -> None:
    assert 'id="changes"' not in page(results, comparison=None)
    assert "bad.ptx:3:9" in page(incomplete, comparison=None)


def browser() -> str | None:
    return next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )


@pytest.mark.skipif(browser() is None and not os.environ.get("CI"), reason="no Chromium; CI has one")
def test_a_browser_shows_it_without_complaint(results: Results, tmp_path: Path) -> None:
    file = tmp_path / "index.html"
    file.write_text(page(results))
    picture = tmp_path / "page.png"
    command = [
        browser() or "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr
    assert picture.stat().st_size > 1000
    broken = tmp_path / "broken.html"
    broken.write_text(file.read_text().replace("</header>", "<script>alert(1)</script></header>"))
    done = subprocess.run([*command[:-1], broken.as_uri()], capture_output=True, text=True, timeout=120)
    assert "CONSOLE" in done.stderr  # the policy of the page refuses scripts, and this test would see a complaint
