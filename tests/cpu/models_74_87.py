"""What problems 74-81 and 83-87 compute, in float64 and one process: from the arguments of all ranks to all outputs.

Written from the definitions and by other means than the references: recurrences position by position, a convolution as a
sum over kernel offsets, interpolation by matrices, Newton-Schulz steps on singular values, rows filtered one by one.
"""

import math
from typing import Any

import torch

from pkb.problems.filtered_logits import CLEARANCE

Arguments = dict[str, Any]
Outputs = list[torch.Tensor]


def joined(ranks: list[Arguments], name: str, dim: int) -> torch.Tensor:
    return torch.cat([arguments[name].double() for arguments in ranks], dim=dim)


def unit(x: torch.Tensor) -> torch.Tensor:
    return x / (x * x).sum(-1, keepdim=True).sqrt()


def delta_rule(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, decay: torch.Tensor, rate: torch.Tensor
) -> torch.Tensor:
    """(B, T, H, size), decay (B, T, H, key size), rate (B, T, H), one position after another."""
    batch, tokens, heads, key = q.shape
    state = torch.zeros(batch, heads, key, v.shape[-1], dtype=torch.float64)
    outputs = []
    for t in range(tokens):
        state = decay[:, t, :, :, None] * state
        surprise = v[:, t] - torch.einsum("bhk,bhkv->bhv", k[:, t], state)
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], rate[:, t, :, None] * surprise)
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state))
    return torch.stack(outputs, dim=1)


