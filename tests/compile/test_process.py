"""A program under limits: whatever it does, the caller goes on."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from verifier.compile.process import Cancelled, Limits, run_limited

PLENTY = Limits(seconds=60)


def python(code: str, limits: Limits = PLENTY, **options: object) -> object:
    return run_limited([sys.executable, "-c", code], limits=limits, **options)  # type: ignore[arg-type]


def test_output_input_and_exit_code_pass_through() -> None:
    done = python(
        "import sys; data = sys.stdin.read(); print(data[::-1]); sys.stderr.write('bad'); sys.exit(3)", stdin=b"abc"
    )
    assert (done.code, done.out, done.err, done.stopped) == (3, b"cba\n", b"bad", "")


def test_a_program_that_never_ends_is_stopped_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "child"
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    done = python(code, Limits(seconds=1.5))
    assert done.stopped == "time"
    assert not is_running(int(note.read_text()))


def test_a_child_that_outlives_its_parent_is_ended(tmp_path: Path) -> None:
    note = tmp_path / "child"
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
    )
    assert python(code).code == 0
    assert not is_running(int(note.read_text()))


def is_running(pid: int) -> bool:
    """A process that exists and is no zombie waiting for init."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.02)
    return True


def test_memory_is_limited() -> None:
    # Standard input ends once the limits are in place.
    done = python("import sys; sys.stdin.read(); data = bytearray(1 << 30)", Limits(memory=512 << 20))
    assert done.code == 1
    assert b"MemoryError" in done.err


def test_processor_time_is_limited_for_the_case_that_the_caller_is_killed() -> None:
    done = python(
        "import resource, sys; sys.stdin.read(); print(resource.getrlimit(resource.RLIMIT_CPU)[0])", Limits(seconds=7)
    )
    assert int(done.out) == 7 * (os.cpu_count() or 1) + 1


def test_endless_output_is_stopped_and_kept_within_the_limit() -> None:
    done = python("while True: print('x' * 1000)", Limits(seconds=60, output=100_000))
    assert done.stopped == "output"
    assert len(done.out) == 100_000


def test_too_much_output_counts_also_when_the_program_has_ended() -> None:
    assert python("print('x' * 5000)", Limits(output=1000)).stopped == "output"


def test_the_end_of_standard_error_is_kept() -> None:
    done = python("import sys\nfor i in range(100000): sys.stderr.write(f'line {i}\\n')", err_tail=1000)
    assert len(done.err) <= 1000
    assert done.err.endswith(b"line 99999\n")


def test_a_signal_has_its_name() -> None:
    assert python("import os, signal; os.kill(os.getpid(), signal.SIGABRT)").signal_name == "SIGABRT"


def test_cancelling_ends_the_program() -> None:
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    with pytest.raises(Cancelled):
        python("import time; time.sleep(600)", cancel=cancel)


def test_the_environment_is_the_one_given() -> None:
    done = python("import os; print(os.environ.get('GIVEN'), os.environ.get('HOME'))", env={"GIVEN": "1"})
    assert done.out == b"1 None\n"
    assert "HOME" in os.environ


def test_a_program_that_does_not_exist() -> None:
    with pytest.raises(FileNotFoundError):
        run_limited(["/nonexistent/tool"], limits=PLENTY)
