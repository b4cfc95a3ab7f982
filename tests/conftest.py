"""Options for the tests that need a GPU or minutes; without them these tests are skipped, not failed."""

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # mypy reads them here, under names that differ; pytest finds them by itself
    import tests.cpu.conftest
    import tests.emulator.conftest
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
