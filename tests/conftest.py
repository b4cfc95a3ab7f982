"""Options for the tests that need a GPU or minutes (without them these are skipped, not failed), and where the minutes went."""

import signal
from collections import Counter

import pytest

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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What CI's minutes go to, by folder and by file: seconds of all workers added up."""
    seconds: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.partition("::")[0]
                for name in (file.rpartition("/")[0], file):
                    seconds[name] += report.duration
                    count[name] += report.when == "call"
    total = sum(taken for name, taken in seconds.items() if name.endswith(".py"))
    if total < 120:
        return
    terminalreporter.section("where the minutes went")
    for name, taken in seconds.most_common(24):
        terminalreporter.write_line(f"{taken / 60:6.1f} min {taken / total:5.0%}  {count[name]:5} tests  {name}")
