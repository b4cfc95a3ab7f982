"""The pages say what is there: links lead somewhere, every page is reachable, and the map names files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(
        part.startswith(".") or part in ("src", "out", "pkb-runs", "carry") for part in path.relative_to(ROOT).parts
    )
)
"""Those for readers: what is in `src` is shown to models."""
_OURS = re.compile(r"(src|tests|tools|benchmarks|docs|solutions)/[\w./-]+")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`([^`\n]+)`")


def links(page: Path) -> list[str]:
    text = _QUOTED.sub("", _FENCE.sub("", page.read_text()))
    return [link for link in _LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def anchor(heading: str) -> str:
    """As a forge makes it: letters, digits, spaces as hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", "")).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if fragment and target.suffix == ".md":
            assert fragment in {anchor(title) for title in _HEADING.findall(target.read_text())}, link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_exists(page: Path) -> None:
    """Where a page quotes a path from the root of the project."""
    named = [
        word for word in _QUOTED.findall(_FENCE.sub("", page.read_text())) if _OURS.fullmatch(word) and "NN" not in word
    ]
    assert not [word for word in named if not (ROOT / word).exists()]


def test_every_page_is_reachable_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    seen, open_pages = {index}, [index]
    while open_pages:
        page = open_pages.pop()
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target not in seen:
                seen.add(target)
                open_pages.append(target)
    assert {str(page.relative_to(ROOT)) for page in PAGES} == {str(page.relative_to(ROOT)) for page in seen}


def test_the_readme_leads_to_the_index() -> None:
    assert "docs/README.md" in links(ROOT / "README.md")


def named_in_the_map() -> list[str]:
    """What ARCHITECTURE.md claims to exist: entries of its tree, and quoted paths in its text."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    names = []
    folders: list[str] = []
    for block in re.findall(r"^```tree\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            entry = re.match(r"( *)(\S+)", line)
            assert entry is not None, f"an empty line in the tree: {line!r}"
            depth = len(entry[1]) // 2
            folders[depth:] = [entry[2]]
            names.append("/".join(part.rstrip("/") for part in folders))
    quoted = [word for word in _QUOTED.findall(_FENCE.sub("", text)) if re.fullmatch(r"[\w./-]+/[\w./-]*", word)]
    return names + [word for word in quoted if not word.startswith("/")]


def test_the_map_is_true() -> None:
    names = named_in_the_map()
    assert len(names) > 60, "the tree is not being read"
    missing = [name for name in names if not any((base / name).exists() for base in (ROOT, ROOT / "src" / "pkb"))]
    assert not missing


@pytest.mark.parametrize("folder", ["src/pkb", "src/pkb/judge", "src/pkb/rank"])
def test_the_map_leaves_no_folder_out(folder: str) -> None:
    there = {
        str(path.relative_to(ROOT))
        for path in (ROOT / folder).iterdir()
        if path.is_dir() and path.name != "__pycache__" and any(path.rglob("*.py"))
    }
    assert there <= set(named_in_the_map())
