"""The plugin for pytest: the fixture `verify_kernel`, and `--verify-kernels` with an item for each registered kernel.

Settings come from `[tool.verifier]` of the nearest pyproject.toml, as on the command line. Nothing of the verifier is
imported until a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from verifier.cli.inputs import Bundle
    from verifier.cli.options import RunOptions
    from verifier.report.results import Results

GROUP = "verifier"
DEFAULT_ARCH = "sm_100a"
COLLECTOR = "kernels"


class KernelFailure(Exception):
    """A kernel that does not meet the bar, or could not be checked; the text is the report."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup(GROUP, "verify GPU kernels after compilation")
    group.addoption(
        "--verify-kernels", action="store_true", help="Compile and check every registered kernel as an item."
    )
    group.addoption(
        "--verify-arch", action="append", default=[], metavar="ARCH", help="Only these architectures. Repeatable."
    )
    parser.addini("verifier_arch", "Architecture that verify_kernel compiles for.", default=DEFAULT_ARCH)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "verify_kernels: a registered kernel, added by --verify-kernels")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--verify-kernels"):
        collector = KernelCollector.from_parent(session, name=COLLECTOR)
        added = list(collector.collect())
        items.extend(added)
        session.testscollected += len(added)  # what pytest says that it collected


class KernelCollector(pytest.Collector):
    """All registered kernels, each for each of its architectures."""

    def collect(self) -> Iterator[KernelItem]:
        from verifier.cli import registry
        from verifier.errors import VerifierError

        archs = self.config.getoption("--verify-arch")
        try:
            wanted = registry.requests(registry.load_registry().CASES, archs, None)
        except VerifierError as error:
            raise pytest.UsageError(str(error)) from None
        for request in wanted:
            name = f"{request.case.name}[{request.arch}]"
            item: KernelItem = KernelItem.from_parent(self, name=name, request=request)
            item.add_marker("verify_kernels")
            yield item


class KernelItem(pytest.Item):
    """One kernel for one architecture: passes when it meets the bar of the settings."""

    def __init__(self, *, request: Any, **options: Any) -> None:
        super().__init__(**options)
        self._request = request

    def runtest(self) -> None:
        from verifier.cli import registry
        from verifier.cli.inputs import Bundle
        from verifier.compile.build import compile_case
        from verifier.compile.store import default_store
        from verifier.errors import VerifierError

        wanted = self._request
        try:
            artifacts = compile_case(wanted.case, wanted.arch, store=default_store())
        except VerifierError as error:
            raise KernelFailure(str(error)) from error
        source = registry.near(Path(artifacts.meta.source or wanted.case.name))
        results = _checked(Bundle(source=source, compiled=artifacts), _options(self.config))
        totals = results.totals
        self.user_properties += [(name, getattr(totals, name)) for name in ("proved", "violated", "unknown")]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, KernelFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return Path(self._request.case.source), 0, self.name


@pytest.fixture
def verify_kernel(request: pytest.FixtureRequest) -> Callable[..., Results]:
    """`verify_kernel(fn, *args)` compiles a CuTe DSL function and fails the test unless it meets the bar.

    `args` are what `cute.compile(fn, *args)` takes; nothing is launched. `arch=` names the architecture, else
    `verifier_arch` of the pytest settings. More keywords override settings: profile, strict, fail_on, select, ignore.
    Returns the results, whose `kernels` hold obligations, findings and metrics.
    """
    config = request.config

    def verify(fn: Callable[..., Any], *args: Any, arch: str = "", **settings: Any) -> Results:
        from verifier.cli.inputs import Bundle
        from verifier.compile.inprocess import compile_function
        from verifier.errors import VerifierError

        name = request.node.name
        try:
            artifacts = compile_function(fn, args, arch or config.getini("verifier_arch"), name=name)
            source = artifacts.meta.source or name
            return _checked(Bundle(source=source, compiled=artifacts), _options(config, **settings))
        except (VerifierError, KernelFailure) as error:
            said = str(error)
        pytest.fail(said, pytrace=False)

    return verify


def _checked(bundle: Bundle, options: RunOptions) -> Results:
    """The results. Raises `KernelFailure` with the report when the bar is not met or something was not checked."""
    from verifier.cli.parts import LoadOptions
    from verifier.cli.runner import Run
    from verifier.report import text

    run = Run(options, LoadOptions())
    run.check([bundle])
    results = run.results()
    if not results.kernels:
        raise KernelFailure("\n".join(map(str, run.errors)) or "there is no kernel")
    if results.exit_code(options.bar):
        raise KernelFailure(text.render(results, run.excerpts))
    return results


def _options(config: pytest.Config, **overrides: Any) -> RunOptions:
    """`[tool.verifier]` from the root of the tests upwards, with the overrides of one call."""
    from verifier.cli.options import settings_options
    from verifier.config import find_config, load_config, load_ignores

    found = find_config(config.rootpath)
    settings = {key.replace("-", "_"): value for key, value in (load_config(found) if found else {}).items()}
    if found and "baseline" in settings:
        settings["baseline"] = str(found.parent / str(settings["baseline"]))
    ignores = load_ignores(found) if found else ()
    return settings_options({**settings, **overrides}, ignores)
