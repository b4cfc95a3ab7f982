"""Attention over ranges of keys, with an exchange of tokens for heads that overlaps the computation of other ranges.

Sand AI's MAGI-1 ("context shuffle overlap" of its context-parallel inference). Tokens come in `cp_shuffle_num` ranges,
chunks of video; rank r holds an equal number of tokens of every range, range by range: query (T, Hq, D) and key_value
(T, Hkv, 2 D), K in the first D and V in the last. Afterwards it holds the attention of its own tokens, (T, Hq, D).

Heads are divided: rank r computes block r of the query heads with block r of the key heads, for all tokens (each key
head is first repeated if there are fewer than W). Of a block, each key head serves as many query heads as any other,
the first one the first of them. The keys of a range are the ranks' tokens of it, in rank order, cut to the first
clip_token_nums (padding is last; None cuts nothing), and all ranges' keys make one list. Queries of range i, the
padding included, see keys [k_ranges[i, 0], k_ranges[i, 1]) of that list, with scores scaled by D ** -0.5 and without a
mask: ranges may overlap and may be of any length. Scores and their softmax are float32.

The reference sends all queries ahead, range by range, and computes a range while others are under way. A good kernel
fuses this: it attends to tiles of keys as they arrive and writes each output tile directly to the rank that owns it.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # chunk: real tokens of one range, over all ranks. Each of four has two key heads at `tiny`, half of one at `odd`
    "tiny": {"ranges": 4, "chunk": 29, "query_heads": 16, "key_heads": 8, "head_size": 16},
    "paper": {"ranges": 4, "chunk": 12150, "query_heads": 24, "key_heads": 8, "head_size": 128},  # MAGI-1-4.5B
    "real": {"ranges": 4, "chunk": 21600, "query_heads": 48, "key_heads": 8, "head_size": 128},  # MAGI-1-24B at 720p
    "odd": {"ranges": 3, "chunk": 53, "query_heads": 20, "key_heads": 2, "head_size": 24},
}
KINDS = {"clipped": 0.75, "whole": 0.25}
LARGE = 4.0
"""Queries of every second call are so much larger: scores reach 20 and more, as those of trained heads, and a softmax that
clamps them shows. Without it they stay below 8."""


def heads(size: Size, world_size: int) -> tuple[int, int]:
    """Query and key heads that this many ranks can share."""
    query, key = size["query_heads"], size["key_heads"]
    if query % world_size:
        query = world_size * max(1, query // world_size)
    return query, key if key % world_size == 0 or world_size % key == 0 else world_size


def inputs(draw: Draw) -> Arguments:
    size, ranges, chunk = draw.size, draw.size["ranges"], draw.size["chunk"]
    query_heads, key_heads = heads(size, draw.world_size)
    tokens = ranges * -(-chunk // draw.world_size)
    # Ranges of unequal length anywhere in the list; their lengths always add up to one chunk each, so all calls cost
    # the same.
    source = draw.random("ranges", key="all")
    lengths = [chunk] * ranges
    for one, other in zip(range(0, ranges - 1, 2), range(1, ranges, 2), strict=True):
        shift = source.randint(-chunk // 2, chunk // 2)
        lengths[one], lengths[other] = chunk + shift, chunk - shift
    starts = [source.randint(0, ranges * chunk - length) for length in lengths]
    if draw.even:
        starts = [number * chunk for number in range(ranges)]
    bounds = [[start, start + length] for start, length in zip(starts, lengths, strict=True)]
    clip = chunk if draw.kind_of(KINDS) == "clipped" else None
    # Keys of another size on each rank: whose keys are read, and whether padding is among them, shows.
    sharpness = draw.random("sharpness").uniform(0.5, 1.5)
    key = draw.normal("key", (tokens, key_heads, size["head_size"]), scale=sharpness)
    value = draw.normal("value", (tokens, key_heads, size["head_size"]))
    # Not single queries: their results, far larger than the others', would hide what is wrong with those.
    scores = draw.in_turn("scores", ("small", "large"))
    scale = LARGE if scores == "large" else 1.0
    return {
        "query": draw.normal("query", (tokens, query_heads, size["head_size"]), scale=scale),
        "key_value": torch.cat([key, value], dim=-1),
        "k_ranges": torch.tensor(bounds, dtype=torch.int64, device=draw.device),
        "cp_shuffle_num": ranges,
        "clip_token_nums": clip,
        "group": draw.group("world"),
    }


def solution(
    query: torch.Tensor,
    key_value: torch.Tensor,
    k_ranges: torch.Tensor,
    cp_shuffle_num: int,
    clip_token_nums: int | None = None,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    world_size = dist.get_world_size(group)
    tokens, query_heads, head_size = query.shape
    if tokens % cp_shuffle_num:
        raise ValueError(f"{tokens} tokens do not make {cp_shuffle_num} equal ranges")
    if key_value.shape[1] < world_size and world_size % key_value.shape[1] == 0:
        key_value = key_value.repeat_interleave(world_size // key_value.shape[1], dim=1)
    if query_heads % world_size or key_value.shape[1] % world_size:
        raise ValueError(f"{query_heads} query and {key_value.shape[1]} key heads for {world_size} ranks")
    part = tokens // cp_shuffle_num  # of a range, on one rank
    local_q, local_kv = query_heads // world_size, key_value.shape[1] // world_size
    if local_q % local_kv:
        raise ValueError(f"{local_kv} key heads cannot serve {local_q} query heads")
    clip = clip_token_nums or world_size * part

    # Keys and values: all tokens of this rank's heads, as one list of clipped ranges.
    send = key_value.view(cp_shuffle_num, part, world_size, local_kv, -1).permute(2, 0, 1, 3, 4).contiguous()
    kv = torch.empty_like(send)
    dist.all_to_all_single(kv, send, group=group)
    kv = kv.transpose(0, 1).reshape(cp_shuffle_num, world_size * part, local_kv, -1)[:, :clip]
    kv = kv.reshape(cp_shuffle_num * clip, local_kv, -1).transpose(0, 1)  # heads, keys, 2 D
    key, value = kv.repeat_interleave(local_q // local_kv, dim=0).split(head_size, dim=-1)

    # Queries of every range are on their way before the first is needed.
    queries = query.view(cp_shuffle_num, part, world_size, local_q, head_size).transpose(1, 2).contiguous()
    arriving = torch.empty_like(queries)
    requests = [
        dist.all_to_all_single(arriving[i], queries[i], group=group, async_op=True) for i in range(cp_shuffle_num)
    ]
    outputs = torch.empty_like(queries)
    returned = torch.empty_like(queries)
    replies = []
    for i, (start, end) in enumerate(k_ranges.tolist()):
        requests[i].wait()
        q = arriving[i].view(1, world_size * part, local_q, head_size).transpose(1, 2)
        out = torch.nn.functional.scaled_dot_product_attention(q, key[None, :, start:end], value[None, :, start:end])
        outputs[i] = out[0].transpose(0, 1).view(world_size, part, local_q, head_size)
        replies.append(dist.all_to_all_single(returned[i], outputs[i], group=group, async_op=True))
    for reply in replies:
        reply.wait()
    return returned.transpose(1, 2).reshape(tokens, query_heads, head_size)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, ranges, head_size = world_size, size["ranges"], size["head_size"]
    query_heads, key_heads = heads(size, w)
    part = -(-size["chunk"] // w)
    query = ranges * part * query_heads * head_size * element_bytes
    # Ranges may overlap: what is certain to be read is as many keys as one chunk has, of one head or more.
    kv_read = 2 * size["chunk"] * max(1, key_heads // w) * head_size * element_bytes
    return Cost.all_to_all(
        2 * query + kv_read,
        w,
        phases=2,
        flops=4 * ranges * w * part * size["chunk"] * head_size * query_heads / w,
        hbm_bytes=2 * query + kv_read,
        note="ranges may overlap, so that no more keys than one range asks for must travel; the reference sends all of them",
    )


PROBLEM = Problem(
    id=77,
    name="magi1_cso_async_attention",
    source="Sand AI MAGI-1, context shuffle overlap",
    taxonomy=Taxonomy(
        parallelism=("cp", "sp"),
        layer="attention",
        stage=("inference",),
        pattern=("all-to-all",),
        system="vision",
        fusable="attention over ranges of keys",
    ),
    sizes=SIZES,
    inputs=inputs,
    kinds=KINDS,
    reference=solution,
    baseline_reason="fused attention and overlapped exchanges are in the reference",
    cost=cost,
    compare=NormGate(tau={torch.float32: 1e-4}),
    truth="native",  # in float64 torch would hold whole score matrices, 200 GB at the real size
    dtypes=("bf16", "fp16", "fp32"),
    version=4,  # large scores in every second call
)
