"""The container recipe, as far as it can be held to something without building it."""

import re
import shlex
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = ("ARG", "FROM", "RUN", "WORKDIR", "COPY", "ENV", "ENTRYPOINT", "CMD")


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(), flags=re.MULTILINE)
    joined = re.sub(r"\\\n\s*", " ", text)
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]  # type: ignore[misc]


def test_the_recipe_is_made_of_known_instructions_whose_commands_parse() -> None:
    found = instructions()
    assert [word for word, _ in found][:2] == ["ARG", "FROM"]
    for word, rest in found:
        assert word in INSTRUCTIONS, word
        if word == "RUN":
            assert shlex.split(rest)
            assert not rest.rstrip().endswith(("&&", "\\"))
    assert dict(found)["ENTRYPOINT"] == '["pkb"]'


def test_it_installs_extras_that_exist_and_ignores_what_is_large() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    arguments = dict(rest.split("=", 1) for word, rest in instructions() if word == "ARG")
    assert set(arguments["EXTRAS"].split(",")) <= set(extras)
    assert {".git", ".venv", "out", "pkb-runs"} <= set((ROOT / ".dockerignore").read_text().split())


def test_what_is_installed_is_what_was_tested() -> None:
    runs = " ".join(rest for word, rest in instructions() if word == "RUN")
    assert "-c constraints.txt" in runs
    assert (ROOT / "constraints.txt").is_file()


def test_the_page_uses_what_the_recipe_has() -> None:
    page = (ROOT / "docs" / "container.md").read_text()
    arguments = {rest.split("=", 1)[0] for word, rest in instructions() if word == "ARG"}
    assert set(re.findall(r"--build-arg (\w+)=", page)) <= arguments
    work = [rest for word, rest in instructions() if word == "WORKDIR"][-1]
    assert f'-v "$PWD":{work}' in page
    for extra in re.findall(r"EXTRAS=([\w,]+)", page):
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(extra.split(",")) <= set(known)