def kimi_delta_attention(ranks: list[Arguments]) -> list[Outputs]:
    tp = 2 if len(ranks) >= 4 and len(ranks) % 2 == 0 else 1
    total: torch.Tensor | None = None
    for member in range(tp):
        own = ranks[member::tp]
        q, k, v, g, beta = (joined(own, name, 1) for name in ("q", "k", "v", "g", "beta"))
        bias, speed = own[0]["dt_bias"].double().view(q.shape[2], q.shape[3]), own[0]["a_log"].double().exp()
        decay = torch.exp(-5 / (1 + torch.exp(-speed[:, None] * (g + bias))))
        out = delta_rule(unit(q) / math.sqrt(q.shape[-1]), unit(k), v, decay=decay, rate=1 / (1 + torch.exp(-beta)))
        total = out if total is None else total + out
    assert total is not None
    return [[block] for block in total.chunk(len(ranks) // tp, dim=1) for _ in range(tp)]


def gated_deltanet(ranks: list[Arguments]) -> list[Outputs]:
    q, k, v, gate, beta = (joined(ranks, name, 1) for name in ("q", "k", "v", "gate", "beta"))
    a_log, dt_bias = joined(ranks, "a_log", 0), joined(ranks, "dt_bias", 0)
    alpha = torch.exp(-a_log.exp() * torch.log1p(torch.exp(gate + dt_bias)))
    source = [head * q.shape[2] // v.shape[2] for head in range(v.shape[2])]
    q, k = unit(q)[:, :, source] / math.sqrt(q.shape[-1]), unit(k)[:, :, source]
    out = delta_rule(q, k, v, decay=alpha[..., None].expand_as(q), rate=beta)
    return [[block] for block in out.chunk(len(ranks), dim=1)]


def triple(value: int | tuple[int, int, int]) -> tuple[int, int, int]:
    return (value, value, value) if isinstance(value, int) else value


def convolve(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> torch.Tensor:
    """Any number of axes: a sum over the offsets of the kernel."""
    axes = len(stride)
    for axis in range(axes):
        zeros = list(x.shape)
        zeros[2 + axis] = padding[axis]
        x = torch.cat([x.new_zeros(zeros), x, x.new_zeros(zeros)], dim=2 + axis)
    kernel = weight.shape[2:]
    lengths = [(x.shape[2 + a] - dilation[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in range(axes)]
    out = x.new_zeros(x.shape[0], weight.shape[0], *lengths)
    for offset in torch.cartesian_prod(*(torch.arange(n) for n in kernel)).tolist():
        part = x
        for a in range(axes):
            index = offset[a] * dilation[a] + stride[a] * torch.arange(lengths[a])
            part = part.index_select(2 + a, index)
        out += torch.einsum("bc...,oc->bo...", part, weight[(slice(None), slice(None), *offset)])
    return out


def conv3d(ranks: list[Arguments]) -> list[Outputs]:
    first = ranks[0]
    groups = first["groups"]
    parts = []
    for group in range(groups):
        total: torch.Tensor | float = 0.0
        for arguments in ranks:
            x = arguments["input"].double().chunk(groups, dim=1)[group]
            weight = arguments["weight"].double().chunk(groups, dim=0)[group]
            shape = {name: triple(first[name]) for name in ("stride", "padding", "dilation")}
            total = total + convolve(x, weight, **shape)
        assert isinstance(total, torch.Tensor)
        parts.append(total)
    out = torch.cat(parts, dim=1)
    if first["bias"] is not None:
        out = out + first["bias"].double()[None, :, None, None, None]
    return [[out] for _ in ranks]


def range_attention(ranks: list[Arguments]) -> list[Outputs]:
    w, first = len(ranks), ranks[0]
    ranges, clip = first["cp_shuffle_num"], first["clip_token_nums"]
    q = torch.stack(
        [a["query"].double().unflatten(0, (ranges, -1)) for a in ranks], dim=1
    )  # range, rank, token, head, D
    kv = torch.stack([a["key_value"].double().unflatten(0, (ranges, -1)) for a in ranks], dim=1)
    part, query_heads, size = q.shape[2:]
    q, kv = q.flatten(1, 2), kv.flatten(1, 2)[:, :clip].flatten(0, 1)
    key_heads = kv.shape[1]
    out = torch.zeros_like(q)
    for i, (start, end) in enumerate(first["k_ranges"].tolist()):
        for head in range(query_heads):
            # Query heads are served in equal, consecutive groups, however the ranks share the work.
            k, v = kv[start:end, head * key_heads // query_heads].split(size, dim=-1)
            out[i, :, head] = (q[i, :, head] @ k.T / math.sqrt(size)).softmax(-1) @ v
    blocks = out.unflatten(1, (w, part))
    return [[blocks[:, r].flatten(0, 1)] for r in range(w)]


def upsampling(length: int, factor: int) -> torch.Tensor:
    matrix = torch.zeros(length * factor, length, dtype=torch.float64)
    for target in range(length * factor):
        place = max((target + 0.5) / factor - 0.5, 0.0)
        low = int(place)
        matrix[target, low] += 1 - (place - low)
        matrix[target, min(low + 1, length - 1)] += place - low
    return matrix


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


def nearest(ranks: list[Arguments]) -> list[Outputs]:
    train, labels = joined(ranks, "train_features_rank_T", 1), torch.cat([a["train_labels_rank"][0] for a in ranks])
    assert len(labels.unique()) == len(labels)
    outputs = []
    for arguments in ranks:
        similar = arguments["test_features_rank"].double() @ train
        order = similar.argsort(dim=1, descending=True)[:, : arguments["max_k"]]
        rounded = similar.to(arguments["test_features_rank"].dtype).sort(dim=1, descending=True).values
        outputs.append([rounded[:, : arguments["max_k"]], labels[order]])
    return outputs


def sinkhorn(ranks: list[Arguments]) -> list[Outputs]:
    first = ranks[0]
    q = torch.exp(joined(ranks, "teacher_output", 0) / first["teacher_temp"])
    prototype, sample = torch.ones(q.shape[1]).double(), torch.ones(q.shape[0]).double()
    for _ in range(first["n_iterations"]):
        prototype = 1 / (sample @ q)
        sample = 1 / (q @ prototype)
    q = sample[:, None] * q * prototype
    return [[block] for block in q.split([len(a["teacher_output"]) for a in ranks])]


def suppression(ranks: list[Arguments]) -> list[Outputs]:
    first = ranks[0]
    masks, scores = joined(ranks, "low_res_masks_local", 0), joined(ranks, "obj_scores_local", 0)
    seen, sign = first["last_occluded"].tolist(), -1 if first["reverse"] else 1
    out, suppressed = masks.clone(), torch.zeros(len(masks), dtype=torch.bool)
    for i in range(len(masks)):
        for j in range(len(masks)):
            both = int(((masks[i] > 0) & (masks[j] > 0)).sum())
            either = int(((masks[i] > 0) | (masks[j] > 0)).sum())
            overlap = both / max(1, either)
            assert i == j or abs(overlap - first["iou_threshold"]) > 1e-5, "a quotient's rounding would decide"
            if i != j and overlap >= first["iou_threshold"] and seen[j] > -1 and sign * (seen[i] - seen[j]) > 0:
                suppressed[i] = True
        if suppressed[i]:
            out[i] = -10.0
    return [[out, scores, suppressed] for _ in ranks]


def kept_entries(row: list[float], top_k: int, top_p: float) -> list[int]:
    kth = sorted(row, reverse=True)[top_k - 1]
    by_size = sorted((i for i in range(len(row)) if row[i] >= kth), key=lambda i: row[i])
    if top_p == 1:
        return by_size
    total = math.fsum(math.exp(row[i]) for i in by_size)
    sums = [math.fsum(math.exp(row[i]) for i in by_size[: n + 1]) / total for n in range(len(by_size))]
    kept = [i for i, s in zip(by_size, sums, strict=True) if s > 1 - top_p or i == by_size[-1]]
    # The promise of the inputs: no cut is in doubt, and none divides a tie.
    assert min(abs(s - (1 - top_p)) for s in sums) > 0.99 * CLEARANCE * (1 - top_p)
    assert all(row[i] < row[kept[0]] for i in by_size if i not in kept)
    return kept


def filtered_rows(ranks: list[Arguments]) -> tuple[list[list[float]], list[int], list[list[int]]]:
    first = ranks[0]
    rows = joined(ranks, "vocab_parallel_logits", -1).flatten(0, 1).tolist()
    return rows, first["target"].flatten().tolist(), [kept_entries(r, first["top_k"], first["top_p"]) for r in rows]


def log_prob(ranks: list[Arguments]) -> list[Outputs]:
    values = []
    for row, target, kept in zip(*filtered_rows(ranks), strict=True):
        total = math.log(math.fsum(math.exp(row[i]) for i in kept))
        values.append(row[target] - total if target in kept else -math.inf)
    return [[torch.tensor(values, dtype=torch.float64).view_as(ranks[0]["target"])] for _ in ranks]


def log_prob_backward(ranks: list[Arguments]) -> list[Outputs]:
    upstream = ranks[0]["grad_output"].double().flatten().tolist()
    rows, targets, sets = filtered_rows(ranks)
    gradient = torch.zeros(len(rows), len(rows[0]), dtype=torch.float64)
    for t, (row, target, kept) in enumerate(zip(rows, targets, sets, strict=True)):
        total = math.fsum(math.exp(row[i]) for i in kept)
        for i in kept:
            gradient[t, i] = upstream[t] * ((i == target) - math.exp(row[i]) / total)
    whole = gradient.view(*ranks[0]["target"].shape, -1)
    return [[block] for block in whole.chunk(len(ranks), dim=-1)]


def sample_sort(ranks: list[Arguments]) -> list[Outputs]:
    keys = sorted(key for arguments in ranks for key in arguments["local_shard"].double().tolist())
    short, longer = divmod(len(keys), len(ranks))
    outputs = []
    for rank in range(len(ranks)):
        count = short + (rank < longer)
        outputs.append([torch.tensor(keys[:count], dtype=torch.float64)])
        keys = keys[count:]
    return outputs


TABLES = {  # as published with each variant
    "quintic": "4.0848 -6.8946 2.9270 3.9505 -6.3029 2.6377 3.7418 -5.5913 2.3037 2.8769 -3.1427 1.2046 2.8366 -3.0525 1.2012",
    "aol": "4.0098 -7.0585 2.4635 3.4585 -5.5479 2.5959 2.7573 -3.2939 1.4254 2.7215 -3.0494 1.3169",
}  # fmt: skip


def muon(ranks: list[Arguments]) -> list[Outputs]:
    """X = U diag(s) V^T, and every step maps s to a s + b s^3 + c s^5."""
    first = ranks[0]
    dim = first["partition_dim"]
    left, s, right = torch.linalg.svd(joined(ranks, "x", dim), full_matrices=False)
    s = s / s.norm()
    numbers = [float(word) for word in TABLES[first["coefficient_type"]].split()]
    for step in range(first["steps"]):
        a, b, c = numbers[3 * step % len(numbers) :][:3]
        s = a * s + b * s**3 + c * s**5
    widths = [arguments["x"].shape[dim] for arguments in ranks]
    return [[block] for block in (left * s @ right).split(widths, dim=dim)]


def halo_convolution(ranks: list[Arguments]) -> list[Outputs]:
    first, outputs = ranks[0], []
    p, stride, rows = first["padding"], first["stride"], first["x"].shape[2]
    image = joined(ranks, "x", 2)
    sky = torch.zeros_like(image[:, :, :p])
    image = torch.cat([sky, image, sky], dim=2)
    for rank in range(len(ranks)):
        stripe = image[:, :, rank * rows : (rank + 1) * rows + 2 * p]
        out = convolve(stripe, first["weight"].double(), stride=(stride, stride), padding=(0, p), dilation=(1, 1))
        outputs.append([out if first["bias"] is None else out + first["bias"].double()[:, None, None]])
    return outputs


MODELS = {
    74: kimi_delta_attention,
    75: gated_deltanet,
    76: conv3d,
    77: range_attention,
    78: tile_decode,
    79: nearest,
    80: sinkhorn,
    81: suppression,
    83: log_prob,
    84: log_prob_backward,
    85: sample_sort,
    86: muon,
    87: halo_convolution,
}
