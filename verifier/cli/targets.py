"""What a command line names, be it files, folders or registered kernels -> bundles to check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from verifier.cli import registry
from verifier.cli.inputs import Bundle, discover
from verifier.errors import ConfigError, VerifierError


def bundles_of(
    targets: Sequence[str],
    archs: Sequence[str],
    defect: str | None,
    *,
    jobs: int = 1,
    timeout: float = 180,
    all_when_empty: bool = False,
) -> tuple[list[Bundle], list[VerifierError]]:
    """Existing files and folders as they are; other names as registered kernels, compiled first.

    `all_when_empty`: no target means every registered kernel.
    """
    files = [Path(target) for target in targets if Path(target).exists() or not _registered(target)]
    bundles, errors = discover(files)
    names = [target for target in targets if Path(target) not in files]
    if defect is not None and not names:
        raise ConfigError("--defect needs the name of a registered kernel", do="`verifier verify --list` has them")
    if names or (all_when_empty and not targets):
        known = registry.load_registry()
        wanted = registry.requests(registry.choose(known, names, defect), archs, defect)
        for result in registry.compile_all(wanted, jobs=jobs, timeout=timeout):
            (errors if isinstance(result, VerifierError) else bundles).append(result)  # type: ignore[arg-type]
    return bundles, errors


def _registered(name: str) -> bool:
    try:
        registry.load_registry().case(name)
    except ConfigError:
        return False
    return True
