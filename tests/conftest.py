"""Options for tests that need a GPU or minutes (skipped without them), ranks on the CPU, and where the minutes went."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from world import World

if TYPE_CHECKING:  # mypy reads them here, under names that differ; pytest finds them by itself
    import tests.emulator.conftest
    import tests.problems.conftest
    import tests.site.conftest  # noqa: F401

OPT_IN = {"gpu": "needs an NVIDIA GPU", "slow": "takes minutes"}

# A shell that starts the tests in the background has SIGINT ignored, and what the tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    for marker, why in OPT_IN.items():
        parser.addoption(
            f"--{marker}", action="store_true", default=False, help=f"also run tests marked {marker}: {why}"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker, why in OPT_IN.items():
        if not config.getoption(f"--{marker}"):
            for item in items:
                if item.get_closest_marker(marker):
                    item.add_marker(pytest.mark.skip(reason=f"{why}; run with --{marker}"))


@pytest.fixture(scope="session")
def world() -> Iterator[Callable[[int], World]]:
    """`world(4)`: a running group of four ranks, started at its first use and shared by all tests of the session."""
    pools: dict[int, World] = {}

    def of_size(size: int) -> World:
        if size not in pools:
            pools[size] = World(size)
        return pools[size]

    yield of_size
    for pool in pools.values():
        pool.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What CI's minutes go to, by folder and by file: seconds of all workers added up."""
    seconds: dict[str, float] = {}
    count: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.partition("::")[0]
                for name in (file.rpartition("/")[0], file):
                    seconds[name] = seconds.get(name, 0.0) + report.duration
                    count[name] += report.when == "call"
    total = sum(taken for name, taken in seconds.items() if name.endswith(".py"))
    if total < 120:
        return
    terminalreporter.section("where the minutes went")
    for name, taken in sorted(seconds.items(), key=lambda item: -item[1])[:24]:
        terminalreporter.write_line(f"{taken / 60:6.1f} min {taken / total:5.0%}  {count[name]:5} tests  {name}")
