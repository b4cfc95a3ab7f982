"""Our torch header beside torch's own: one source, compiled both ways, must behave alike in every call."""

import contextlib
import math
import subprocess
import sysconfig
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from kit_compilers import needs_cxx

from pkb.kit import slim, torch_facts
from pkb.kit.cpp import find_cxx
from pkb.kit.extension import load_extension

SOURCE = Path(__file__).parent / "torch_slim" / "module.cpp"
pytestmark = [needs_cxx, pytest.mark.slow]


class Modules(NamedTuple):
    ours: ModuleType
    real: ModuleType


def build(folder: Path, name: str, flags: list[str], objects: list[str]) -> ModuleType:
    output = folder / f"{name}.so"
    libraries = [f"-L{torch_facts.folder() / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    base = ["-shared", "-fPIC", "-O0", torch_facts.standard(), "-DTORCH_EXTENSION_NAME=both_ways"]
    command = [str(find_cxx()), *base, *flags, str(SOURCE), *objects, "-o", str(output), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return load_extension("both_ways", output)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Modules:
    folder = tmp_path_factory.mktemp("both")
    recipe = slim.adaptor_recipe()
    adaptor = folder / recipe.file_name
    recipe.build(folder, adaptor)
    own = build(folder, "ours", list(slim.INCLUDE_FLAGS), [str(adaptor)])
    folders = [*torch_facts.include_folders(), sysconfig.get_paths()["include"]]
    real = build(folder, "real", [part for each in folders for part in ("-isystem", each)], [])
    assert slim.used_in(folder / "ours.so")
    assert not slim.used_in(folder / "real.so")
    return Modules(own, real)


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> object:
    """What a call gives, in a form that can be compared: its value by `repr`, or its exception with type and words."""
    try:
        value = function(*arguments, **named)
    except Exception as error:
        return type(error), str(error)
    return type(value), repr(value)


X = torch.arange(6, dtype=torch.float32).reshape(2, 3)
EACH_DTYPE = [torch.ones(2, dtype=dtype) for dtype in (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64,
)]  # fmt: skip
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("facts", (X,), {}), ("facts", (X.t(),), {}), ("facts", (X[1:, 1:],), {}), ("facts", (X.bfloat16(),), {}),
    ("facts", (torch.nn.Parameter(X),), {}), ("facts", (3,), {}), ("facts", (), {}), ("facts", (X, X), {}),
    ("facts", (), {"x": X}), ("facts", (None,), {}),
    ("first", (X + 1,), {}), ("first", (X.int(),), {}), ("same_pointers", (X,), {}), ("as_bfloat16", (X,), {}),
    ("constants", (), {}), ("made", (X,), {}), ("changed", (X,), {}), ("bad_view", (X,), {}),
    ("items", (torch.tensor(2.5),), {}),
    ("indexed", (X.clone(),), {}), ("indexed", (X.t(),), {}), ("indexed", (X[0],), {}), ("indexed", (X.int(),), {}),
    ("tupled", (X, 1), {}), ("tupled", (X, 2), {}),
    ("items", (X,), {}), ("size_of", (X, 1), {}), ("size_of", (X, -3), {}), ("stride_of", (X, 5), {}),
    ("stride_of", (X, -2), {}),
    ("refuse", (X, 1), {}), ("refuse", (X, 7), {}), ("refuse", (X, 1.0), {}), ("refuse", (X, torch.tensor(9)), {}),
    ("refuse", (X, torch.tensor(9.5)), {}), ("refuse", (X, True), {}), ("refuse", (X, "a"), {}),
    ("refuse", (X, 2**70), {}),
    ("refuse", (X, np.int64(9)), {}), ("refuse", (X, np.float64(9)), {}), ("refuse", (X, X), {}),
    *[("check", (kind, 1), {}) for kind in range(7)], ("check", (0, 4), {}), ("check", (0, 2**40), {}),
    *[("raise_", (kind,), {}) for kind in range(10)],
    *[("dispatched", (x, kind), {}) for x in EACH_DTYPE for kind in range(9)],
    ("pair", (X,), {}), ("pair", (X, X + 1), {}), ("pair", (), {"x": X, "y": None}), ("pair", (), {"y": X}),
    ("pair", (X, 3), {}),
    ("pair", (X,), {"y": 3, "z": 4}), ("pair", (X,), {"x": X}),
    ("many", ([X], [1, 2]), {}), ("many", ((X, X), (1,)), {}), ("many", (X, [1]), {}), ("many", ([X], [1.5]), {}),
    ("many", ([1], [1]), {}), ("many", ([X], "ab"), {}), ("many", ({0: X}, [1]), {}),
    ("many", ([X], torch.tensor([1, 2])), {}),
    ("many", ([X], {1, 2}), {}), ("many", ([X], range(3)), {}), ("many", ({0: X}.values(), [1]), {}),
    ("many", ([X], b"ab"), {}),
    ("many", ([X, None], [1]), {}), ("many", ([X], None), {}),
    ("scaled", (1.5,), {}), ("scaled", (2, 3), {}), ("scaled", (1.0,), {"c": None}), ("scaled", (1.0,), {"c": 0}),
    ("scaled", (1.0,), {"c": "x"}), ("scaled", (1.0, 1.0, False, b"by", 9), {}), ("scaled", (1.0,), {"u": -1}),
    ("scaled", (1.0,), {"u": 2**64 - 1}), ("scaled", (1.0,), {"u": 2**64}), ("scaled", (1.0,), {"u": True}),
    ("scaled", (1.0,), {"u": np.int32(4)}), ("scaled", (1.0,), {"u": 1.5}), ("scaled", (1.0,), {"i": 2**31}),
    ("scaled", (1.0,), {"i": -(2**31)}), ("scaled", (1.0,), {"small": 256}), ("scaled", (1.0,), {"small": 255}),
    ("scaled", (torch.tensor(2.0),), {}), ("scaled", ("1.0",), {}), ("scaled", (1.0,), {"s": 3}),
    ("scaled", (None,), {}),
    ("scaled", (np.float32(2.0),), {}), ("scaled", (1.0,), {"c": np.bool_(True)}), ("scaled", (1.0,), {"s": "é\0ü"}),
    ("scaled", (1.0,), {"s": "\ud800"}), ("scaled", (1.0,), {"s": bytearray(b"abc")}), ("scaled", (), {}),
    ("turned", (True, "a"), {}), ("turned", (1, "a"), {}), ("maybe", (None,), {}), ("maybe", (2,), {}),
    ("maybe", ("x",), {}),
    ("overloaded", (3,), {}), ("overloaded", (X,), {}), ("overloaded", (torch.tensor(3),), {}),
    ("overloaded", ("s",), {}),
    ("overloaded", (3.5,), {}), ("overloaded", (True,), {}), ("undefined", (), {}), ("undefined", (1,), {}),
    ("not_text", (), {}),
    ("added", (X,), {}), ("added", (X,), {"n": 2}), ("added", (), {"n": 2, "x": X}), ("added", (), {"n": 2}),
]  # fmt: skip
NUMBERS = [0.0, -0.0, 1.0, 1.00390625, 3.14159, -2.5, 65504.0, 65519.9, 65520.0, 1e30, -1e-30, 6e-8, 2.9e-8, 3.1e-8, 6.1e-5,
           1e-40, math.inf, -math.inf, math.nan, 0.1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11]  # fmt: skip


def test_every_call_gives_the_same(modules: Modules) -> None:
    assert len(modules.ours.facts(X)) == 9  # not only the same errors
    assert len(modules.ours.changed(X)) == 16
    numbers = [*NUMBERS, *map(float, range(256))]
    for name, arguments, named in [*CALLS, *(("bits", (number,), {}) for number in numbers)]:
        ours, real = (outcome(getattr(module, name), arguments, named) for module in modules)
        assert ours == real, (name, arguments, named)


def test_a_generator_is_a_sequence_and_one_that_raises_is_not_swallowed(modules: Modules) -> None:
    def broken() -> Any:
        yield X
        raise KeyError("mine")

    for module in modules:
        assert len(module.many((x for x in [X, X]), [1, 2])) == 2
        with pytest.raises(KeyError, match="mine"):
            module.many(broken(), [1])


def test_names_and_docstrings_are_the_same(modules: Modules) -> None:
    assert modules.ours.__doc__ == modules.real.__doc__ == "the module"
    for name in sorted({name for name, _, _ in CALLS}):
        ours, real = getattr(modules.ours, name), getattr(modules.real, name)
        assert (ours.__doc__, ours.__name__, ours.__module__) == (real.__doc__, real.__name__, real.__module__)
        assert type(ours) is type(real)


def test_tensors_go_through_as_themselves_and_are_given_back(modules: Modules) -> None:
    x = torch.ones(3)
    for module in modules:
        result, _ = module.pair(x)
        assert result is x  # the same Python object, as pybind11 gives it
        for _ in range(1000):
            module.many([x, x], [1, 2])
            module.changed(X)
    view = modules.ours.changed(X)[2]
    assert view.data_ptr() == X.data_ptr()
    # A tensor that C++ still held would keep its Python object alive.
    for module in modules:
        leaving = torch.ones(4)
        gone = weakref.ref(leaving)
        for call in (
            module.facts,
            module.pair,
            module.changed,
            module.made,
            lambda x, m=module: m.many([x, x], [1, 2]),
        ):
            with contextlib.suppress(RuntimeError, IndexError):
                call(leaving)
        del leaving
        assert gone() is None


def test_wrong_arguments_are_type_errors_in_pybind11s_words(modules: Modules) -> None:
    with pytest.raises(TypeError, match=r"first\(\): incompatible function arguments") as info:
        modules.ours.first(3)
    assert "1. (arg0: torch.Tensor) -> float" in str(info.value)
    assert "Invoked with: 3" in str(info.value)
    with pytest.raises(RuntimeError, match=r"n is 1 for \[2, 3\] of Float on cpu"):
        modules.ours.refuse(X, 1)
    assert modules.ours.undefined() is None
    assert modules.ours.pair(X, y=None)[1] == 3
