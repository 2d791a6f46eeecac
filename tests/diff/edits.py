"""The split-K kernel as stored PTX and SASS, and edits of it that a test can describe in a word."""

from __future__ import annotations

import random
import re
from pathlib import Path

from verifier.diff.hunks import Comparison, compare
from verifier.diff.lines import Listing
from verifier.diff.ptx_lines import ptx_listing
from verifier.diff.sass_lines import machine_code, sass_listing
from verifier.launch import LaunchFacts
from verifier.model.kernel import KernelModel
from verifier.model.lift_ptx import lift_ptx
from verifier.model.lower_ptx import lower_ptx
from verifier.model.lower_sass import entry_names, lower_sass
from verifier.parse.ptx import parse_ptx
from verifier.parse.sass import parse_sass
from verifier.parse.source import Source

DATA = Path(__file__).parent / "data"
PTX = (DATA / "splitk_mailbox.ptx").read_text()
SASS = (DATA / "splitk_mailbox.sass").read_text()

CTA_WAIT = "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64"
RELAXED_WAIT = "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64"
CLUSTER_WAIT = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"
RESTRICTED_FENCE = "fence.acquire.sync_restrict::shared::cluster.cluster"
FULL_FENCE = "fence.acq_rel.cluster"


def listing(text: str) -> Listing:
    """The lines of the only kernel in some PTX."""
    file = parse_ptx(Source("kernel.ptx", text))
    functions = {function.name: function for function in lower_ptx(file, follow=False)}
    (kernel,) = functions.values()
    return ptx_listing(file, KernelModel(kernel, lift_ptx, LaunchFacts()), functions)


def machine_listing(text: str) -> Listing:
    """The lines of the only kernel in an nvdisasm listing."""
    file = parse_sass(Source("kernel.sass", text))
    (name,) = entry_names(file)
    return sass_listing(name, machine_code(file, lower_sass(file)), lambda instr: ())


def compared(before: str, after: str) -> Comparison:
    return compare(listing(before), listing(after))


def machine_compared(before: str, after: str) -> Comparison:
    return compare(machine_listing(before), machine_listing(after))


def relax_waits(text: str, count: int = 4, wait: str = RELAXED_WAIT, fence: str = RESTRICTED_FENCE) -> str:
    """The first `count` CTA-scope waits as `wait`, each followed by `fence` behind its retry ("" for none)."""
    lines = text.split("\n")
    at = [number for number, line in enumerate(lines) if CTA_WAIT in line][:count]
    assert len(at) == count
    for number in reversed(at):
        lines[number] = lines[number].replace(CTA_WAIT, wait)
        assert "bra" in lines[number + 2]
        if fence:
            lines.insert(number + 3, f"\t{fence};")
    return "\n".join(lines)


def renumber(text: str, seed: int = 1) -> str:
    """Every register, label and the kernel renamed, one to one; the `.reg` counts stay valid."""
    chance = random.Random(seed)
    names: dict[str, str] = {}
    for prefix, count in re.findall(r"(%\w+)<(\d+)>", text):
        numbers = list(range(int(count)))
        chance.shuffle(numbers)
        names.update({f"{prefix}{old}": f"{prefix}{new}" for old, new in enumerate(numbers)})
    labels = sorted(set(re.findall(r"\$L__BB\w+", text)))
    fresh = [f"$Other_{number}" for number in range(len(labels))]
    chance.shuffle(fresh)
    names.update(zip(labels, fresh, strict=True))
    text = re.sub(r"%[a-z]+\d+\b|\$L__BB\w+", lambda found: names.get(found[0], found[0]), text)
    return text.replace("gemm_splitk_mailbox_0", f"other_name_{seed}")


def replace_line(text: str, old: str, new: str, which: int = 0) -> str:
    """The `which`-th line that holds `old`, with `new` in its place; the whole line goes when `new` is ""."""
    lines = text.split("\n")
    at = [number for number, line in enumerate(lines) if old in line][which]
    if new:
        lines[at] = lines[at].replace(old, new)
    else:
        del lines[at]
    return "\n".join(lines)


def insert_before(text: str, mark: str, line: str) -> str:
    lines = text.split("\n")
    at = next(number for number, found in enumerate(lines) if mark in found)
    return "\n".join([*lines[:at], f"\t{line}", *lines[at:]])


def instruction_lines(text: str) -> list[int]:
    """Numbers of the lines that hold one PTX instruction each."""
    lines = text.split("\n")
    start = next(number for number, line in enumerate(lines) if line.startswith("{"))
    return [n for n, line in enumerate(lines) if n > start and re.match(r"\t(?!\.)[^/]*;", line)]
