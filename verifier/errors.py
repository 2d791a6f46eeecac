"""Every error the verifier raises on purpose, and the exit code each one leads to.

An error says what went wrong, where, and what to do about it. The command line prints exactly that and
exits with `exit_code`; nothing else may reach the user as a traceback.
"""

from __future__ import annotations


class VerifierError(Exception):
    """Base of all deliberate errors: `what` happened, `where`, and what to `do`."""

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", do: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.do = do

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  help: {self.do}" if self.do else text


class InputError(VerifierError):
    """An input file cannot be read or is not what its name says."""


class ParseError(VerifierError):
    """A line of PTX or of a SASS listing that the grammar does not accept."""

    def __init__(self, what: str, *, file: str, line: int, column: int, expected: tuple[str, ...] = ()) -> None:
        if expected:
            what = f"{what}; expected {', '.join(expected)}"
        super().__init__(
            what, where=f"{file}:{line}:{column}", do="if ptxas or nvdisasm wrote this, report it as a bug"
        )
        self.file = file
        self.line = line
        self.column = column
        self.expected = expected


class ToolchainError(VerifierError):
    """A compiler or disassembler is missing, or does not do what is asked of it."""


class CompileError(VerifierError):
    """A kernel did not compile. `reason`: "time" or "memory" for a limit, "crash", or "" for an error of its own."""

    def __init__(self, what: str, *, where: str = "", do: str = "", reason: str = "") -> None:
        super().__init__(what, where=where, do=do)
        self.reason = reason


class ConfigError(VerifierError):
    """A command line option or a configuration value that makes no sense."""


class InternalError(VerifierError):
    """A bug of the verifier: says which part failed on which kernel."""

    def __init__(self, what: str, *, where: str = "") -> None:
        super().__init__(
            f"internal error: {what}", where=where, do="please report it; VERIFIER_DEBUG=1 shows the traceback"
        )
