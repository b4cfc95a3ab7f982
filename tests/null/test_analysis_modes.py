"""Failure modes: real exceptions of torch and Python, provoked here, and what the adversaries' headers promise."""

import ctypes
import re
import runpy
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
import torch.nn.functional as F
from verdict_examples import example

from pkb.analysis.modes import BY_VERDICT, RULES, WORDS, FailureMode, failure_mode, mode_of_exception
from pkb.types.verdict import Failure, Mismatch, Stage, Verdict

ADVERSARIES = Path(__file__).parents[1] / "adversaries"
M = torch.zeros(3, 4)


def unpack_a_shape() -> None:
    _batch, _rows, _columns = M.shape


def unpack_a_list() -> None:
    _a, _b, _c = [1, 2]  # type: ignore[misc]


def unbound() -> None:
    print(later)  # type: ignore[has-type,used-before-def]  # noqa: F821
    later = 1  # noqa: F841


SHAPE: dict[str, Callable[[], object]] = {
    "add": lambda: torch.zeros(3) + torch.zeros(4),
    "matmul": lambda: M @ M,
    "dot": lambda: torch.zeros(3) @ torch.zeros(4),
    "bmm": lambda: torch.bmm(torch.zeros(2, 3, 4), torch.zeros(3, 4, 5)),
    "bmm of a matrix": lambda: torch.bmm(M, torch.zeros(3, 4, 5)),
    "linear": lambda: F.linear(M, torch.zeros(5, 3)),
    "view of a transpose": lambda: M.t().view(12),
    "view": lambda: M.view(5, 5),
    "reshape": lambda: M.reshape(-1, 5),
    "unflatten": lambda: M.unflatten(1, (3, 3)),
    "cat": lambda: torch.cat([torch.zeros(2, 3), torch.zeros(2, 4)]),
    "cat of different ranks": lambda: torch.cat([torch.zeros(2, 3), torch.zeros(2)]),
    "stack": lambda: torch.stack([torch.zeros(2), torch.zeros(3)]),
    "expand": lambda: M.expand(5, 4),
    "expand to fewer": lambda: M.expand(4),
    "copy_": lambda: M.copy_(torch.zeros(7)),
    "split": lambda: M.split([1, 1]),
    "narrow": lambda: M.narrow(0, 2, 3),
    "sum": lambda: M.sum(3),
    "indices": lambda: M[0, 0, 0],
    "gather": lambda: torch.gather(M, 0, torch.zeros(1, 1, 1, dtype=torch.long)),
    "einsum": lambda: torch.einsum("ij,jk->ik", M, M),
    "einsum of too few": lambda: torch.einsum("ijk->ik", M),
    "permute": lambda: M.permute(0, 1, 2),
    "as_strided": lambda: M.as_strided((100,), (1,)),
    "cross entropy": lambda: F.cross_entropy(M, torch.zeros(5, dtype=torch.long)),
    "layer norm": lambda: F.layer_norm(M, (5,)),
    "conv": lambda: F.conv1d(torch.zeros(1, 3, 8), torch.zeros(4, 2, 3)),
    "numpy": lambda: numpy.zeros(3) + numpy.zeros(4),
    "unpack": unpack_a_shape,
}
NAME: dict[str, Callable[[], object]] = {
    "module attribute": lambda: torch.foo,  # type: ignore[attr-defined]
    "tensor attribute": lambda: M.foo,  # type: ignore[attr-defined]
    "operator": lambda: torch.ops.symm_mem.nonexistent(M),
    "overload": lambda: torch.ops.aten.add.Foo(M, M),
    "operator called wrongly": lambda: torch.ops.aten.add(M, M, M, M),
    "keyword": lambda: torch.zeros(3, foo=1),  # type: ignore[call-overload]
    "keyword of a function": lambda: F.linear(M, M, biass=None),  # type: ignore[call-arg]
    "missing argument": lambda: F.linear(M),  # type: ignore[call-arg]
    "argument of another type": lambda: F.relu("x"),  # type: ignore[arg-type]
    "dtype as text": lambda: torch.zeros(3, dtype="float32"),  # type: ignore[call-overload]
    "not callable": lambda: M.shape(),  # type: ignore[operator]
    "own function": lambda: (lambda a, b: a)(1),  # type: ignore[call-arg]
    "too many": lambda: (lambda a: a)(1, 2),  # type: ignore[call-arg]
    "global name": lambda: an_undefined_name,  # type: ignore[name-defined]  # noqa: F821
    "local name": unbound,
    "module": lambda: __import__("a_module_that_nobody_has"),
    "name in a module": lambda: exec("from torch.distributed import all_reduce_but_faster"),
}
RUNTIME: dict[str, Callable[[], object]] = {
    "dtype": lambda: M @ torch.zeros(4, 3, dtype=torch.float64),
    "operand": lambda: M - "x",  # type: ignore[operator]
    "index": lambda: M[5],
    "gradient": lambda: M.backward(),
    "in place": lambda: torch.zeros(3, requires_grad=True).add_(1),
    "item": lambda: M.item(),
    "truth value": lambda: bool(M),
    "memory": lambda: torch.empty(1 << 60),
    "singular": lambda: torch.linalg.inv(torch.zeros(3, 3)),
    "key": lambda: {}["x"],  # type: ignore[index]
    "division": lambda: 1 // 0,
    "unpack": unpack_a_list,
}
COMPILE: dict[str, Callable[[], object]] = {
    "syntax": lambda: compile("def f(:\n", "x", "exec"),
    "indentation": lambda: compile("def f():\npass\n", "x", "exec"),
}


