"""62: a rank mixes what it has of the channels before anything is summed over the ranks, and computes nothing for output
latitudes that its filter does not reach."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.p62_torchharmonics_spherical_convolution import LONGITUDES_AT_ONCE, chunks_of


def alternative(
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
    (batch, channels, nlat, nlon), (kernel, nlat_out, _), out = x.shape, psi.shape, weight.shape[0]
    own_channels, in_longitudes = chunks_of(channels, az), chunks_of(nlon_in, az)
    latitudes, longitudes = chunks_of(nlat_out, pol), chunks_of(nlon_out, az)
    if (
        latitudes[-1] > latitudes[0] or longitudes[-1] > longitudes[0]
    ):  # for blocks of equal length, the first must be the longest
        reference = get(62).reference
        return reference(x, psi, weight, groups, nlon_out, nlon_in, azimuth_group, polar_group, bias)  # type: ignore[no-any-return]
    c, before = own_channels[azimuth], sum(own_channels[:azimuth])
    if az > 1:
        send = torch.cat([part.reshape(-1) for part in x.split(own_channels, dim=1)])
        received_sizes = [batch * c * nlat * n for n in in_longitudes]
        received = send.new_empty(sum(received_sizes))
        send_sizes = [batch * n * nlat * nlon for n in own_channels]
        dist.all_to_all_single(received, send, received_sizes, send_sizes, group=azimuth_group)
        parts = zip(received.split(received_sizes), in_longitudes, strict=True)
        x = torch.cat([part.view(batch, c, nlat, n) for part, n in parts], dim=-1)

    # Zero between channels of different groups.
    mixing = weight.new_zeros((groups, out // groups, groups, channels // groups, kernel))
    mixing.diagonal(dim1=0, dim2=2).copy_(weight.view(groups, out // groups, -1, kernel).movedim(0, -1))
    own_mixing = mixing.view(out, channels, kernel)[:, before : before + c].permute(2, 1, 0).reshape(kernel * c, out)

    entries = (psi if psi.is_sparse else psi.to_sparse()).coalesce()
    (k, t, column), value = entries.indices(), entries.values()
    first_t, last_t = torch.stack([t.min(), t.max()]).tolist() if value.numel() else (0, 0)
    longitude, span = column % nlon_in, last_t - first_t + 1
    starts = torch.bincount(k * span + t - first_t, minlength=kernel * span).cumsum(0)  # entries are sorted by row
    points = x.permute(2, 3, 0, 1).reshape(nlat * nlon_in, batch * c)
    sums = points.new_zeros((pol * latitudes[0], az * longitudes[0], batch, out))
    for first in range(0, nlon_out, LONGITUDES_AT_ONCE):
        some = torch.arange(first, min(first + LONGITUDES_AT_ONCE, nlon_out), device=x.device)
        turned = (longitude + some[:, None] * (nlon_in // nlon_out)) % nlon_in + (column - longitude)
        offsets = torch.arange(len(some), device=x.device)[:, None] * value.numel()
        crow = torch.cat([starts.new_zeros(1), (starts + offsets).flatten()])
        shape = (len(some) * kernel * span, len(points))
        matrix = torch.sparse_csr_tensor(
            crow.int(), turned.flatten().int(), value.repeat(len(some)), shape, check_invariants=False
        )
        y = torch.sparse.mm(matrix, points).view(len(some), kernel, span, batch, c).permute(2, 0, 3, 1, 4)
        place = sums[first_t : last_t + 1, first : first + len(some)]
        place.copy_(torch.matmul(y.reshape(span, len(some), batch, kernel * c), own_mixing))

    if pol > 1:
        own = sums.new_empty((latitudes[0], *sums.shape[1:]))
        dist.reduce_scatter_tensor(own, sums, op=dist.ReduceOp.SUM, group=polar_group)
        sums = own
    if az > 1:
        send = sums.unflatten(1, (az, -1)).movedim(1, 0).contiguous()
        sums = send.new_empty(send.shape[1:])
        dist.reduce_scatter_tensor(sums, send.flatten(0, 1), op=dist.ReduceOp.SUM, group=azimuth_group)
    sums = sums[: latitudes[polar], : longitudes[azimuth]]
    return (sums if bias is None else sums + bias).permute(2, 3, 0, 1).contiguous()


PROBLEM = replace(get(62), id=6201, name="channels_mixed_first", baseline=alternative)
