"""Log-probabilities of target tokens from vocabulary-parallel logits with top-k and top-p, a chunk of tokens at a time.

NeMo-RL's variant of problem 82 that bounds its memory. Rank r holds the logits (B, S, V / W) of its slice of the
vocabulary for all tokens; targets (B, S) are the same on all ranks. Chunks are runs of B * chunk_size tokens in
flattened (batch-major) order, the last one perhaps shorter. For each chunk an all-to-all gives every rank whole rows
for its W-th of the chunk's tokens. There the k largest logits are kept (top_k is never None here, which would keep
all), ties with the k-th included; of these, sorted from the smallest, those are dropped whose cumulative probability is
at most 1 - top_p, the largest always staying. The filter runs in the logits' dtype. The result is the float32
log-probability of the target among what is kept, -inf if the target was dropped, gathered to (B, S) on every rank.
Chunking changes which rank handles a token, never its result.

Chunks are independent, so a good kernel lets the exchange of one run under the filter of another, and does not reuse a
buffer that a slower rank still reads. With top-k active whole rows need not travel: the k largest logits of each slice,
with their ties, are enough.
"""

import math
from functools import partial

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Close
from pkb.problems.draw import Arguments, Draw
from pkb.problems.filtered_logits import KINDS, draw_rows, published_rows, round_up_tokens, why_too_small
from pkb.problems.leading_logits import log_probabilities
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # vocab // W entries a rank; seq and chunk are rounded up until W divides the tokens they make
    "tiny": {"batch": 2, "seq": 6, "vocab": 64, "top_k": 7, "top_p_percent": 60, "chunk": 4},
    "paper": {"batch": 2, "seq": 8, "vocab": 256, "top_k": 10, "top_p_percent": 90, "chunk": 2},
    "real": {"batch": 4, "seq": 2048, "vocab": 151936, "top_k": 50, "top_p_percent": 95, "chunk": 256},  # Qwen3
    "odd": {"batch": 3, "seq": 11, "vocab": 499, "top_k": 13, "top_p_percent": 85, "chunk": 7},
}


def inputs(draw: Draw) -> Arguments:
    size, w = draw.size, draw.world_size
    shape = size["batch"], round_up_tokens(size, "seq", w)
    rows = draw_rows(
        draw,
        tokens=math.prod(shape),
        width=size["vocab"] // w,
        top_k=size["top_k"],
        top_p=size["top_p_percent"] / 100,
    )
    return {
        "vocab_parallel_logits": rows.logits.view(*shape, -1),
        "target": rows.target.view(shape),
        "tp_group": draw.group("world"),
        "top_k": size["top_k"],
        "top_p": rows.top_p,
        "chunk_size": round_up_tokens(size, "chunk", w),
    }


def solution(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    tp_group: dist.ProcessGroup | None = None,
    top_k: int | None = None,
    top_p: float = 1.0,
    chunk_size: int = 1,
) -> torch.Tensor:
    rank, world_size = dist.get_rank(tp_group), dist.get_world_size(tp_group)
    batch, seq, width = vocab_parallel_logits.shape
    chunk = batch * max(1, int(chunk_size))
    if batch * seq % world_size or chunk % world_size:
        raise ValueError(f"{batch * seq} tokens in chunks of {chunk} cannot be shared equally by {world_size} ranks")
    vocab = width * world_size
    slices, targets = vocab_parallel_logits.reshape(-1, width), target.reshape(-1)

    results = []
    for start in range(0, batch * seq, chunk):
        # From the chunk's tokens and a slice of the vocabulary to a share of the tokens and the whole vocabulary.
        send = slices[start : start + chunk].contiguous()
        received = torch.empty_like(send)
        dist.all_to_all_single(received, send, group=tp_group)
        tokens = send.shape[0] // world_size
        logits = received.view(world_size, tokens, width).transpose(0, 1).reshape(tokens, vocab)

        if top_k is not None and top_k > 0:
            kth_largest = torch.topk(logits, min(top_k, vocab), dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < kth_largest, float("-inf"))  # ties with the k-th largest stay
        if top_p is not None and top_p < 1.0:
            ascending, index = logits.sort(dim=-1)
            cumulative = ascending.softmax(dim=-1).cumsum(dim=-1)
            drop = cumulative <= 1.0 - top_p
            drop[:, -1] = False  # the largest always stays
            logits = logits.masked_fill(torch.zeros_like(drop).scatter(1, index, drop), float("-inf"))

        first = start + rank * tokens
        log_prob = torch.log_softmax(logits.to(torch.float32), dim=-1).gather(1, targets[first : first + tokens, None])
        gathered = torch.empty(world_size * tokens, dtype=torch.float32, device=log_prob.device)
        dist.all_gather_into_tensor(gathered, log_prob.view(-1), group=tp_group)
        results.append(gathered)
    return torch.cat(results).view(batch, seq)


def baseline(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    tp_group: dist.ProcessGroup | None = None,
    top_k: int | None = None,
    top_p: float = 1.0,
    chunk_size: int = 1,
) -> torch.Tensor:
    """Only each rank's largest logits travel, and rows are filtered by these; they are few enough for one chunk."""
    found = None
    if top_k:
        found = log_probabilities(vocab_parallel_logits, target, tp_group, top_k, top_p)
    return solution(vocab_parallel_logits, target, tp_group, top_k, top_p, chunk_size) if found is None else found


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, width = world_size, size["vocab"] // world_size
    tokens = size["batch"] * size["seq"]
    leaders = tokens * min(size["top_k"], width) * element_bytes
    return Cost.all_to_all(leaders, w) + Cost.all_gather(
        4 * tokens,
        w,
        flops=tokens * width,
        hbm_bytes=tokens * width * element_bytes + 12 * tokens,
        note="each rank sends its k largest logits of each token, where the reference sends its whole slice; "
        "chunks are independent, so their exchanges overlap",
    )


PROBLEM = Problem(
    id=83,
    name="vocab_parallel_log_prob_topk_chunked",
    source="NeMo-RL, vocabulary-parallel log-probabilities with sampling filters, in chunks",
    taxonomy=Taxonomy(
        parallelism=("vocab", "tp"),
        layer="loss",
        stage=("rl",),
        pattern=("all-to-all", "all-gather"),
        system="RL post-training",
        fusable="top-k and top-p filter, log-softmax, gather, pipelined over chunks",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=partial(published_rows, step=19, first=5),
    kinds=KINDS,
    reference=solution,
    baseline=baseline,
    reference_faster_at=("paper",),
    tried=(Alternative("top-k among the best blocks of 16 columns"),),
    cost=cost,
    compare=Close(rtol={torch.float32: 0.0}, atol={torch.float32: 1e-5}),
    truth="native",  # the filter is defined in the logits' dtype
    requires=why_too_small,
    dtypes=("bf16", "fp16", "fp32"),
    version=4,  # top-p drops something at `tiny`
)