def provoked(call: Callable[[], object]) -> Failure:
    """The exception as the judge records it: type, text and trace."""
    try:
        call()
    except Exception as error:
        trace = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)))
        return Failure(type(error).__name__, str(error), 0, trace)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("expected", "call"),
    [
        pytest.param(mode, call, id=f"{mode}-{name}")
        for mode, calls in (
            (FailureMode.SHAPE, SHAPE),
            (FailureMode.NAME, NAME),
            (FailureMode.RUNTIME, RUNTIME),
            (FailureMode.COMPILE, COMPILE),
        )
        for name, call in calls.items()
    ],
)
def test_real_exceptions(expected: FailureMode, call: Callable[[], object]) -> None:
    failure = provoked(call)
    for verdict in (Verdict.RUNTIME_ERROR, Verdict.LOAD_ERROR):
        document = example(verdict, failure=failure).to_dict()
        assert failure_mode(document) is expected, failure


def test_what_other_tools_say() -> None:
    """Messages of tools that are not on every machine, in their own words."""
    for expected, kind, message in (
        (
            FailureMode.COMPILE,
            "RuntimeError",
            "Error building extension 'kernel': [1/2] nvcc ...\nninja: build stopped",
        ),
        (FailureMode.COMPILE, "CompilationError", "at 5:9: NameError('blok is not defined')"),
        (FailureMode.COMPILE, "ImportError", "/tmp/k.so: undefined symbol: _Z6launchPf"),
        (FailureMode.DEADLOCK, "DistBackendError", "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)"),
        (FailureMode.DEADLOCK, "RuntimeError", "[gloo/transport/tcp] Timed out waiting 30000ms for recv"),
        (FailureMode.RUNTIME, "OutOfResources", "out of resource: shared memory, Required: 270336"),
        (FailureMode.RUNTIME, "OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB"),
        (FailureMode.RUNTIME, "RuntimeError", ""),
    ):
        assert mode_of_exception(kind, message) is expected, (kind, message)


def test_a_library_without_the_function_that_is_called() -> None:
    """The loader says `undefined symbol` here too; but this is a name that does not exist, not a build that failed."""
    with pytest.raises(AttributeError, match="undefined symbol") as caught:
        _ = ctypes.CDLL(None).a_function_that_nobody_has
    assert mode_of_exception("AttributeError", str(caught.value)) is FailureMode.NAME


