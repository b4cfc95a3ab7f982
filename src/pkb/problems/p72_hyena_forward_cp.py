"""Hyena's gated long convolution under context parallelism: swap sequence for channels, convolve by FFT, swap back.

Evo 2, Savanna and NeMo Hyena. The sequence of L = W * l positions is spread over the ranks, either in order or zigzag
(2 W chunks; rank r holds chunk r and chunk 2 W - 1 - r). Rank r holds x1, x2 and v (B, C, l) and, replicated, one
filter for each group of channels (num_groups, filter length) and a bias (C). An all-to-all gives it the whole
sequence for channels [r C / W, (r + 1) C / W). There, with z = x2 * v rounded to the dtype, y is the first L samples
of the circular convolution of size 2 L of z with the channel's filter (both zero-padded, a longer filter cut), in
float32, plus z * bias, rounded; the result is x1 * y, rounded. A second all-to-all returns it to this rank's
positions, transposed: (B, l, C). Up to a filter length of L + 1 this is the plain causal convolution; beyond, the
circle closes.

The products with v and x1 are local to a position: formed before and after the swaps, they halve the traffic and
change no bit. A good kernel does that, takes two channels through one complex FFT, and writes results directly to
their owners in the transposed layout.
"""

import math

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.blocks import BLOCKS
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.sharding import why_not_equal
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # local: positions of a rank; channels = groups * group_dim
    "tiny": {"batch": 1, "groups": 24, "group_dim": 2, "local": 16, "filter": 32},
    "paper": {"batch": 1, "groups": 1024, "group_dim": 1, "local": 2048, "filter": 4096},
    # Evo 2 7B, 131072 positions on 8 ranks; its long filters are one for each channel.
    "real": {"batch": 1, "groups": 4096, "group_dim": 1, "local": 16384, "filter": 131072},
    "odd": {"batch": 2, "groups": 24, "group_dim": 3, "local": 22, "filter": 37},
}
KINDS = {"zigzag": 0.75, "contiguous": 0.25}


