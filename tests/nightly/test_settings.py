"""nightly.toml: what it says and what it must not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifier.errors import ConfigError
from verifier.findings import Profile, Severity
from verifier.nightly.settings import INSTALLED, Settings, Threshold, load_settings

ROOT = Path(__file__).resolve().parents[2]


def load(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "nightly.toml"
    file.write_text(text)
    return load_settings(file)


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "") == Settings()
    assert list(Settings().toolchains) == [INSTALLED]


def test_everything_can_be_said(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
        profile = "isa"
        strict = true
        fail-on = "warning"
        jobs = 3
        seconds = 90
        memory = "1.5 GiB"
        artifacts = ["build"]
        [toolchain.new]
        dsl = ["nvidia-cutlass-dsl==4.8.0"]
        ptxas = "nvidia-cuda-nvcc==13.5.37"
        archs = ["sm_100a"]
        [[configuration]]
        kernel = "gemm"
        name = "wide"
        set = { n = 4096 }
        [thresholds]
        registers = 4
        code_bytes = "2.5%"
        [[suppress]]
        code = "SAS801"
        toolchain = "new"
        reason = "known"
        """,
    )
    assert (settings.profile, settings.bar.strict, settings.bar.fail_on) == (Profile.ISA, True, Severity.WARNING)
    assert (settings.jobs, settings.seconds, settings.memory) == (3, 90, 3 << 29)
    assert settings.toolchains["new"].archs == ("sm_100a",)
    assert settings.configurations[0].set == {"n": 4096}
    assert settings.thresholds["registers"] == Threshold(4, False)
    assert settings.thresholds["code_bytes"] == Threshold(2.5, True)
    assert settings.thresholds["stack_bytes"] == Threshold(0, False)
    assert settings.ignores[0].origin == "nightly.toml [[suppress]] 1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs = 0", "must be positive"),
        ("seconds = -1", "must be positive"),
        ('memory = "much"', "not a size like 8 GiB"),
        ('memory = "0 GiB"', "not a size like 8 GiB"),
        ("[thresholds]\nregisters = 'few'", "threshold 'few' of registers"),
        ("colour = 'red'", "colour"),
        ("[toolchain.x]\nptx = 'y'", "ptx"),
        ("[[suppress]]\ncode = 'X'", "reason"),
        ("[[suppress]]\ncode = 'X'\nreason = ''", "needs a code and a reason"),
        ("[[configuration]]\nkernel = 'x'", "name"),
        ("profile = 'mine'", "profile"),
        ("jobs = [", "is not TOML"),
    ],
)
def test_what_makes_no_sense_is_one_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, text)
    assert "nightly.toml" in caught.value.where


def test_a_missing_file_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path / "nowhere.toml")


def test_the_matrix_of_this_project() -> None:
    """Two versions of the DSL and two of ptxas, and the column that `make verify` has."""
    settings = load_settings(ROOT / "nightly.toml")
    assert settings.profile is Profile.ISA
    assert settings.bar.strict
    dsls = {
        name for chain in settings.toolchains.values() for name in chain.dsl if name.startswith("nvidia-cutlass-dsl")
    }
    assemblers = {chain.ptxas.rpartition("==")[2] for chain in settings.toolchains.values() if chain.ptxas}
    assert len(dsls) == 2
    assert {version.partition(".")[0] for version in assemblers} == {"12", "13"}
    assert all(chain.dsl for chain in settings.toolchains.values())
