"""The command line. Commands are imported when they are called, so that `verifier --help` is quick.

Exit codes: 0 the bar is met, 1 it is not, 2 could not check (also usage errors and bugs of the verifier),
130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from verifier import __version__
from verifier.cli import output
from verifier.config import find_config, load_config
from verifier.errors import InternalError, VerifierError

COULD_NOT_CHECK = 2
INTERRUPTED = 130

COMMANDS = {
    "verify": ("verify", "Compile the registered kernels and check them."),
    "check": ("check", "Check PTX, cubins, CUDA C++ or SASS listings."),
    "baseline": ("baseline", "Write down today's findings, to fail only on new ones."),
    "diff": ("diff", "Say what changed in the generated code between two builds."),
    "nightly": ("nightly", "Run the whole matrix and compare it with the last good run."),
    "show": ("show", "Print what the verifier sees in a kernel."),
    "explain": ("explain", "Explain a rule."),
    "rules": ("explain", "List all rules."),
    "doctor": ("doctor", "Say which tools and settings are in use."),
}


class LazyGroup(click.Group):
    """A group that knows names and summaries of its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"verifier.cli.{module}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="verifier")
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Read [tool.verifier] of this file, not of the nearest pyproject.toml.",
)
@click.pass_context
def cli(ctx: click.Context, config_file: Path | None) -> None:
    """Prove the ordering obligations of GPU kernels on what the compiler emitted: PTX and SASS."""
    found = config_file or find_config(Path.cwd())
    settings = load_config(found) if found else {}
    ctx.obj = found
    values = {key.replace("-", "_"): value for key, value in settings.items()}
    if found and "baseline" in values:
        values["baseline"] = str(found.parent / str(values["baseline"]))
    ctx.default_map = dict.fromkeys(("verify", "check", "baseline"), values)


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. Every error becomes a message on stderr."""
    stdout = sys.stdout
    try:
        result = cli.main(args=args, prog_name="verifier", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except VerifierError as error:
        output.show_error(error)
        return error.exit_code
    except click.ClickException as error:
        error.show(file=sys.stderr)
        return COULD_NOT_CHECK
    except (click.exceptions.Abort, KeyboardInterrupt):
        output.note("interrupted")
        return INTERRUPTED
    except SystemExit as ended:  # completion; or the reader of a help text left, for which click swaps the stream
        return 0 if sys.stdout is not stdout else int(ended.code or 0)
    except Exception as error:
        known = output.write_error(error) if isinstance(error, OSError) else None
        found = known or InternalError(f"{type(error).__name__}: {error}")
        found.__cause__ = error
        output.show_error(found)
        return found.exit_code


def main() -> NoReturn:
    """Entry point of the `verifier` command."""
    output.open_streams()
    code = run()
    output.flush()
    sys.exit(code)
