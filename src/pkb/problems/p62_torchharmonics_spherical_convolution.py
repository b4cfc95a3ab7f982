"""Convolution on the sphere whose grid is cut by latitude and longitude: swap, contract, sum, swap back, mix.

torch-harmonics' DistributedDiscreteContinuousConvS2, forward. Ranks form a grid: consecutive ranks (azimuth group)
share latitudes and split longitudes, strided ranks (polar group) split latitudes. Rank r holds x (B, C, own latitudes,
own longitudes). An all-to-all in the azimuth group trades channels for whole circles of latitude. There the filter
`psi` (K, all output latitudes, own input latitudes * all longitudes), a sparse COO tensor, is rotated around the axis:
y[b, c, k, t, p] = sum over (h, w) of psi[k, t, h, w] * x[b, c, h, (w + p * s) mod nlon_in], s = nlon_in / nlon_out. Every
polar rank has a part of the sum for all output latitudes; the parts are added in float32 and each keeps its own
latitudes. A second all-to-all returns to own longitudes and all channels, and `weight` (out channels, C / groups, K)
and `bias` mix channels and filters. Chunks of n over p parts are ceil(n / p) long and the last takes the rest; were
nothing left, floor(n / p). psi belongs to a polar index; weight and bias are replicated (bias is
never None here).

The reference hands every rank the whole sum and keeps a part. Filters are local: a row of psi has entries near its own
latitude only, so that just the latitudes near a border need a sum over ranks, or a halo of inputs. Weights being equal
everywhere, a good kernel may mix channels first and add K times less. It walks the few entries of psi, keeps a circle of
x on chip, and sends finished latitudes to their owner while others are computed.
"""

import math

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # entries: of psi for each filter and output latitude; reach: how many latitudes and longitudes away they may be
    "tiny": {
        "batch": 2, "channels": 4, "out": 4, "groups": 1, "kernel": 3, "entries": 8, "reach": 2,
        "nlat_in": 16, "nlat_out": 8, "nlon_in": 32, "nlon_out": 16,
    },
    "paper": {
        "batch": 32, "channels": 8, "out": 8, "groups": 1, "kernel": 3, "entries": 8, "reach": 3,
        "nlat_in": 128, "nlat_out": 128, "nlon_in": 256, "nlon_out": 256,
    },
    "real": {  # ERA5 at half a degree, 4 x 2 ranks
        "batch": 1, "channels": 256, "out": 256, "groups": 1, "kernel": 9, "entries": 32, "reach": 5,
        "nlat_in": 360, "nlat_out": 360, "nlon_in": 720, "nlon_out": 720,
    },
    "odd": {
        "batch": 3, "channels": 6, "out": 10, "groups": 2, "kernel": 5, "entries": 6, "reach": 2,
        "nlat_in": 19, "nlat_out": 13, "nlon_in": 69, "nlon_out": 23,
    },
}  # fmt: skip

LONGITUDES_AT_ONCE = 90
"""Of the baseline: the indices of so many turned filters take a hundred megabytes at `real`."""


