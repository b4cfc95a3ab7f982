"""Two-dimensional real FFT of fields whose columns are spread over the ranks: transform, transpose, transform.

NVIDIA PhysicsNeMo's distributed rfft2, the core of spectral weather models. Rank r holds column block r of a real field,
x (B, H, N / W), and gets row block r of its spectrum, complex (B, H / W, N // 2 + 1): the same as torch.fft.rfft2 of the
whole field over the axes `dim`, cut along dim[0]. Steps: a complex FFT along dim[0] (local); the result is cut
along dim[0] into W parts, part j goes to rank j, and what arrives is joined along dim[1] in rank order; a complex FFT
along dim[1]; of which the first half is kept. s gives the lengths, to which an axis is padded with zeros or trimmed
before it is transformed, None for the axis's own; `norm` applies to each one-dimensional transform ("ortho",
"backward" or "forward").

Data are float32 or float64, whatever models compute in. A real field has a spectrum whose row H - h mirrors row h, so
half of the transposed data is enough. A good kernel stores finished columns of the first transform straight into the
peers' rows. Lengths such as 720 and 1440 are no powers of two.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Context, NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.sharding import round_up
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # both axes are rounded up to a multiple of W; with `resized`, every other call pads the rows and trims the columns
    "tiny": {"fields": 2, "rows": 24, "columns": 48, "resized": 1},
    "paper": {"fields": 16, "rows": 1024, "columns": 1024},
    "real": {"fields": 73, "rows": 720, "columns": 1440},  # ERA5 at 0.25 degrees, 73 channels
    "odd": {"fields": 3, "rows": 53, "columns": 43, "resized": 1},
}


def inputs(draw: Draw) -> Arguments:
    w = draw.world_size
    rows, columns = round_up(draw.size["rows"], w), round_up(draw.size["columns"], w)
    longer, shorter = draw.in_turn("lengths", ((0, 0), (w, 3))) if "resized" in draw.size else (0, 0)
    return {
        "x": draw.normal("x", (draw.size["fields"], rows, columns // w)),
        "s": (rows + longer, columns - shorter),
        "dim": draw.random("dim", key="all").choice(((1, 2), (-2, -1))),
        "norm": draw.random("norm", key="all").choice(("ortho", "ortho", "backward", "forward")),
        "group": draw.group("world"),
    }


def solution(
    x: torch.Tensor,
    s: tuple[int | None, ...],
    dim: tuple[int, ...],
    norm: str = "ortho",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    if x.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"real FFTs take float32 or float64, not {x.dtype}")
    world_size = dist.get_world_size(group)
    first, second = dim[0] % x.dim(), dim[1] % x.dim()
    n_first = x.shape[first] if s[0] is None else s[0]
    n_second = world_size * x.shape[second] if s[1] is None else s[1]
    if n_first % world_size:
        raise ValueError(f"{n_first} rows cannot be shared equally by {world_size} ranks")

    spectrum = torch.fft.fft(x, n=n_first, dim=first, norm=norm)
    # Parts of dim[0] to the front: piece j of the flat buffer goes to rank j. Pairs of reals: NCCL has no complex type.
    send = torch.view_as_real(spectrum).unflatten(first, (world_size, -1)).movedim(first, 0).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received.view(-1), send.view(-1), group=group)
    joined = torch.cat(torch.view_as_complex(received).unbind(0), dim=second)
    spectrum = torch.fft.fft(joined, n=n_second, dim=second, norm=norm)
    return spectrum.narrow(second, 0, n_second // 2 + 1).contiguous()


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    rows, columns = round_up(size["rows"], w), round_up(size["columns"], w)
    own = size["fields"] * rows * columns // w
    levels = (rows - 1).bit_length() + (columns - 1).bit_length()
    return Cost.all_to_all(
        own * element_bytes,
        w,
        flops=2.5 * own * levels,
        hbm_bytes=2 * own * element_bytes,
        note="a real field: half of the rows say all, where the reference sends complex numbers for all of them",
    )


@dataclass(frozen=True)
class ComplexGate:
    """Real and imaginary parts as one tensor of reals, since a conversion to a real dtype would drop the latter."""

    gate: NormGate

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        return self.gate(torch.view_as_real(truth), torch.view_as_real(output), context)


PROBLEM = Problem(
    id=59,
    name="physicsnemo_distributed_rfft",
    source="NVIDIA PhysicsNeMo, distributed rfft2",
    taxonomy=Taxonomy(
        parallelism=("geometric",),
        layer="fft",
        stage=("simulation", "training-forward"),
        pattern=("all-to-all",),
        system="science",
        fusable="one-dimensional FFTs, packing, truncation",
    ),
    sizes=SIZES,
    inputs=inputs,
    reference=solution,
    baseline_reason="two local FFTs and one exchange; Hermitian halves would need a second exchange",
    cost=cost,
    # An FFT in float32 lands at 1.6e-7; sums of products in float32 instead of butterflies need a little more.
    compare=ComplexGate(NormGate(tau={torch.float32: 2e-6})),
    dtypes=("fp32", "fp64"),
    version=2,  # lengths other than the field's own
)