def inputs(draw: Draw) -> Arguments:
    groups, group_dim, length = draw.size["groups"], draw.size["group_dim"], draw.size["filter"]
    channels = groups * group_dim
    shape = (draw.size["batch"], channels, draw.size["local"])
    h = draw.normal("h", (groups, length), key="all", dtype=torch.float32)
    # Filters decay at different speeds, some within a chunk, some over the whole length; each has unit energy.
    decay = draw.uniform(
        "decay", (groups, 1), math.log(1 / length), math.log(8 / length), key="all", dtype=torch.float32
    )
    envelope = torch.exp(-decay.exp() * torch.arange(length, device=draw.device))
    h = h * envelope / envelope.square().sum(dim=1, keepdim=True).sqrt()
    return {
        "x1_seq": draw.normal("x1_seq", shape),
        "x2_seq": draw.normal("x2_seq", shape),
        "v_seq": draw.normal("v_seq", shape),
        "h": h.to(draw.dtype),
        "conv_bias": draw.normal("conv_bias", (channels,), key="all"),
        "num_groups": groups,  # the shape of h, and so of the size
        "group_dim": group_dim,
        "group": draw.group("world"),
        "with_zigzag_splitting": draw.kind_of(KINDS) == "zigzag",
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Filters and bias count up and are rounded to bf16: that of group g is g nearly everywhere, and does not decay."""
    groups, group_dim, length = draw.size["groups"], draw.size["group_dim"], draw.size["filter"]
    channels = groups * group_dim
    h, bias = (
        torch.arange(count, dtype=torch.float32, device=draw.device).to(torch.bfloat16) / over
        for count, over in ((groups * length, length), (channels, channels))
    )
    return {"h": h.view(groups, length).to(draw.dtype), "conv_bias": bias.to(draw.dtype)}


def solution(
    x1_seq: torch.Tensor,
    x2_seq: torch.Tensor,
    v_seq: torch.Tensor,
    h: torch.Tensor,
    conv_bias: torch.Tensor,
    num_groups: int,
    group_dim: int,
    group: dist.ProcessGroup | None = None,
    with_zigzag_splitting: bool = True,
) -> torch.Tensor:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    batch, channels, local = x1_seq.shape
    if channels % world_size or num_groups % world_size or num_groups * group_dim != channels:
        raise ValueError(f"{num_groups} groups of {group_dim} of {channels} channels on {world_size} ranks")
    if with_zigzag_splitting and local % 2:
        raise ValueError(f"{local} positions cannot be cut into two chunks")
    own, length = channels // world_size, world_size * local

    # Where the 2 W half-blocks of the gathered sequence stand: rank r holds chunks r and 2 W - 1 - r.
    halves = [c for r in range(world_size) for c in (r, 2 * world_size - 1 - r)]
    natural = [halves.index(c) for c in range(2 * world_size)]

    def to_channels(x: torch.Tensor) -> torch.Tensor:
        """(B, C, l) of this rank's positions to (B, C / W, L) of this rank's channels."""
        send = x.reshape(batch, world_size, own, local).transpose(0, 1).contiguous()
        received = torch.empty_like(send)
        dist.all_to_all_single(received, send, group=group)
        whole = received.permute(1, 2, 0, 3).reshape(batch, own, length)
        if with_zigzag_splitting:
            whole = whole.view(batch, own, 2 * world_size, local // 2)[:, :, natural].reshape(batch, own, length)
        return whole

    def to_positions(y: torch.Tensor) -> torch.Tensor:
        """(B, C / W, L) of this rank's channels to (B, l, C) of this rank's positions."""
        if with_zigzag_splitting:
            y = y.view(batch, own, 2 * world_size, local // 2)[:, :, halves].reshape(batch, own, length)
        send = y.view(batch, own, world_size, local).permute(2, 0, 3, 1).contiguous()
        received = torch.empty_like(send)
        dist.all_to_all_single(received, send, group=group)
        return received.permute(1, 2, 0, 3).reshape(batch, local, channels)

    x1, x2, v = to_channels(x1_seq), to_channels(x2_seq), to_channels(v_seq)
    own_groups = num_groups // world_size
    own_filters = h[rank * own_groups : (rank + 1) * own_groups]
    own_bias = conv_bias[rank * own : (rank + 1) * own]

    wide = torch.promote_types(x1_seq.dtype, torch.float32)
    z = (x2 * v).to(wide)
    z_spectrum = torch.fft.rfft(z, n=2 * length)
    h_spectrum = torch.fft.rfft(own_filters.to(wide), n=2 * length).repeat_interleave(group_dim, dim=0)
    y = torch.fft.irfft(z_spectrum * h_spectrum, n=2 * length)[..., :length]
    y = y + z * own_bias.to(wide)[:, None]
    return to_positions(x1 * y.to(x1.dtype))


def baseline(
    x1_seq: torch.Tensor,
    x2_seq: torch.Tensor,
    v_seq: torch.Tensor,
    h: torch.Tensor,
    conv_bias: torch.Tensor,
    num_groups: int,
    group_dim: int,
    group: dist.ProcessGroup | None = None,
    with_zigzag_splitting: bool = True,
) -> torch.Tensor:
    """The three inputs travel in one message, each reordering is one copy, and a group's spectrum serves its channels."""
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    batch, channels, local = x1_seq.shape
    own, length = channels // world_size, world_size * local
    send = x1_seq.new_empty((world_size, 3, batch, own, local))
    for place, x in enumerate((x1_seq, x2_seq, v_seq)):
        send[:, place] = x.view(batch, world_size, own, local).transpose(0, 1)
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    parts = 2 if with_zigzag_splitting else 1  # rank r holds chunks r and 2 W - 1 - r
    halves = [c for r in range(world_size) for c in ((r, 2 * world_size - 1 - r) if parts == 2 else (r,))]
    pieces = [
        received[(at := halves.index(c)) // parts].unflatten(-1, (parts, -1))[..., at % parts, :]
        for c in range(len(halves))
    ]
    x1, x2, v = torch.cat(pieces, dim=-1)

    wide = torch.promote_types(x1.dtype, torch.float32)
    own_groups = num_groups // world_size
    filters, own_bias = h[rank * own_groups : (rank + 1) * own_groups], conv_bias[rank * own : (rank + 1) * own]
    z = (x2 * v).to(wide)
    spectrum = torch.fft.rfft(z, n=2 * length)
    spectrum.view(batch, own_groups, group_dim, -1).mul_(torch.fft.rfft(filters.to(wide), n=2 * length)[:, None])
    y = torch.fft.irfft(spectrum, n=2 * length)[..., :length].addcmul_(z, own_bias.to(wide)[:, None])
    chunks = (x1 * y.to(x1.dtype)).unflatten(-1, (len(halves), -1))

    by_rank = [halves[r * parts : (r + 1) * parts] for r in range(world_size)]
    send = torch.cat([chunks[b, :, c].t() for some in by_rank for b in range(batch) for c in some])
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    return received.view(world_size, batch, local, own).permute(1, 2, 0, 3).reshape(batch, local, channels)


def exact(
    x1_seq: torch.Tensor,
    x2_seq: torch.Tensor,
    v_seq: torch.Tensor,
    h: torch.Tensor,
    conv_bias: torch.Tensor,
    num_groups: int,
    group_dim: int,
    group: dist.ProcessGroup | None = None,
    with_zigzag_splitting: bool = True,
) -> torch.Tensor:
    """Gates before and after the swaps, and the spectra of a few filters at a time."""
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    batch, channels, local = x1_seq.shape
    own, own_groups, length = channels // world_size, num_groups // world_size, world_size * local
    wide = torch.promote_types(x1_seq.dtype, torch.float32)
    parts = 2 if with_zigzag_splitting else 1  # rank r holds chunks r and 2 W - 1 - r
    held = [c for r in range(world_size) for c in ((r, 2 * world_size - 1 - r) if parts == 2 else (r,))]
    z_seq = x2_seq.mul_(v_seq).view(batch, world_size, own_groups, group_dim, local)
    y_seq = v_seq.view(batch, world_size, own_groups, group_dim, local)
    for some in torch.arange(own_groups).chunk(BLOCKS):
        at = slice(int(some[0]), int(some[-1]) + 1)
        send = z_seq[:, :, at].transpose(0, 1).contiguous()
        received = torch.empty_like(send)
        dist.all_to_all_single(received, send, group=group)
        chunks = received.movedim(0, 3).reshape(batch, len(some), group_dim, len(held), local // parts)
        z = torch.empty_like(chunks)
        z[..., held, :] = chunks
        z = z.flatten(-2).to(wide)
        filters = h[rank * own_groups :][at].to(wide)
        spectrum = torch.fft.rfft(z, n=2 * length).mul_(torch.fft.rfft(filters, n=2 * length)[:, None])
        y = torch.fft.irfft(spectrum, n=2 * length)[..., :length]
        y += z * conv_bias[rank * own : (rank + 1) * own].view(own_groups, group_dim, 1)[at].to(wide)
        back = y.to(x1_seq.dtype).unflatten(-1, (len(held), -1))[..., held, :]
        send = back.reshape(batch, len(some), group_dim, world_size, local).movedim(3, 0).contiguous()
        dist.all_to_all_single(received, send, group=group)
        y_seq[:, :, at] = received.transpose(0, 1)
    return y_seq.view(batch, channels, local).mul_(x1_seq).transpose(1, 2).contiguous()


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, batch = world_size, size["batch"]
    own_groups, length = size["groups"] / w, w * size["local"]
    own = own_groups * size["group_dim"]
    activations = batch * size["groups"] * size["group_dim"] * size["local"]
    used_filter = own_groups * min(size["filter"], 2 * length)
    fft = 2.5 * 2 * length * math.log2(2 * length)
    return Cost.all_to_all(
        2 * activations * element_bytes,
        w,
        phases=2,
        flops=(2 * batch * own + own_groups) * fft + batch * own * 6 * length + 4 * activations,
        hbm_bytes=(4 * activations + used_filter) * element_bytes,
        note="gates before and after the swaps: two tensors travel, where the reference sends four",
    )


def requires(size: Size, world_size: int) -> str | None:
    return why_not_equal(size["groups"], "filter groups", world_size)


PROBLEM = Problem(
    id=72,
    name="hyena_forward_cp",
    source="Evo 2, Savanna and NeMo Hyena, long convolution mixer under CP",
    taxonomy=Taxonomy(
        parallelism=("cp",),
        layer="fft",
        stage=("training-forward",),
        pattern=("all-to-all",),
        system="science",
        fusable="gating, FFT convolution, bias, transposition",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    fixed={"num_groups": "the shape of h says it too"},
    kinds=KINDS,
    reference=solution,
    exact=exact,
    baseline=baseline,
    tried=(Alternative("gates multiplied before and after the swaps; what surrounds the transforms by torch.compile"),),
    cost=cost,
    compare=NormGate(tau={torch.bfloat16: 1.2e-2}),  # float32 transforms of gates that are rounded twice: 5.8e-3
    version=3,  # real has a filter for each channel
    requires=requires,
)
