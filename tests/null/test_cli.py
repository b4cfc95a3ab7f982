"""The command line as a user meets it: real subcommands on real problems; wrong usage is one line and exit status 2."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pkb
from pkb.cli import output
from pkb.cli.candidate_file import infer_problem
from pkb.cli.machine_facts import c_compiler, isolation_facts
from pkb.cli.main import app
from pkb.cli.panel import paths_words
from pkb.judge.settling import why_not
from pkb.platforms.base import PlatformFacts
from pkb.platforms.registry import detect
from pkb.problems.registry import default_registry
from pkb.types.case import Case
from pkb.types.errors import UserError

RUNNER = CliRunner()
CANDIDATE = "def solution(A_local, B_local):\n    return A_local @ B_local\n"


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    path = tmp_path / "13_gemm_allreduce.py"
    path.write_text(CANDIDATE)
    return path


def test_help_and_version_do_not_import_torch() -> None:
    code = (
        "import sys, pkb.cli.main as m\n"
        "try: m.app(sys.argv[1:], prog_name='pkb')\n"
        "except SystemExit as e: assert not e.code, e.code\n"
        "assert 'torch' not in sys.modules and 'pkb.problems' not in sys.modules"
    )
    for arguments in (["--help"], ["--version"], ["eval", "--help"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (pkb.__version__ if arguments == ["--version"] else "Usage: pkb") in done.stdout


def test_it_runs_as_a_module_of_a_tree_that_nobody_has_installed(tmp_path: Path) -> None:
    (tmp_path / "src").symlink_to(Path(pkb.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "pkb", "--version"], env=os.environ | {"PYTHONPATH": "src"}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == f"pkb {pkb.__version__}\n", done.stderr


def _refused(arguments: list[str]) -> str:
    """Runs a command that must be refused as wrong usage, and gives its one line."""
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["problems", "--parallelism", "zp"], "one of collective, tp"),
        (["problems", "--pattern", "teleport"], "all-reduce"),
        (["problems", "--group-by", "colour"], "parallelism, layer"),
        (["problems", "--problems-dir", "/nowhere"], "/nowhere does not exist"),
        (["show", "999"], "no problem is called '999'"),
        (["show", "nonsense"], "`pkb problems` lists"),
        (["show", "13", "--ranks", "0"], "--ranks 0"),
        (["show", "13", "--dtype", "int3"], "bf16"),
        (["check", "/nowhere/x.py"], "does not exist"),
        (["lint", "999"], "no problem"),
        (["lint", "--size", "huge"], "tiny, paper"),
        (["lint", "--ranks", "2,many"], "'many'"),
        (["lint", "--ranks", "0"], "'0'"),
        (["lint", "--dtype", ","], "empty"),
        (["lint", "--platform", "moon"], "cpu, virtual, node"),
        (["lint", "--json", "/nowhere/x/out.json"], "does not exist"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], says: str) -> None:
    assert says in _refused(arguments)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--problem", "999"], "no problem is called '999'"),
        (["--size", "huge"], "tiny, paper, real, odd"),
        (["--size", "tiny,huge"], "no size is called 'huge'"),
        (["--size", "tiny,odd,tiny"], "names a size twice"),
        (["--dtype", "int3"], "bf16, fp16, fp32, fp64"),
        (["--plan", "lazy"], "quick, standard, paper"),
        (["--platform", "moon"], "auto, cpu, virtual, node"),
        (["--ranks", "0"], "1 or more"),
        (["--ranks", "-3"], "1 or more"),
        (["--json", "/nowhere/x/out.json"], "mkdir -p"),
        (["--json", "/"], "is a directory"),
        (["--call-limit", "0"], "--call-limit"),
        (["--build-limit", "-1"], "--build-limit"),
        (["--memory-limit", "nan"], "--memory-limit"),
        (["--problems-dir", "/nowhere"], "does not exist"),
    ],
)
def test_eval_refuses_wrong_options(candidate: Path, options: list[str], says: str) -> None:
    assert says in _refused(["eval", str(candidate), *options])


def test_eval_refuses_files_that_are_no_source(tmp_path: Path) -> None:
    assert "does not exist" in _refused(["eval", str(tmp_path / "13_missing.py")])
    assert "is a directory" in _refused(["eval", str(tmp_path)])
    binary = tmp_path / "13_binary.py"
    binary.write_bytes(b"\x7fELF\xff\xfe\x00")
    assert "not UTF-8" in _refused(["eval", str(binary)])
    binary.write_bytes(b"def solution(): pass\n\0")
    assert "binary" in _refused(["check", str(binary)])
    fifo = tmp_path / "13_pipe.py"
    os.mkfifo(fifo)
    assert "not a regular file" in _refused(["eval", str(fifo)])
    nameless = tmp_path / "kernel.py"
    nameless.write_text(CANDIDATE)
    assert "--problem" in _refused(["eval", str(nameless)])


def test_eval_refuses_cases_the_platform_cannot_run(candidate: Path) -> None:
    base = ["eval", str(candidate), "--platform", "cpu"]
    assert "ranks" in _refused([*base, "--ranks", "100000"])
    assert "does not run with" in _refused([*base, "--ranks", "5"])


def test_a_platform_that_is_not_here_is_refused(candidate: Path) -> None:
    missing = {name: facts for name, facts in detect().items() if not facts.available}
    if not missing:
        pytest.skip("this machine has every platform")
    for name, facts in missing.items():
        assert f"platform {name} is not available here: {facts.why_not}" in _refused(
            ["eval", str(candidate), "--platform", name]
        )


def test_a_case_too_large_for_the_memory_is_refused() -> None:
    problem = default_registry().get(13)
    small = PlatformFacts(name="cpu", available=True, max_ranks=8, memory_bytes=1 << 30)
    assert why_not(Case(problem.stem, "cpu", 8, "tiny", "bf16"), problem, small) is None
    refusal = str(why_not(Case(problem.stem, "cpu", 8, "real", "bf16"), problem, small))
    assert re.search(r"needs about 10\.5 GiB.*has 1\.00 GiB.*smaller size \(tiny or paper\)", refusal)


def test_ranks_that_cannot_share_a_gpu_are_refused_in_words_and_may_have_one_each() -> None:
    gpus = PlatformFacts(name="virtual", available=True, max_ranks=8, memory_bytes=150 * 10**9, capabilities=("cuda",))
    for problem in default_registry().all():
        case = Case(problem.stem, "virtual", 8, "real", problem.default_dtype)
        refusal = why_not(case, problem, gpus)
        if fitting := problem.fits_one_gpu.get("real"):
            if 8 not in fitting:
                assert f"8 ranks does not fit one GPU of 140 GB: {fitting[0]} or" in str(refusal)
            assert why_not(replace(case, ranks=fitting[-1]), problem, gpus) is None
            assert (
                why_not(case, problem, replace(gpus, shares_device=False, memory_bytes=8 * gpus.memory_bytes)) is None
            )
        else:
            assert refusal is None, f"nobody can judge {problem.stem} on one GPU, and its module does not say so"


def test_memory_of_gpus_that_no_rank_uses_does_not_count() -> None:
    problem = default_registry().get(13)
    case = Case(problem.stem, "node", 2, "real", "bf16")
    node = PlatformFacts(
        name="node", available=True, max_ranks=8, memory_bytes=8 << 30, shares_device=False
    )  # 1 GiB a GPU, 1.3 needed
    assert "for them" in str(why_not(case, problem, node))
    assert why_not(case, problem, replace(node, memory_bytes=16 << 30)) is None


@pytest.mark.parametrize(
    ("name", "problem_id"),
    [("13_gemm_allreduce_cuda.py", 13), ("1_allreduce.py", 1), ("01_allreduce.py", 1), ("13.py", 13), ("p13_x.py", 13),
     ("gemm_allreduce.py", 13), ("gemm_allreduce_v2.py", 13), ("allreduce.py", 1), ("13_attempt2.py", 13)],
)  # fmt: skip
def test_problem_is_read_from_the_file_name(name: str, problem_id: int) -> None:
    assert infer_problem(Path(name), default_registry()).id == problem_id


@pytest.mark.parametrize(
    "name", ["2024_kernel.py", "my_gemm_allreduce.py", "gemm_allreduced.py", "2_gemm_allreduce.py", "x.py"]
)
def test_doubtful_file_names_are_asked_about(name: str) -> None:
    with pytest.raises(UserError, match="--problem"):
        infer_problem(Path(name), default_registry())


def test_progress_and_results_go_apart() -> None:
    code = (
        "from pkb.cli.output import show_progress, write_json\n"
        "with show_progress() as progress:\n    progress('build'); write_json('-', {'a': 1})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"a": 1}
    assert done.stderr.rstrip().endswith("s] build")


def test_a_log_in_which_a_stage_lasts_long_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "SILENT_S", 0.01)
    said = ""
    with output.show_progress() as progress:
        progress("build")
        while said.count("s] still: build\n") < 2:
            said += capsys.readouterr().err


@pytest.mark.parametrize(("readable", "unread"), [(True, False), (False, True)])
def test_paths_say_why_cuda_was_not_read(readable: bool, unread: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pkb.candidates.paths.cuda.available", lambda: readable)
    words = paths_words(("unknown", "sm_load_store"))
    assert words.startswith("sm_load_store, unknown")
    assert ("pkb[analysis]" in words) is unread
    assert paths_words(("tma",)) == "tma"


def test_isolation_layers_that_are_off_are_reported_missing() -> None:
    facts = isolation_facts(
        {"pid": "on: x", "network": "off: closed", "hidden": "off: not asked for", "limits": "on, but y"}
    )
    assert [(fact.name, fact.ok) for fact in facts] == [("pid", True), ("network", False), ("limits", True)]


def test_what_a_missing_c_compiler_means_is_told(tmp_path: Path) -> None:
    header = tmp_path / "Python.h"
    for fact in (c_compiler(None, header), c_compiler("/usr/bin/gcc", header)):
        assert not fact.ok
        assert "baseline by torch.compile" in fact.found
        assert "--against reference" in fact.to_do
    header.touch()
    assert c_compiler("/usr/bin/gcc", header).ok
    assert not c_compiler(None, header).ok


def test_unknown_option_is_exit_2() -> None:
    result = RUNNER.invoke(app, ["eval", "x.py", "--nonsense"])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_interrupt_is_one_line_and_130() -> None:
    code = (
        "import os, signal, sys, pkb.cli.main as m\n"
        "@m.app.command('hang')\n"
        "def hang() -> None:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    import time; time.sleep(20)\n"
        "sys.argv[1:] = ['hang']\nm.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130 != -signal.SIGINT
    assert done.stderr.splitlines() == ["interrupted: no verdict"]


def test_our_own_bugs_keep_their_traceback() -> None:
    code = (
        "import sys, pkb.cli.main as m\n"
        "@m.app.command('bug')\n"
        "def bug() -> None:\n    raise RuntimeError('ours')\n"
        "sys.argv[1:] = ['bug']\nm.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "RuntimeError: ours" in done.stderr


def test_doctor_says_what_works() -> None:
    result = RUNNER.invoke(app, ["doctor", "--json"])
    document = json.loads(result.stdout)
    assert result.exit_code == (0 if document["works"] else 2)
    facts = {fact["name"]: fact for fact in document["facts"]}
    assert {"python", "torch", "triton", "NCCL", "nvcc", "nvrtc", "c++", "cores", "memory", "/dev/shm", "MPS"} <= set(
        facts
    )
    assert facts["python"]["found"] == ".".join(map(str, sys.version_info[:3]))
    for fact in facts.values():
        assert fact["ok"] or fact["found"] or fact["to_do"]
    assert "platforms" in RUNNER.invoke(app, ["doctor"]).stdout