def test_every_verdict_has_a_mode_of_its_own_or_is_looked_at() -> None:
    looked_at = {Verdict.WRONG, Verdict.LOAD_ERROR, Verdict.RUNTIME_ERROR}
    assert set(BY_VERDICT) | looked_at == set(Verdict)
    assert set(WORDS) == set(FailureMode)
    modes = {verdict: failure_mode(example(verdict).to_dict()) for verdict in Verdict}
    assert modes[Verdict.CRASH] is FailureMode.RUNTIME
    assert {v for v, mode in modes.items() if not mode.is_judged} == {Verdict.UNSUPPORTED, Verdict.HARNESS_ERROR}
    assert {v for v, mode in modes.items() if mode is FailureMode.CORRECT} == {Verdict.CORRECT}
    with pytest.raises(ValueError, match="right"):
        failure_mode({"verdict": "right"})


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("the result should have shape (4, 8) and has [4, 7]", FailureMode.SHAPE),
        ("the result should be bfloat16 and is float32", FailureMode.MISMATCH),
        ("the result should have 2 items and has 3", FailureMode.MISMATCH),
        ("values differ", FailureMode.MISMATCH),
    ],
)
def test_wrong_outputs(what: str, expected: FailureMode) -> None:
    mismatch = Mismatch(case="tiny", ranks=(0,), rank=0, output="the result", what=what)
    assert failure_mode(example(Verdict.WRONG, mismatch=mismatch).to_dict()) is expected


def test_a_file_without_solution_is_a_name_that_is_missing() -> None:
    inspected = example(Verdict.LOAD_ERROR, failure=None, stage=Stage.INSPECT).to_dict()
    loaded = example(Verdict.LOAD_ERROR, failure=Failure("MissingSolution", "")).to_dict()
    assert failure_mode(inspected) is failure_mode(loaded) is FailureMode.NAME


@pytest.mark.parametrize(
    ("name", "verdict", "expected"),
    [
        ("faults/import_error", Verdict.LOAD_ERROR, FailureMode.NAME),
        ("faults/exception_at_import", Verdict.LOAD_ERROR, FailureMode.RUNTIME),
        ("faults/wrong_signature", Verdict.RUNTIME_ERROR, FailureMode.NAME),
        ("faults/endless_recursion", Verdict.RUNTIME_ERROR, FailureMode.RUNTIME),
        ("faults/syntax_error", Verdict.LOAD_ERROR, FailureMode.COMPILE),
    ],
)
def test_exceptions_of_adversaries(name: str, verdict: Verdict, expected: FailureMode) -> None:
    """Run as the judge would, one rank and without its walls: these do nothing but raise."""
    failure = provoked(lambda: runpy.run_path(str(ADVERSARIES / f"{name}.py"))["solution"](torch.zeros(4)))
    assert failure_mode(example(verdict, failure=failure).to_dict()) is expected


def test_headers_of_all_adversaries() -> None:
    """Whatever the judge is expected to say of an adversary, a cheat's mode is never one that leaves the denominator."""
    seen = set()
    for path in sorted(ADVERSARIES.glob("*/*.py")):
        said = dict(re.findall(r"^# (\w+): (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE))
        for word in said["expect"].split("|"):
            verdict = Verdict(word)
            document = example(verdict).to_dict()
            if verdict in (Verdict.LOAD_ERROR, Verdict.RUNTIME_ERROR) and "rule" in said:
                document["failure"] = {"kind": said["rule"], "message": "", "trace": ""}
            mode = failure_mode(document)
            seen.add(mode)
            if path.parent.name in ("cheats", "mistakes"):
                assert mode.is_judged, path
            if path.parent.name == "honest":
                assert mode is FailureMode.CORRECT, path
    assert seen >= {FailureMode.RACE, FailureMode.DEADLOCK, FailureMode.REJECTED, FailureMode.UNSUPPORTED}


def test_odd_documents_and_long_messages() -> None:
    assert failure_mode({"verdict": "runtime_error", "failure": {"kind": 3, "message": None}}) is FailureMode.RUNTIME
    assert failure_mode({"verdict": "wrong", "mismatch": None}) is FailureMode.MISMATCH
    assert mode_of_exception("RuntimeError", "x" * 10_000_000 + " shape") is FailureMode.RUNTIME
    assert all(rule.why for rule in RULES)
