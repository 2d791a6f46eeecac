"""`verifier doctor`: what this installation can do, and with which tools and settings."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

import click

from verifier import __version__
from verifier.cli import output
from verifier.cli.options import ENV
from verifier.config import Setting, load_config
from verifier.errors import ToolchainError

PROGRAMS = {
    "ptxas": "assembles PTX",
    "nvdisasm": "lists the SASS of cubins",
    "cuobjdump": "finds cubins in fat binaries",
}
PACKAGES = {
    "nvidia-cutlass-dsl": "compiles CuTe DSL kernels",
    "cuda-python": "bindings of the two libraries below",
    "nvidia-nvjitlink": "assembles PTX in process",
    "nvidia-cuda-nvrtc": "compiles CUDA C++",
}


@click.command()
@click.pass_obj
def doctor(config_file: Path | None) -> int:
    """Say which tools and settings are in use. Exit 2 when a tool is missing."""
    lines, complete = _tools()
    lines = [f"verifier {__version__}, Python {platform.python_version()}, {platform.platform()}", "", *lines, ""]
    settings: dict[str, Setting] = load_config(config_file) if config_file else {}
    lines.append(f"settings  {output.display(config_file) if config_file else 'no [tool.verifier] found'}")
    lines += [f"  {key} = {value!r}" for key, value in settings.items()]
    lines += [f"  {name} = {value!r} (environment)" for name, value in _environment()]
    lines.append("everything is there" if complete else "something is missing: pip install ptx-sass-verifier[compile]")
    output.emit("\n".join(lines) + "\n")
    return 0 if complete else 2


def _environment() -> list[tuple[str, str]]:
    """Variables that win over the settings file, or name a tool or a folder."""
    return sorted((name, value) for name, value in os.environ.items() if name.startswith(ENV))


def _tools() -> tuple[list[str], bool]:
    found = [*_programs(), *_packages()]
    return [line for line, _ in found], all(there for _, there in found)


def _programs() -> Iterator[tuple[str, bool]]:
    from verifier.compile.toolchain import find_tool

    for name, use in PROGRAMS.items():
        try:
            tool = find_tool(name)
            yield f"ok       {name:18} {tool.version:10} {use} ({tool.origin}: {tool.path})", True
        except ToolchainError as error:
            yield f"missing  {name:18} {'':10} {use} ({error.what}{': ' + error.where if error.where else ''})", False


def _packages() -> Iterator[tuple[str, bool]]:
    from verifier.compile.toolchain import package_version

    for name, use in PACKAGES.items():
        version = package_version(name)
        yield f"{'ok' if version else 'missing':8} {name:18} {version or '':10} {use}", version is not None
