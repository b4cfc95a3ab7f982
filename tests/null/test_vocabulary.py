"""One vocabulary of options: what all commands share, what older spellings become, and what a shell is offered."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from pkb.cli.command import RENAMED, PkbCommand, current_spelling
from pkb.cli.completion import problem_names, run_names
from pkb.cli.main import app
from pkb.store import Store, TaskSpec
from pkb.types.case import Case

RUNNER = CliRunner()


def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        found |= {f"{name} {sub}": one for sub, one in inner.items()} if inner else {name: command}
    return found


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_speaks_the_same_words(name: str) -> None:
    command = commands()[name]
    assert isinstance(command, PkbCommand)
    options: dict[str, Any] = {
        word: parameter for parameter in command.params for word in parameter.opts if word.startswith("--")
    }
    assert not set(options) & set(RENAMED) - {"--out"}
    for word, metavar in (("--json", "FILE|-"), ("--problems-dir", "DIR"), ("--store", "DIR"), ("--problems", "IDS")):
        if word in options:
            assert options[word].metavar == metavar, word
    if "--out" in options and "--json" in options:  # not a second way to write the same JSON
        assert "JSON" not in options["--out"].help
    text = RUNNER.invoke(app, [*name.split(), "-h"])
    assert text.exit_code == 0
    assert "list[" not in text.stdout


def test_the_list_of_commands_is_not_cut_off() -> None:
    text = RUNNER.invoke(app, ["-h"]).stdout
    assert "..." not in text.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("words", "known", "meant"),
    [
        (["--json"], {"--json"}, ["--json", "-"]),
        (["--json", "--compare"], {"--json", "--compare"}, ["--json", "-", "--compare"]),
        (["--json", "out.json", "x"], {"--json"}, ["--json", "out.json", "x"]),
        (["--json=out.json"], {"--json"}, ["--json=out.json"]),
        (["--json", "-"], {"--json"}, ["--json", "-"]),
        (["--problems-folder", "d"], {"--problems-dir"}, ["--problems-dir", "d"]),
        (["--problems", "anything"], {"--problems-dir"}, ["--problems-dir", "anything"]),
        (["--problems", "1-8"], {"--problems", "--problems-dir"}, ["--problems", "1-8"]),
        (["--problems=.", "13"], {"--problems", "--problems-dir"}, ["--problems-dir=.", "13"]),
        (["--parallel=3"], {"--concurrency"}, ["--concurrency=3"]),
        (["--out", "f"], {"--json"}, ["--json", "f"]),
        (["--out", "f"], {"--json", "--out"}, ["--out", "f"]),
        (["--", "--json"], {"--json"}, ["--", "--json"]),
        (["--parallel", "3"], {"--json"}, ["--parallel", "3"]),  # a command that never had it: its own error
    ],
)
def test_older_spellings(words: list[str], known: set[str], meant: list[str]) -> None:
    assert current_spelling(words, known) == meant


def test_an_older_spelling_works_and_names_the_new_one(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["problems", "--problems", str(tmp_path)])
    assert done.exit_code == 2
    assert "--problems is now called --problems-dir" in done.stderr
    assert "holds no problem modules" in done.stderr


def test_json_goes_to_a_file_beside_what_people_read(tmp_path: Path) -> None:
    out = tmp_path / "bounds.json"
    done = RUNNER.invoke(app, ["roofline", "1", "--json", str(out)])
    assert done.exit_code == 0, done.output
    assert "allreduce" in done.stdout
    assert [row["id"] for row in json.loads(out.read_text())] == [1]
    refused = RUNNER.invoke(app, ["roofline", "--json", "1"])
    assert refused.exit_code == 2
    assert "is 1 the file for --json?" in refused.stderr


@pytest.fixture
def store(tmp_path: Path) -> Path:
    spec = TaskSpec(collection="c", case=Case("13_gemm_allreduce", platform="cpu"), backend="cuda")
    with Store(tmp_path / "store") as writer:
        for name in ("night", "nightly"):
            writer.create_run("import", name=name, tasks=[spec])
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runs", "show", "nigth"], "did you mean night"),
        (["score", "nihgtly"], "did you mean nightly"),
        (["run", "--resume", "night", "--no-timing", "--ranks", "2"], "--ranks, --no-timing would change them"),
        (["run", "--resume", "night", "x.py"], "the argument FILE would change them"),
        (["run", "x.py", "--samples", "3"], "--samples is for models"),
        (["generate", "--resume", "night", "--model", "m/m"], "--model would change them"),
        (["agent", "1", "--resume", "night", "--steps", "3"], "--steps would change them"),
        (["score", "night"], "nothing to score yet: "),
        (["show", "13_gemm_alreduce"], "did you mean 13_gemm_allreduce"),
        (["generate", "1", "--problems", "2", "--model", "m/m"], "named twice"),
    ],
)
def test_mistakes_are_told_in_the_users_words(store: Path, words: list[str], said: str) -> None:
    where = [] if words[0] == "show" else ["--store", str(store)]
    done = RUNNER.invoke(app, [*words, *where])
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_run_and_a_folder_of_one_name_are_told_apart(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "night").mkdir()

    def score(name: str) -> str:
        return RUNNER.invoke(app, ["score", name, "--store", str(store)]).stderr

    assert "nothing to score yet" in score("night")  # the run: the folder holds no verdict
    (tmp_path / "night" / "x.json").write_text("{}")
    assert "is a stored run and a folder with verdicts here" in score("night")
    assert "none readable" in score("./night")


def test_a_shell_is_offered_problems_and_runs(store: Path) -> None:
    context = SimpleNamespace(params={"store": store})
    assert "13_gemm_allreduce" in problem_names("13_")
    assert problem_names("1-8,gemm_allred") == ["1-8,gemm_allreduce"]
    assert run_names(context, "night") == ["nightly", "night"]
    assert run_names(context, "late") == ["latest"]
    assert run_names(SimpleNamespace(params={"store": store / "nothing"}), "") == []
