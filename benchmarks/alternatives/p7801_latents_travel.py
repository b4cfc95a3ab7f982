"""78: latents travel instead of decoded tiles, and a rank decodes the edges of its tiles' neighbours itself; a blend is rounded
once, and tiles are copied to their places at once."""

import itertools
from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get

Tile = tuple[int, ...]


def alternative(
    z: torch.Tensor,
    tile_latent_min_length: int,
    tile_latent_min_height: int,
    tile_latent_min_width: int,
    spatial_tile_overlap_factor: float,
    temporal_tile_overlap_factor: float,
    spatial_upsample: int,
    temporal_upsample: int,
    sr_ratio: int = 1,
    first_frame_as_image: bool = False,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    lengths = (tile_latent_min_length + int(first_frame_as_image), tile_latent_min_height, tile_latent_min_width)
    overlaps = (temporal_tile_overlap_factor, spatial_tile_overlap_factor, spatial_tile_overlap_factor)
    scales = (temporal_upsample, spatial_upsample * sr_ratio, spatial_upsample * sr_ratio)
    strides = [int(length * (1 - overlap)) for length, overlap in zip(lengths, overlaps, strict=True)]
    blends = [int(n * scale * overlap) for n, scale, overlap in zip(lengths, scales, overlaps, strict=True)]
    kept = [n * scale - blend for n, scale, blend in zip(lengths, scales, blends, strict=True)]
    # By axis, how many latents the tiles cover, and how many positions of the result they fill.
    covers = [
        [min(n, size - start) for start in range(0, size, stride)]
        for n, size, stride in zip(lengths, z.shape[2:], strides, strict=True)
    ]
    fills = [[min(n * s, most) for n in axis] for axis, s, most in zip(covers, scales, kept, strict=True)]
    tiles: list[Tile] = list(itertools.product(*(range(len(axis)) for axis in covers)))

    def shape(tile: Tile, of: list[list[int]]) -> tuple[int, ...]:
        return (3, *(axis[i] for axis, i in zip(of, tile, strict=True)))

    def elements(tile: Tile, of: list[list[int]]) -> int:
        return torch.Size(shape(tile, of)).numel()

    by_size = sorted(tiles, key=lambda tile: -elements(tile, covers))
    owned = [by_size[owner::world_size] for owner in range(world_size)]

    def gather(mine: list[torch.Tensor], of: list[list[int]], dtype: torch.dtype) -> dict[Tile, torch.Tensor]:
        counts = [[elements(tile, of) for tile in some] for some in owned]
        longest = max(map(sum, counts))
        received = torch.empty((world_size, longest), dtype=dtype, device=z.device)
        for place, tile in zip(received[rank].split([*counts[rank], longest - sum(counts[rank])]), mine, strict=False):
            place.view(tile.shape).copy_(tile)
        dist.all_gather_into_tensor(received.view(-1), received[rank], group=group)
        return {
            tile: piece.view(shape(tile, of))
            for message, some, own in zip(received, owned, counts, strict=True)
            for tile, piece in zip(some, message.split([*own, longest - sum(own)]), strict=False)
        }

    def decoded(latent: torch.Tensor) -> torch.Tensor:
        size = [n * scale for n, scale in zip(latent.shape[1:], scales, strict=True)]
        wide = latent[None].to(torch.float32)
        video = torch.nn.functional.interpolate(wide, size=size, mode="trilinear", align_corners=False)
        return video[0].to(torch.bfloat16)

    own_latents = []
    for tile in owned[rank]:
        latent = z[0].repeat(-(-3 // z.shape[1]), 1, 1, 1)[:3] if z.shape[1] < 3 else z[0, :3]
        for dim, (i, covered, stride) in enumerate(zip(tile, covers, strides, strict=True), start=1):
            latent = latent.narrow(dim, i * stride, covered[i])
        own_latents.append(latent)
    latents = gather(own_latents, covers, z.dtype)

    blended = []
    for tile in owned[rank]:
        current = decoded(latents[tile])
        for axis, scale in enumerate(scales):
            if tile[axis] == 0 or not blends[axis]:
                continue
            before, dim = latents[tuple(i - (a == axis) for a, i in enumerate(tile))], axis + 1
            extent = min(before.shape[dim] * scale, current.shape[dim], blends[axis])
            needed = min(before.shape[dim], -(-extent // scale) + 1)  # one more: the first is cut off at its edge
            last = decoded(before.narrow(dim, before.shape[dim] - needed, needed))
            last, first = last.narrow(dim, last.shape[dim] - extent, extent), current.narrow(dim, 0, extent)
            fade_in = (torch.arange(extent, device=z.device) / extent).view(-1, *[1] * (3 - dim))
            first.copy_(torch.lerp(last.float(), first.float(), fade_in))
        blended.append(current[:, : kept[0], : kept[1], : kept[2]])
    final = gather(blended, fills, torch.bfloat16)

    ends = [[0, *itertools.accumulate(axis)] for axis in fills]
    out = torch.empty((3, *(axis[-1] for axis in ends)), dtype=torch.bfloat16, device=z.device)
    for (a, b, c), piece in final.items():
        place = out[:, ends[0][a] : ends[0][a + 1], ends[1][b] : ends[1][b + 1], ends[2][c] : ends[2][c + 1]]
        place.copy_(piece)
    return out[None]


PROBLEM = replace(get(78), id=7801, name="latents_travel", baseline=alternative)
