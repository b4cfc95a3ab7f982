"""`problems/compiled.py`: what torch.compile is asked for, what it gives, and what is said where it fails."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

from pkb.problems import compiled as module
from pkb.problems.compiled import NotCompiled, compiled, compiled_for_any_length

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]


@pytest.fixture
def by(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Backend], None]]:
    """Have passes compiled on a CPU too, by this in place of Inductor, which takes a compiler of C++ and minutes."""

    def use(backend: Backend) -> None:
        monkeypatch.setattr(module, "ON", ("cpu",))
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))

    yield use
    torch._dynamo.reset()


def scaled(x: torch.Tensor, weight: torch.Tensor, factor: float) -> torch.Tensor:
    return x * weight + factor


def waiting(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum().item() > 0 else x


def call(function: Callable[..., torch.Tensor], rows: int, factor: float) -> bool:
    x, weight = torch.randn(rows, 3), torch.randn(3)
    return torch.equal(function(x, weight, factor), x * weight + factor)


def test_every_set_of_shapes_has_its_own_and_no_value_of_a_number_does(by: Callable[[Backend], None]) -> None:
    shapes: list[list[torch.Size]] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        shapes.append([one.shape for one in inputs if isinstance(one, torch.Tensor) and one.dim()])
        return graph.forward

    by(backend)
    one = compiled(scaled)
    for rows in (4, 5, 6, 4, 7):
        assert all(call(one, rows, factor) for factor in (0.5, 0.25, 0.125, 2.5))
    # Twice each: a number is a constant until it has another value.
    assert shapes == [[torch.Size((rows, 3)), torch.Size((3,))] for rows in (4, 4, 5, 5, 6, 6, 7, 7)]
    assert all(type(length) is int for inputs in shapes for shape in inputs for length in shape), "none for any shape"


def test_any_length_has_the_same_and_other_dimensions_are_what_they_are(by: Callable[[Backend], None]) -> None:
    shapes: list[list[Any]] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        given = [node.meta["example_value"] for node in graph.graph.nodes if node.op == "placeholder"]
        shapes.append([length for one in given if isinstance(one, torch.Tensor) for length in one.shape])
        return graph.forward

    by(backend)
    one = compiled_for_any_length(0)(scaled)
    assert all(call(one, rows, 0.5) for rows in (4, 9, 6, 4))
    [(rows, columns, weights)] = shapes
    assert isinstance(rows, torch.SymInt)
    assert (columns, weights) == (3, 3)
    x = torch.ones(5, 3)
    result = one(x, torch.ones(3), 0.5)
    assert [vars(x), vars(result)] == [{}, {}], "marked"


def test_on_other_devices_it_runs_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", None)
    assert call(compiled(scaled), 4, 0.5)
    assert call(compiled_for_any_length(0)(scaled), 4, 0.5)


def test_a_compiler_that_fails_is_told_with_what_to_do(by: Callable[[Backend], None]) -> None:
    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        raise RuntimeError("Failed to find C compiler.")

    by(backend)
    with pytest.raises(NotCompiled, match=r"Failed to find C compiler.*install gcc.*--against reference"):
        call(compiled(scaled), 4, 0.5)


def test_where_the_device_lacks_something_no_compiler_is_asked_for(by: Callable[[Backend], None]) -> None:
    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        raise RuntimeError("CompilationError: type fp8e4nv not supported in this architecture")

    by(backend)
    with pytest.raises(NotCompiled, match=r"not supported in this architecture; time against the reference"):
        call(compiled(scaled), 4, 0.5)


def test_defaults_are_kept(by: Callable[[Backend], None]) -> None:
    by(lambda graph, inputs: graph.forward)

    def doubled(x: torch.Tensor, by: float = 2.0, *, more: float = 1.0) -> torch.Tensor:
        return x * by + more

    assert torch.equal(compiled(doubled)(torch.ones(3)), torch.full((3,), 3.0))


def test_what_is_compiled_in_parts_or_too_often_does_not_run_as_it_is_written(by: Callable[[Backend], None]) -> None:
    by(lambda graph, inputs: graph.forward)
    with pytest.raises(NotCompiled):
        compiled(waiting)(torch.ones(3))
    one = compiled(scaled)
    with torch._dynamo.config.patch(recompile_limit=1), pytest.raises(NotCompiled):
        assert all(call(one, 4, factor) for factor in (0.5, 0.25))


def test_an_error_of_a_call_is_no_error_of_the_compiler(by: Callable[[Backend], None]) -> None:
    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            raise torch.OutOfMemoryError("no room")

        return run

    by(backend)
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        call(compiled(scaled), 4, 0.5)
