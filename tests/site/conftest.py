"""A site made of synthetic runs, and a browser to look at it."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from made_site import Site, Watched, write_everything

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip


@pytest.fixture(scope="session")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Everything a page can show, with figures."""
    return write_everything(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")  # no longer: its event loop would be in the way of other tests of this process
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs the browser chromium: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'pkb[dev]'")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS), timeout=60_000)
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Watched]]:
    """Opens pages that note whatever goes wrong in them. Nothing may be fetched but files."""
    contexts = []

    def open_one(url: str = "", *, width: int = 1280, dark: bool = False) -> Watched:
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme="dark" if dark else "light")
        contexts.append(context)
        context.set_default_timeout(15_000)
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        # A page that is left while it loads aborts what it loads.
        page.on(
            "requestfailed",
            lambda request: None if "ABORTED" in str(request.failure) else complaints.append(f"failed: {request.url}"),
        )
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("file:", "data:", "blob:"))
                else complaints.append(f"asked for {request.url}")
            ),
        )
        if url:
            page.goto(url)
        return Watched(page, complaints)

    yield open_one
    for context in contexts:
        context.close()