def chunks_of(extent: int, parts: int) -> list[int]:
    for length in (-(-extent // parts), extent // parts):
        if extent - length * (parts - 1) > 0:
            return [length] * (parts - 1) + [extent - length * (parts - 1)]
    raise ValueError(f"{extent} cannot be cut into {parts} parts")


def draw_filter(draw: Draw, own_latitudes: int) -> torch.Tensor:
    """A local filter, as a DISCO kernel is: a few points of the square of `reach` around the output's latitude, one in each
    of as many equal stretches of it. This rank's part are those points that lie on its latitudes."""
    size, (polar, parts) = draw.size, draw.coordinate("polar")
    nlat, nlon, reach, entries = size["nlat_in"], size["nlon_in"], size["reach"], size["entries"]
    shape = (size["kernel"], size["nlat_out"], own_latitudes * nlon)
    where, side = (*shape[:2], entries), 2 * reach + 1
    stretch = side * side // entries
    value = draw.normal("values", where, scale=entries**-0.5, key="all")
    point = draw.integers("points", where, 0, stretch, key="all")
    point = point + torch.arange(entries, device=draw.device) * stretch
    k, t, _ = torch.meshgrid(*(torch.arange(n, device=draw.device) for n in where), indexing="ij")
    centre = ((2 * t + 1) * nlat // (2 * size["nlat_out"])).clamp(reach, nlat - 1 - reach)
    first = sum(chunks_of(nlat, parts)[:polar])
    latitude = centre + point // side - reach - first
    column = latitude * nlon + (point % side - reach) % nlon
    indices, values = torch.stack([k, t, column]).flatten(1), value.flatten()
    if draw.device.type == "meta":  # as if all points were this rank's
        return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=True, check_invariants=False)
    mine = ((latitude >= 0) & (latitude < own_latitudes)).flatten()
    return torch.sparse_coo_tensor(indices[:, mine], values[mine], shape, check_invariants=False).coalesce()


def inputs(draw: Draw) -> Arguments:
    size = draw.size
    (azimuth, az), (polar, pol) = draw.coordinate("azimuth"), draw.coordinate("polar")
    latitudes, longitudes = chunks_of(size["nlat_in"], pol)[polar], chunks_of(size["nlon_in"], az)[azimuth]
    fan_in = size["channels"] // size["groups"] * size["kernel"]
    weight_shape = (size["out"], size["channels"] // size["groups"], size["kernel"])
    return {
        "x": draw.normal("x", (size["batch"], size["channels"], latitudes, longitudes)),
        "psi": draw_filter(draw, latitudes),
        "weight": draw.normal("weight", weight_shape, scale=fan_in**-0.5, key="all"),
        "groups": size["groups"],
        "nlon_out": size["nlon_out"],
        "nlon_in": size["nlon_in"],
        "azimuth_group": draw.group("azimuth"),
        "polar_group": draw.group("polar"),
        "bias": draw.normal("bias", (size["out"],), key="all"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Every rank has its own weight and bias, unscaled, and its own small values at the places that psi has."""
    size, psi = draw.size, drawn["psi"]
    assert isinstance(psi, torch.Tensor)
    values = draw.normal("values, published", tuple(psi._values().shape), scale=0.05)
    weight_shape = (size["out"], size["channels"] // size["groups"], size["kernel"])
    return {
        "psi": torch.sparse_coo_tensor(psi._indices(), values, psi.shape, is_coalesced=True, check_invariants=False),
        "weight": draw.normal("weight, published", weight_shape),
        "bias": draw.normal("bias, published", (size["out"],)),
    }


def solution(
    x: torch.Tensor,
    psi: torch.Tensor,
    weight: torch.Tensor,
    groups: int,
    nlon_out: int,
    nlon_in: int,
    azimuth_group: dist.ProcessGroup | None = None,
    polar_group: dist.ProcessGroup | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    azimuth, az = dist.get_rank(azimuth_group), dist.get_world_size(azimuth_group)
    polar, pol = dist.get_rank(polar_group), dist.get_world_size(polar_group)

    def cut(extent: int, parts: int) -> list[int]:
        length = -(-extent // parts)
        if extent - length * (parts - 1) <= 0:
            length = extent // parts
        return [length] * (parts - 1) + [extent - length * (parts - 1)]

    batch, channels, nlat, nlon = x.shape
    kernel, nlat_out, columns = psi.shape
    out_channels = weight.shape[0]
    if nlon_in % nlon_out or channels % groups or out_channels % groups:
        raise ValueError(
            f"{nlon_out} of {nlon_in} longitudes, {groups} groups of {channels} and {out_channels} channels"
        )
    if nlon != cut(nlon_in, az)[azimuth] or columns != nlat * nlon_in:
        raise ValueError(f"x {tuple(x.shape)} and psi {tuple(psi.shape)} do not fit {nlon_in} longitudes on {az} ranks")

    # Trade channels for longitudes: afterwards this rank has some channels on whole circles.
    own_channels, in_longitudes, out_longitudes = cut(channels, az), cut(nlon_in, az), cut(nlon_out, az)
    c = own_channels[azimuth]
    if az > 1:
        send = torch.cat([part.reshape(-1) for part in x.split(own_channels, dim=1)])
        received_sizes = [batch * c * nlat * n for n in in_longitudes]
        received = send.new_empty(sum(received_sizes))
        send_sizes = [batch * n * nlat * nlon for n in own_channels]
        dist.all_to_all_single(received, send, received_sizes, send_sizes, group=azimuth_group)
        parts = zip(received.split(received_sizes), in_longitudes, strict=True)
        x = torch.cat([part.view(batch, c, nlat, n) for part, n in parts], dim=-1)

    # For every output longitude the same few entries of psi, at turned input longitudes.
    entries = psi if psi.is_sparse else psi.to_sparse()
    (k, t, column), value = entries.coalesce().indices(), entries.coalesce().values()
    latitude, longitude = column // nlon_in, column % nlon_in
    points = x.permute(2, 3, 0, 1).reshape(nlat * nlon_in, batch * c)
    y = points.new_zeros((nlon_out, kernel * nlat_out, batch * c))
    for first in range(0, nlon_out, 16):
        some = torch.arange(first, min(first + 16, nlon_out), device=x.device)
        turned = (longitude + some[:, None] * (nlon_in // nlon_out)) % nlon_in
        terms = (
            points[latitude * nlon_in + turned] * value[:, None]
        )  # (some output longitudes, entries, batch * channels)
        y[first : first + 16].index_add_(1, k * nlat_out + t, terms)

    # Every polar rank has added its input latitudes to all output latitudes; each keeps its own.
    y = y.view(nlon_out, kernel, nlat_out, batch, c)
    if pol > 1:
        y = y.to(torch.promote_types(x.dtype, torch.float32))
        dist.all_reduce(y, op=dist.ReduceOp.SUM, group=polar_group)
        y = y.split(cut(nlat_out, pol), dim=2)[polar].to(x.dtype)
    y = y.permute(3, 4, 1, 2, 0)  # (batch, own channels, kernel, own output latitudes, all output longitudes)

    # And back: all channels on this rank's longitudes.
    if az > 1:
        rest = kernel * y.shape[3] * out_longitudes[azimuth] * batch
        send = torch.cat([part.reshape(-1) for part in y.split(out_longitudes, dim=-1)])
        received_sizes = [n * rest for n in own_channels]
        received = send.new_empty(sum(received_sizes))
        send_sizes = [batch * c * kernel * y.shape[3] * n for n in out_longitudes]
        dist.all_to_all_single(received, send, received_sizes, send_sizes, group=azimuth_group)
        shape = (kernel, y.shape[3], out_longitudes[azimuth])
        parts = zip(received.split(received_sizes), own_channels, strict=True)
        y = torch.cat([part.view(batch, n, *shape) for part, n in parts], dim=1)

    grouped = y.reshape(batch, groups, channels // groups, *y.shape[2:])
    mixing = weight.reshape(groups, out_channels // groups, channels // groups, kernel)
    out = torch.einsum("bgckyx,gock->bgoyx", grouped, mixing).reshape(batch, out_channels, *y.shape[3:])
    if bias is not None:
        out = out + bias[:, None, None]
    return out.contiguous()


def baseline(
    x: torch.Tensor,
    psi: torch.Tensor,
    weight: torch.Tensor,
    groups: int,
    nlon_out: int,
    nlon_in: int,
    azimuth_group: dist.ProcessGroup | None = None,
    polar_group: dist.ProcessGroup | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Some output longitudes at a time are one sparse matrix, the filter turned to each of them, and a product applies it; the
    sum over the polar ranks is scattered, since each keeps its latitudes only."""
    azimuth, az = dist.get_rank(azimuth_group), dist.get_world_size(azimuth_group)
    polar, pol = dist.get_rank(polar_group), dist.get_world_size(polar_group)
    (batch, channels, nlat, nlon), (kernel, nlat_out, _) = x.shape, psi.shape
    own_channels, in_longitudes = chunks_of(channels, az), chunks_of(nlon_in, az)
    c = own_channels[azimuth]
    if az > 1:
        send = torch.cat([part.reshape(-1) for part in x.split(own_channels, dim=1)])
        received_sizes, send_sizes = (
            [batch * c * nlat * n for n in in_longitudes],
            [batch * n * nlat * nlon for n in own_channels],
        )
        received = send.new_empty(sum(received_sizes))
        dist.all_to_all_single(received, send, received_sizes, send_sizes, group=azimuth_group)
        parts = zip(received.split(received_sizes), in_longitudes, strict=True)
        x = torch.cat([part.view(batch, c, nlat, n) for part, n in parts], dim=-1)

    entries = (psi if psi.is_sparse else psi.to_sparse()).coalesce()
    (k, t, column), value = entries.indices(), entries.values()
    longitude, rows = column % nlon_in, kernel * nlat_out
    starts = torch.bincount(k * nlat_out + t, minlength=rows).cumsum(0)  # entries are sorted by row
    points = x.permute(2, 3, 0, 1).reshape(nlat * nlon_in, batch * c)
    y = points.new_empty((nlon_out, rows, batch * c))
    for first in range(0, nlon_out, LONGITUDES_AT_ONCE):
        some = torch.arange(first, min(first + LONGITUDES_AT_ONCE, nlon_out), device=x.device)
        turned = (longitude + some[:, None] * (nlon_in // nlon_out)) % nlon_in + (column - longitude)
        offsets = torch.arange(len(some), device=x.device)[:, None] * value.numel()
        crow = torch.cat([starts.new_zeros(1), (starts + offsets).flatten()])
        matrix = torch.sparse_csr_tensor(
            crow.int(),
            turned.flatten().int(),
            value.repeat(len(some)),
            (len(some) * rows, len(points)),
            check_invariants=False,
        )
        y[first : first + len(some)] = torch.sparse.mm(matrix, points).view(len(some), rows, -1)

    y = y.view(nlon_out, kernel, nlat_out, batch, c)
    if pol > 1:
        cuts = chunks_of(nlat_out, pol)
        send = torch.nn.functional.pad(y.movedim(2, 0), (0, 0) * 4 + (0, pol * cuts[0] - nlat_out)).contiguous()
        own = send.new_empty((cuts[0], *send.shape[1:]))
        dist.reduce_scatter_tensor(own, send, op=dist.ReduceOp.SUM, group=polar_group)
        y = own[: cuts[polar]].movedim(0, 2)
    y = y.permute(3, 4, 1, 2, 0)  # (batch, own channels, kernel, own output latitudes, all output longitudes)

    if az > 1:
        out_longitudes = chunks_of(nlon_out, az)
        shape = (kernel, y.shape[3], out_longitudes[azimuth])
        send = torch.cat([part.reshape(-1) for part in y.split(out_longitudes, dim=-1)])
        received_sizes = [batch * n * math.prod(shape) for n in own_channels]
        send_sizes = [batch * c * kernel * y.shape[3] * n for n in out_longitudes]
        received = send.new_empty(sum(received_sizes))
        dist.all_to_all_single(received, send, received_sizes, send_sizes, group=azimuth_group)
        parts = zip(received.split(received_sizes), own_channels, strict=True)
        y = torch.cat([part.view(batch, n, *shape) for part, n in parts], dim=1)
    grouped = y.reshape(batch, groups, channels // groups, *y.shape[2:])
    mixing = weight.reshape(groups, -1, channels // groups, kernel)
    out = torch.einsum("bgckyx,gock->bgoyx", grouped, mixing).reshape(batch, -1, *y.shape[3:])
    return out.contiguous() if bias is None else out.add(bias[:, None, None]).contiguous()


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, az = world_size, 1 if world_size % 2 else 2
    pol, batch, kernel = w // az, size["batch"], size["kernel"]
    own_channels = size["channels"] / az
    entries = size["entries"] * kernel * size["nlat_out"] / pol
    x = batch * size["channels"] * size["nlat_in"] * size["nlon_in"] / w
    circles = batch * own_channels * kernel * size["nlat_out"] * size["nlon_out"]
    out = batch * size["out"] * size["nlat_out"] * size["nlon_out"] / w
    first, second = (az - 1) / az * x * element_bytes, (az - 1) / az * circles / pol * element_bytes
    # Filters reach over the border between two ranks' latitudes by that many output latitudes, from either side.
    reach = size["reach"] * size["nlat_out"] / size["nlat_in"]
    partial_sums = (pol - 1) / pol * min(1.0, reach / size["nlat_out"]) * circles * 4
    mixing = 2 * size["channels"] / size["groups"] * kernel * out
    return Cost(
        flops=2 * entries * batch * own_channels * size["nlon_out"] + mixing,
        hbm_bytes=(x + out) * element_bytes + entries * (24 + element_bytes),
        link_sent_bytes=first + partial_sums + second,
        link_received_bytes=first + partial_sums + second,
        phases=2 * int(az > 1) + int(pol > 1),
        note="only sums near a border of latitudes travel, where the reference hands all of them to every rank; less still if "
        "channels are mixed first",
        # Every rank's x and filter, sent once to all by multicast: each then computes its own outputs.
        least_link_bytes=min(
            first + partial_sums + second, x * element_bytes + entries * (8 + element_bytes) if w > 1 else 0
        ),
    )


PROBLEM = Problem(
    id=62,
    name="torchharmonics_spherical_convolution",
    source="torch-harmonics DistributedDiscreteContinuousConvS2",
    taxonomy=Taxonomy(
        parallelism=("geometric",),
        layer="convolution",
        stage=("training-forward",),
        pattern=("all-to-all", "all-reduce"),
        system="science",
        fusable="sparse contraction over the sphere, channel mixing",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    tried=(Alternative("channels mixed before they are summed, for output latitudes that the filter reaches"),),
    cost=cost,
    compare=NormGate(tau={torch.float32: 1e-5}),
    layout="polar_azimuth",
    dtypes=("fp32", "fp64"),  # upstream: float32 always
    version=3,  # three input longitudes for an output one at `odd`, where `tiny` has two
)
