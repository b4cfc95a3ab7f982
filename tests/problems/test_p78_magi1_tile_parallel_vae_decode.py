"""Problem 78, tiles decoded in parallel: interpolation by matrices, blending row by row."""

import math
from typing import Any

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs


def upsampling(length: int, factor: int) -> torch.Tensor:
    matrix = torch.zeros(length * factor, length, dtype=torch.float64)
    for target in range(length * factor):
        place = max((target + 0.5) / factor - 0.5, 0.0)
        low = int(place)
        matrix[target, low] += 1 - (place - low)
        matrix[target, min(low + 1, length - 1)] += place - low
    return matrix


def finished(raw: dict[Any, torch.Tensor], axes: list[Any], tile: tuple[int, int, int]) -> torch.Tensor:
    current = raw[tile].clone()
    for axis, (length, overlap, factor) in enumerate(axes):
        if tile[axis]:
            neighbour = list(tile)
            neighbour[axis] -= 1
            before, now = raw[tuple(neighbour)].movedim(1 + axis, 0), current.movedim(1 + axis, 0)
            extent = min(len(before), len(now), int(length * factor * overlap))
            for i in range(extent):
                now[i] = before[len(before) - extent + i] * (1 - i / extent) + now[i] * (i / extent)
    t, h, w = (length * factor - int(length * factor * overlap) for length, overlap, factor in axes)
    return current[:, :t, :h, :w]


def tile_decode(ranks: list[Arguments]) -> list[Outputs]:
    one = ranks[0]
    space = one["spatial_upsample"] * one["sr_ratio"]
    frames = one["tile_latent_min_length"] + one["first_frame_as_image"]
    axes = [  # tile, overlap, factor
        (frames, one["temporal_tile_overlap_factor"], one["temporal_upsample"]),
        (one["tile_latent_min_height"], one["spatial_tile_overlap_factor"], space),
        (one["tile_latent_min_width"], one["spatial_tile_overlap_factor"], space),
    ]
    spans = []
    for (tile, overlap, _), size in zip(axes, one["z"].shape[2:], strict=True):
        step = int(tile * (1 - overlap))
        spans.append([(start, min(start + tile, size)) for start in range(0, size, step)])
    every = torch.cartesian_prod(*(torch.arange(len(s)) for s in spans)).tolist()
    latents = [math.prod(spans[a][i][1] - spans[a][i][0] for a, i in enumerate(tile)) for tile in every]
    order = sorted(range(len(every)), key=lambda n: (-latents[n], n))
    raw = {}
    for place, n in enumerate(order):
        z = ranks[place % len(ranks)]["z"].double()[0]
        (t0, t1), (h0, h1), (w0, w1) = (spans[a][i] for a, i in enumerate(every[n]))
        piece = z[:, t0:t1, h0:h1, w0:w1]
        piece = torch.stack([piece[c % len(piece)] for c in range(3)])
        up = [upsampling(piece.shape[1 + a], axes[a][2]) for a in range(3)]
        raw[tuple(every[n])] = torch.einsum("ctij,Tt,Ii,Jj->cTIJ", piece, *up)
    rows = []
    for a in range(len(spans[0])):
        row = []
        for b in range(len(spans[1])):
            row.append(torch.cat([finished(raw, axes, (a, b, c)) for c in range(len(spans[2]))], dim=3))
        rows.append(torch.cat(row, dim=2))
    return [[torch.cat(rows, dim=1)[None]] for _ in ranks]


class TestModel(ModelTests):
    spec = Spec(
        78,
        tile_decode,
        results=(torch.bfloat16,),
        honest=0.85,
        spoilt=1.2,
        calls=(0, 1),
        widened_sizes=("odd",),
    )
