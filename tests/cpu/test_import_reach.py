"""What the judge may import, a rank may read; and a path entry that holds a home opens nothing."""

import importlib
import os
import site
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked import in_child

from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewSpec
from pkb.judge.crew.limits import UNLIMITED, Limits
from pkb.judge.session import evaluate
from pkb.judge.stages import build
from pkb.kit import toolkit
from pkb.kit.options import compiler_environment
from pkb.platforms.cpu import CpuPlatform
from pkb.rank.isolation import landlock, lockdown, reach
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.protocol.settings import OracleOptions
from pkb.types.verdict import Verdict

HONEST = Path(__file__).parents[1] / "adversaries" / "honest" / "all_reduce_symmetric.py"


@pytest.fixture(scope="module", autouse=True)
def _landlock() -> None:
    try:
        landlock.version()
    except OSError as error:
        pytest.skip(f"this kernel has no Landlock: {error}")


def locked(work: Callable[[], object], folder: Path) -> tuple[object, dict[str, str]]:
    """What `work` returns behind the walls, and the report of the walls."""

    def there() -> object:
        report = lockdown.lock_down(
            readable=reach.default_readable(), writable=[folder], forbidden=[reach.own_package()], devices=False
        )
        return work(), report

    found: tuple[object, dict[str, str]] = in_child(there)
    return found


def can_read(path: Path) -> bool:
    try:
        path.read_bytes()
    except PermissionError:
        return False
    return True


def test_a_library_on_the_path_can_be_imported_and_what_lies_beside_it_stays_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = tmp_path / "libraries"
    (libraries / "a_package").mkdir(parents=True)
    (libraries / "a_package" / "__init__.py").write_text("value = 41\n")
    (libraries / ".env").write_text("TOKEN=1")
    (libraries / ".git").mkdir()
    (libraries / ".git" / "config").write_text("x")
    (tmp_path / "beside").write_text("x")
    (tmp_path / "own").mkdir()
    monkeypatch.syspath_prepend(str(libraries))

    def work() -> tuple[int, list[bool]]:
        value = importlib.import_module("a_package").value
        return value, [
            can_read(path) for path in (libraries / ".env", libraries / ".git" / "config", tmp_path / "beside")
        ]

    answer, report = locked(work, tmp_path / "own")
    assert answer == (41, [False, False, False])
    assert "imports" not in report


def test_a_path_entry_that_holds_a_home_is_refused_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    (home / "key").write_text("secret")
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("HOME", str(home))
    for entry in (str(home), str(tmp_path), "/", "", "relative", str(home / "project")):
        monkeypatch.syspath_prepend(entry)
    found = toolkit.import_folders()
    assert {home, tmp_path, Path("/")} <= set(found.refused)
    assert home / "project" in found.readable
    assert not {home, tmp_path, Path("/"), Path.cwd()} & set(found.readable) - {
        Path(e) for e in sys.path if e == str(Path.cwd())
    }
    answer, report = locked(lambda: can_read(home / "key"), tmp_path / "own")
    assert answer is False
    assert str(home) in report["imports"]


def test_an_editable_install_by_a_finder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As setuptools makes them: a module `__editable___..._finder` whose MAPPING names the folders."""
    place = tmp_path / "source" / "a_library"
    place.mkdir(parents=True)
    name = "__editable___a_library_1_0_finder"
    (tmp_path / f"{name}.py").write_text(
        f"MAPPING = {{'a_library': {str(place)!r}}}\nclass Finder:\n    @classmethod\n    def find_spec(cls, *a): return None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(name)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, module.Finder])
    assert place in toolkit.import_folders().readable
    del sys.modules[name]


def test_a_search_path_that_names_a_home_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "lib").mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:{tmp_path / 'lib'}:relative:")
    found = reach.default_readable()
    assert tmp_path not in found
    assert tmp_path / "lib" in found


USER_SITE = """
import site, sys
from pathlib import Path
from pkb.rank.isolation import lockdown, reach
assert site.ENABLE_USER_SITE
lockdown.lock_down(readable=reach.default_readable(), writable=[], forbidden=[reach.own_package()], devices=False)
import a_library
print(a_library.value)
try: Path(sys.argv[1]).read_text()
except PermissionError: print("closed")
"""


def test_an_ordinary_users_site_packages_can_be_read(tmp_path: Path) -> None:
    python = Path(sys.base_prefix) / "bin" / "python3"
    if not python.exists() or sys.flags.no_user_site:
        pytest.skip("no Python outside of the virtual environment")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / ".local" / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (packages / "a_library.py").write_text("value = 43\n")
    (tmp_path / "key").write_text("secret")
    source = str(reach.own_package().parent)
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": source}
    done = subprocess.run(
        [str(python), "-c", USER_SITE, str(tmp_path / "key")],
        env=environment, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["43", "closed"], done.stderr


def test_ranks_find_the_users_site_packages_though_their_home_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(site, "USER_BASE", "/somebody/.local")
    with Crew(CrewSpec(OracleOptions("00"), 2), CpuPlatform(), Limits(memory_bytes=UNLIMITED)) as crew:
        assert crew._environment()["PYTHONUSERBASE"] == "/somebody/.local"


@pytest.mark.parametrize("spelled", ["absolute", "relative"])
def test_a_candidate_uses_a_library_on_pythonpath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    """As in `PYTHONPATH=src`, whatever folders the ranks and the build start in."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    (libraries / "helper_library.py").write_text("def same(value):\n    return value\n")
    candidate = tmp_path / "candidate.py"
    imports = "import importlib\nsame = importlib.import_module('helper_library').same\n"
    candidate.write_text(imports + HONEST.read_text().replace("return total", "return same(total)"))
    before = [str(Path(entry).absolute()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    monkeypatch.chdir(tmp_path)
    named = libraries if spelled == "absolute" else libraries.relative_to(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(named), *before]))
    told: list[dict[str, str]] = []
    run = build._run

    def watched(*words: Any, environment: dict[str, str], **how: Any) -> build.BuildReport:
        told.append(environment)
        return run(*words, environment=environment, **how)

    monkeypatch.setattr(build, "_run", watched)
    evaluation = evaluate(Job(candidate, Case("1", "cpu", 2, "tiny", "bf16", "quick")))
    assert evaluation.verdict is Verdict.CORRECT, evaluation.detail
    assert evaluation.isolation["build"] == "on: no compiler ran"
    told.append(
        compiler_environment()
    )  # also the race analyser's, which was off with a note where pkb could not be imported
    assert [each["PYTHONPATH"].split(os.pathsep) for each in told] == [[str(libraries), *before]] * 2
