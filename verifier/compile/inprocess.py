"""Compile a CuTe DSL function that lives in this process, with its arguments: a test has them, a child has not.

There are no limits here, and a crash of the compiler is a crash of this process. The DSL reads its settings when it is
imported, so they are read again for the time of a compile and put back after it.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verifier.compile.artifacts import Artifacts
from verifier.compile.build import from_capture, with_listing
from verifier.compile.capture import Recorder
from verifier.compile.toolchain import INSTALL, current_fingerprint
from verifier.compile.worker import dsl_environment
from verifier.errors import CompileError, ToolchainError


class _Switched(Recorder):
    """A recorder that stays installed and listens only while it is told to."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.listening = False
        self.install(skip_launch=False)

    @contextlib.contextmanager
    def into(self, folder: Path) -> Iterator[None]:
        self._folder, self.captures, self.listening = folder, [], True
        try:
            yield
        finally:
            self.listening = False

    def _on_module(self, module: Any) -> None:
        if self.listening:
            super()._on_module(module)

    def _on_diagnostics(self, diagnostics: Any, context: Any) -> None:
        if self.listening:
            super()._on_diagnostics(diagnostics, context)

    def _on_function(self, function: Any) -> None:
        if self.listening:
            super()._on_function(function)


_recorder: _Switched | None = None


def compile_function(function: Any, arguments: tuple[Any, ...], arch: str, *, name: str) -> Artifacts:
    """Compile `function(*arguments)` for `arch` and keep what comes out under `name`; nothing is launched.

    Raises ToolchainError without the DSL, CompileError with what the compiler says.
    """
    global _recorder
    toolchain = current_fingerprint()
    if toolchain.dsl is None:
        raise ToolchainError("the CuTe DSL (nvidia-cutlass-dsl) is missing", do=INSTALL)
    cute = importlib.import_module("cutlass.cute")
    _recorder = _recorder or _Switched()
    with tempfile.TemporaryDirectory(prefix="verifier-") as scratch:
        folder = Path(scratch)
        (folder / "keep").mkdir()
        with _settings(arch, folder), _recorder.into(folder):
            try:
                cute.compile(function, *arguments)
            except Exception as error:
                text = str(error).strip() or type(error).__name__
                raise CompileError(f"compiling {name} for {arch} failed: {text}", where=name) from error
        if len(_recorder.captures) != 1:
            raise CompileError(f"compiling {name} gave {len(_recorder.captures)} functions, expected one", where=name)
        artifacts = from_capture(folder, _recorder.captures[0], name, arch, toolchain, _file_of(function) or name)
        return with_listing(artifacts)


def _file_of(function: Any) -> str | None:
    """Where a function, or the class of an object that can be called, is defined."""
    for candidate in (inspect.unwrap(function), type(function)):
        with contextlib.suppress(TypeError):
            return inspect.getsourcefile(candidate)
    return None


@contextlib.contextmanager
def _settings(arch: str, folder: Path) -> Iterator[None]:
    """The DSL's variables as the child process has them, seen by every front end that is loaded."""
    wanted = dsl_environment(arch, folder, os.environ)
    before = {key: os.environ.get(key) for key in wanted}
    fronts = list(importlib.import_module("cutlass.base_dsl.dsl").DSLSingletonMeta._instances.values())
    read = {id(front): front.envar for front in fronts}
    os.environ.update(wanted)
    _forget()
    try:
        for front in fronts:
            front.envar = type(front.envar)(front.name)
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
        _forget()
        for front in fronts:
            front.envar = read[id(front)]


def _forget() -> None:
    """Clear what the DSL remembers of the environment."""
    for value in vars(importlib.import_module("cutlass.base_dsl.env_manager")).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
