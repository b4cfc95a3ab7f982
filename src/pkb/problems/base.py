"""What a problem is. A problem module declares one `PROBLEM`; the engine knows nothing else about it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from pkb.problems.compare import NormGate, Rule
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.stock import StockFunction
from pkb.types.taxonomy import Taxonomy

Size = Mapping[str, int]
DTYPES: Mapping[str, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
}
SIZE_NAMES = ("tiny", "paper", "real", "odd")
"""What every problem has."""
OPTIONAL_SIZES = ("decode",)
"""What some have: `decode` is a step of inference, 1 to 256 tokens."""
KNOWN_SIZES = (*SIZE_NAMES, *OPTIONAL_SIZES)

GPU_BYTES = 140e9
"""What `Problem.fits_one_gpu` is computed for: an H200, less what drivers take."""


def _anything_goes(size: Size, world_size: int) -> str | None:
    return None


@dataclass(frozen=True)
class Alternative:
    """Another way to write a baseline that was tried and not taken. benchmarks/alternatives has its code: p5402 is the second
    of problem 54."""

    what: str
    us: float | None = None
    """Of a call at `real`, by the ranks and on the machine of docs/references.md; None where `refused`, or not yet timed."""
    refused: str = ""
    """Why its result is not accepted: then its time does not matter."""


@dataclass(frozen=True)
class Problem:
    id: int
    name: str
    source: str
    """Where it is from: project and function."""
    taxonomy: Taxonomy
    sizes: Mapping[str, Size]
    """`tiny`, `paper` (upstream's default shape), `real` (production) and `odd` (nothing divides anything it need not); where
    the problem is a step of inference, also `decode`."""
    inputs: Callable[[Draw], Arguments]
    """This rank's arguments, in the order of the signature."""
    reference: Callable[..., Any]
    """The self-contained `solution` that a model is shown; torch and torch.distributed only."""
    cost: Callable[[Size, int, int], Cost]
    """cost(size, world_size, bytes_per_element)."""
    published: Callable[[Draw, Arguments], Arguments] | None = None
    """Values as the published benchmark draws them, where they are of another kind than those of `inputs`: of the arguments
    of a draw that is `even` those that change, in the shapes and dtypes that they have. For plan `published` alone."""
    baseline: Callable[..., Any] | None = None
    """The best stock PyTorch + NCCL that was found: what a candidate must beat. It has the reference's signature and passes the
    same comparison. None where nothing faster was found. The module lists what was tried, with times (`tried`)."""
    baseline_version: int = 1
    """Rises when the baseline becomes faster; it changes for no other reason."""
    reference_faster_at: tuple[str, ...] = ()
    """Sizes at which the reference was measured to be faster than the baseline (docs/references.md), or than the one before it
    where the present one has not been measured: there it is what a candidate must beat."""
    baseline_reason: str = ""
    """Where there is no baseline: why the reference is one already."""
    tried: tuple[Alternative, ...] = ()
    """Beside the reference, which is always one of them: docs/references.md has its time."""
    stock_symmetric: Callable[..., Any] | None = None
    """The same by torch's own symmetric-memory operators (`torch.ops.symm_mem`), where it ships some: timed for the record by
    `run_references`, on GPUs only. No candidate is timed against it."""
    exact: Callable[..., Any] | None = None
    """The truth in less memory than the reference takes (by blocks, where whole scores do not fit): the reference's signature,
    structure, shapes and dtypes, and in float64 its values. Never timed. Its arguments are its own: it may write the result
    over them. `pkb lint` holds it against the reference."""
    fits_one_gpu: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By size, the numbers of ranks for which one GPU of `GPU_BYTES` holds what both sides need, where those are not all. Ranks
    that have a GPU each are not affected."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Scalar arguments that never change, each with the reason why that is no way to pass. All others vary from call to call or
    from size to size."""
    kinds: Mapping[str, float] = field(default_factory=dict)
    """Kinds of calls that are different work, by name, each with its share: causal or not, filtered or not. They are timed
    by themselves, and the shares are their weights. Empty where all calls are alike."""
    compare: Rule | tuple[Rule, ...] = field(default_factory=NormGate)
    """One rule for all outputs, or one for each (a returned tuple or list, flattened in order)."""
    mutates: Mapping[str, Rule] = field(default_factory=dict)
    """Arguments that the solution changes in place, each with the rule for its new contents. All others must stay unchanged."""
    truth: Literal["float64", "native"] = "float64"
    """What outputs are compared with: the reference on arguments widened to float64, or the reference as it is. An exact
    comparison needs `native`."""
    world_sizes: tuple[int, ...] = (1, 2, 3, 4, 8)
    requires: Callable[[Size, int], str | None] = _anything_goes
    """Why this size cannot run with this many ranks, or None."""
    layout: str = "world"
    dtypes: tuple[str, ...] = ("bf16", "fp16", "fp32", "fp64")
    """The first is the default: what the modelled system runs."""
    returns_input: bool = False
    """The result may be an argument itself (gather returns the input on ranks that are not the root)."""
    hints: tuple[int, ...] = ()
    """Which exchanges of floating-point numbers in the reference, counted from 0, only decide who does what: without them the
    result is right all the same as long as ranks agree, so that leaving one out is no null candidate."""
    same_bits: bool = False
    """All outputs, and arguments changed in place, have the same bits on all ranks: the docstring promises it in these words,
    and the reference does it. Replicated state drifts apart otherwise."""
    version: int = 1
    """Rises when inputs or tolerance change, so that old results stay attributable."""

    def __post_init__(self) -> None:
        if self.exact is not None and self.truth == "native":
            raise ValueError(f"problem {self.stem} has an `exact` truth in float64 and is compared with a native one")

    def arguments(self, draw: Draw, *, as_published: bool) -> Arguments:
        """What a call gets: `inputs`, with the published benchmark's kind of values where that is asked for."""
        drawn = self.inputs(draw)
        return drawn | self.published(draw, drawn) if as_published and self.published else drawn

    def function(self, name: StockFunction) -> Callable[..., Any]:
        """One of its own by its name. Where no faster one was found, the baseline is the reference."""
        found = {"reference": self.reference, "baseline": self.baseline or self.reference}.get(
            name, self.stock_symmetric
        )
        if found is None:
            raise ValueError(f"problem {self.stem} has no {name}")
        return found

    def has_baseline_at(self, size_name: str) -> bool:
        """Whether something faster than the reference is known at this size."""
        return self.baseline is not None and size_name not in self.reference_faster_at

    @property
    def stem(self) -> str:
        return f"{self.id:02d}_{self.name}"

    @property
    def default_dtype(self) -> str:
        return self.dtypes[0]

    @property
    def docstring(self) -> str:
        module = inspect.getmodule(self.reference)
        return inspect.getdoc(module) or ""

    @property
    def summary(self) -> str:
        return self.docstring.partition("\n")[0]

    @property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.reference)

    @property
    def reference_source(self) -> str:
        return inspect.getsource(self.reference)

    def why_not(self, size_name: str, world_size: int, dtype: str) -> str | None:
        """Why this case cannot be run, in a sentence, or None if it can."""
        if size_name not in self.sizes:
            return f"problem {self.stem} has no size {size_name!r}; it has {', '.join(self.sizes)}"
        if dtype not in self.dtypes:
            return f"problem {self.stem} does not run in {dtype}; it runs in {', '.join(self.dtypes)}"
        if world_size not in self.world_sizes:
            possible = ", ".join(map(str, self.world_sizes))
            return f"problem {self.stem} does not run with {world_size} ranks; it runs with {possible}"
        return self.requires(self.sizes[size_name], world_size)

    def why_not_on_one_gpu(self, size_name: str, world_size: int) -> str | None:
        """Why so many ranks cannot share a GPU at this size, in a sentence, or None if they can."""
        fitting = self.fits_one_gpu.get(size_name)
        if fitting is None or world_size in fitting:
            return None
        return (
            f"size {size_name} of problem {self.stem} with {world_size} ranks does not fit one GPU of "
            f"{GPU_BYTES / 1e9:.0f} GB: {' or '.join(map(str, fitting))} ranks do, and any number with a GPU each"
        )

    def argument_bytes(self, size_name: str, world_size: int, dtype: str) -> int:
        """Bytes of tensor arguments on the rank with most of them, of the largest kind; nothing large is drawn for it."""
        return max(
            self._bytes_on(rank, kind, size_name, world_size, dtype)
            for rank in range(world_size)
            for kind in self.kinds or ("",)
        )

    def _bytes_on(self, rank: int, kind: str, size_name: str, world_size: int, dtype: str) -> int:
        # Small tensors are drawn outright: many operators on the meta device import sympy or torch's compiler first,
        # half a second to two at the start of every evaluation.
        device = torch.device("cpu" if size_name in ("tiny", "odd") else "meta")
        draw = Draw(
            secret=b"shape", call=0, rank=rank, world_size=world_size, size=self.sizes[size_name],
            dtype=DTYPES[dtype], device=device, layout=self.layout, kind=kind,
        )  # fmt: skip
        return sum(t.numel() * t.element_size() for t in tensors_in(self.inputs(draw)))


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """All tensors of nested lists, tuples, dicts and modules, in order; a sparse one as its indices and values."""
    if isinstance(tree, torch.Tensor):
        return [tree._indices(), tree._values()] if tree.is_sparse else [tree]
    if isinstance(tree, torch.nn.Module):
        tree = list(tree.parameters())
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        return [tensor for item in tree for tensor in tensors_in(item)]
    return []
