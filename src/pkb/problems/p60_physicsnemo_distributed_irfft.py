"""Inverse two-dimensional real FFT of spectra whose rows are spread over the ranks, giving fields spread by columns.

NVIDIA PhysicsNeMo's distributed irfft2, the way back from the spectrum in weather models. Rank r holds row block r of half
a spectrum, complex x (B, C, H / W, K) with K = N // 2 + 1, and gets column block r of the real field, (B, C, H, N / W):
the same as torch.fft.irfft2 of the whole over the axes `dim`, cut along dim[1]. The other half of the columns follows
from the field being real: column k >= K of row h is the conjugate of column N - k of row (H - h) mod H, which is on
another rank, so the reference gathers those columns first. Then an inverse FFT along dim[1] (local); the result is
cut along dim[1] into W parts, part j goes to rank j, and what arrives is joined along dim[0] in rank order; an inverse
FFT along dim[0]; of which the real part is the result. s = (H, N), or None for N = 2 (K - 1); `norm` applies to
each one-dimensional transform.

The gather can be avoided altogether: the real part of the transform of the given half, padded with zeros, with columns
1 to K - 1 doubled (not the last one if N is even), is the same. Row 0 mirrors itself and row h mirrors H - h, so blocks
of rows mirror with an offset of one. Lengths such as 720 and 1440 are no powers of two.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.sharding import round_up
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # both axes are rounded up to a multiple of W
    "tiny": {"batch": 1, "channels": 2, "rows": 24, "columns": 45},
    "paper": {"batch": 2, "channels": 10, "rows": 720, "columns": 1440},
    "real": {"batch": 1, "channels": 73, "rows": 720, "columns": 1440},  # ERA5 at 0.25 degrees, 73 channels
    "odd": {"batch": 2, "channels": 3, "rows": 27, "columns": 45},
}


def inputs(draw: Draw) -> Arguments:
    w = draw.world_size
    rows, columns = round_up(draw.size["rows"], w), round_up(draw.size["columns"], w)
    # The spectrum of a real field, as the forward transform leaves it; every rank makes all of it and keeps its rows.
    field = draw.normal("field", (draw.size["batch"], draw.size["channels"], rows, columns), key="all")
    part = rows // w
    spectrum = torch.fft.rfft2(field, norm="ortho")
    return {
        "x": spectrum[:, :, draw.rank * part : (draw.rank + 1) * part].clone(memory_format=torch.contiguous_format),
        # A length that 2 (K - 1) does not give back must be said.
        "s": (rows, columns) if columns % 2 or draw.random("s", key="all").random() < 0.75 else None,
        "dim": (-2, -1) if draw.even else draw.random("dim", key="all").choice(((2, 3), (-2, -1))),
        "norm": draw.random("norm", key="all").choice(("ortho", "ortho", "backward", "forward")),
        "group": draw.group("world"),
    }


def solution(
    x: torch.Tensor,
    s: tuple[int, ...] | None,
    dim: tuple[int, ...],
    norm: str = "ortho",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    first, second = dim[0] % x.dim(), dim[1] % x.dim()
    part, half = x.shape[first], x.shape[second]
    rows, columns = (world_size * part, 2 * (half - 1)) if s is None else (s[0], s[1])
    if rows != world_size * part or half != columns // 2 + 1 or columns % world_size:
        raise ValueError(
            f"{world_size} ranks with {part} rows and {half} columns of a spectrum each do not give fields "
            f"{rows} x {columns} in equal blocks of columns"
        )

    # The columns that the missing ones mirror, of all rows. Pairs of reals: NCCL has no complex type.
    given = torch.view_as_real(x.narrow(second, 1, columns - half)).contiguous()
    gathered = torch.empty(world_size * given.numel(), dtype=given.dtype, device=given.device)
    dist.all_gather_into_tensor(gathered, given.view(-1))
    mirrored = torch.cat(torch.view_as_complex(gathered.view(world_size, *given.shape)).unbind(0), dim=first)
    own_rows = torch.arange(rank * part, (rank + 1) * part, device=x.device)
    mirrored = mirrored.index_select(first, (rows - own_rows) % rows).flip(second).conj()
    spectrum = torch.cat([x, mirrored], dim=second)

    lines = torch.fft.ifft(spectrum, n=columns, dim=second, norm=norm)
    # Parts of dim[1] to the front: piece j of the flat buffer goes to rank j.
    send = torch.view_as_real(lines).unflatten(second, (world_size, -1)).movedim(second, 0).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received.view(-1), send.view(-1), group=group)
    joined = torch.cat(torch.view_as_complex(received).unbind(0), dim=first)
    return torch.fft.ifft(joined, n=rows, dim=first, norm=norm).real.contiguous()


def baseline(
    x: torch.Tensor,
    s: tuple[int, ...] | None,
    dim: tuple[int, ...],
    norm: str = "ortho",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """No gather: columns that have a mirror image count twice, the others are zeros, and the real part is the same."""
    world_size = dist.get_world_size(group)
    first, second = dim[0] % x.dim(), dim[1] % x.dim()
    half = x.shape[second]
    rows, columns = (world_size * x.shape[first], 2 * (half - 1)) if s is None else (s[0], s[1])
    times = torch.full((half,), 2.0, dtype=x.real.dtype, device=x.device)
    times[0] = 1.0
    if columns % 2 == 0:
        times[-1] = 1.0
    doubled = x * times.view(-1, *[1] * (x.dim() - 1 - second))
    lines = torch.fft.ifft(doubled, n=columns, dim=second, norm=norm)
    send = torch.view_as_real(lines).unflatten(second, (world_size, -1)).movedim(second, 0).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received.view(-1), send.view(-1), group=group)
    joined = torch.cat(torch.view_as_complex(received).unbind(0), dim=first)
    return torch.fft.ifft(joined, n=rows, dim=first, norm=norm).real.contiguous()


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    rows, columns = round_up(size["rows"], w), round_up(size["columns"], w)
    own = size["batch"] * size["channels"] * rows * columns // w
    levels = (rows - 1).bit_length() + (columns - 1).bit_length()
    return Cost.all_to_all(
        own * element_bytes,
        w,
        flops=2.5 * own * levels,
        hbm_bytes=2 * own * element_bytes,
        note="without the reference's gather, and with half of the data it transposes: the spectrum is that of a real field",
    )


PROBLEM = Problem(
    id=60,
    name="physicsnemo_distributed_irfft",
    source="NVIDIA PhysicsNeMo, distributed irfft2",
    taxonomy=Taxonomy(
        parallelism=("geometric",),
        layer="fft",
        stage=("simulation", "training-forward"),
        pattern=("all-gather", "all-to-all"),
        system="science",
        fusable="conjugate mirror, one-dimensional inverse FFTs",
    ),
    sizes=SIZES,
    inputs=inputs,
    reference=solution,
    baseline=baseline,
    tried=(Alternative("rows first: three exchanges of half as much, for transforms of half spectra", us=4581),),
    cost=cost,
    # An FFT in float32 lands at 1.3e-7; sums of products in float32 instead of butterflies need a little more.
    compare=NormGate(tau={torch.float32: 2e-6}),
    truth="native",  # complex arguments are not widened
    dtypes=("fp32", "fp64"),
    version=2,  # with three ranks an odd number of columns at `tiny`
)
