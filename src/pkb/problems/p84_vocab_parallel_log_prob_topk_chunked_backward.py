"""Gradient of filtered log-probabilities with respect to vocabulary-parallel logits, a chunk of tokens at a time.

The backward pass of problem 83 (NeMo-RL). Rank r holds the logits (B, S, V / W) of its slice of the vocabulary for all
tokens; targets (B, S) and grad_output (B, S) in bf16 are the same on all ranks. For each chunk of B * chunk_size
tokens, in flattened order, an all-to-all gives every rank whole rows for its W-th of the tokens. There the filter keeps
a set of logits, in the logits' dtype: the k largest (top_k is never None here, which would keep all) with the ties of
the k-th, less those whose cumulative probability, from the smallest, is at most 1 - top_p. With p the float32 softmax
over the kept set, the gradient is

    grad_output * (1[v is the target] - p_v) for kept v, and 0 for all others,

also for a target that was dropped. A second all-to-all brings it back: rank r returns (B, S, V / W) of its slice, in
float32 whatever the logits are.

Nearly all of it is zeros, and whole rows need not travel in either direction: from the k largest logits of every slice
each rank can find the cut and the sum of exponentials for itself and write its own columns. That is one exchange of a
few hundred times fewer bytes.
"""

import math

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Close
from pkb.problems.draw import Arguments, Draw
from pkb.problems.filtered_logits import KINDS, draw_rows, published_rows, round_up_tokens, why_too_small
from pkb.problems.leading_logits import filter_rows, gather_rows, largest
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # vocab // W entries a rank; seq and chunk are rounded up until W divides the tokens they make
    # The tail of a message is a few columns of one row, and mostly zeros: many chunks make sure that some tails matter.
    "tiny": {"batch": 2, "seq": 16, "vocab": 64, "top_k": 5, "top_p_percent": 60, "chunk": 2},
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
        "grad_output": draw.normal("grad_output", shape, key="all", dtype=torch.bfloat16),
        "tp_group": draw.group("world"),
        "top_k": size["top_k"],
        "top_p": rows.top_p,
        "chunk_size": round_up_tokens(size, "chunk", w),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """As 83, and gradients are evenly spaced."""
    values = published_rows(draw, drawn, step=19, first=5)
    given = values["target"]
    assert isinstance(given, torch.Tensor)
    grad = torch.linspace(-1, 1, given.numel(), device=draw.device).to(torch.bfloat16).view(given.shape)
    return {**values, "grad_output": grad}


def solution(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    grad_output: torch.Tensor,
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
    if grad_output.numel() != batch * seq:
        raise ValueError(f"{grad_output.numel()} gradients for {batch * seq} tokens")
    vocab = width * world_size
    slices, targets = vocab_parallel_logits.reshape(-1, width), target.reshape(-1, 1)
    upstream = grad_output.reshape(-1, 1).to(torch.float32)

    result = torch.empty(batch * seq, width, dtype=torch.float32, device=slices.device)
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
        own_targets, own_upstream = targets[first : first + tokens], upstream[first : first + tokens]
        gradient = -torch.softmax(logits.to(torch.float32), dim=-1)
        gradient.scatter_add_(1, own_targets, torch.ones_like(own_upstream))
        gradient *= own_upstream
        gradient.masked_fill_(logits == float("-inf"), 0.0)  # a target that was dropped has no gradient either

        # Back to all tokens of the chunk and this rank's slice.
        send = gradient.view(tokens, world_size, width).transpose(0, 1).contiguous()
        dist.all_to_all_single(result[start : start + chunk], send.view(-1, width), group=tp_group)
    return result.view(batch, seq, width)


def baseline(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    grad_output: torch.Tensor,
    tp_group: dist.ProcessGroup | None = None,
    top_k: int | None = None,
    top_p: float = 1.0,
    chunk_size: int = 1,
) -> torch.Tensor:
    """Only each rank's largest logits travel; what comes back of a row is where its cut is and its sum. Every rank then writes
    its own columns: zeros, and the few that are kept."""
    if not top_k:
        return solution(vocab_parallel_logits, target, grad_output, tp_group, top_k, top_p, chunk_size)
    slices, targets = vocab_parallel_logits.flatten(0, 1), target.reshape(-1, 1)
    leaders = largest(slices, top_k)
    rows = filter_rows(slices, leaders, targets, tp_group, top_k, top_p)
    everything = gather_rows([rows.smallest, rows.lse, rows.doubtful], tp_group)
    smallest, lse, doubtful = everything.split(1, dim=1)

    upstream, width = grad_output.reshape(-1, 1).to(torch.float32), slices.shape[1]
    values = leaders.values.float()
    is_target = leaders.columns + dist.get_rank(tp_group) * width == targets
    gradient = (is_target.float() - (values - lse).exp()) * upstream
    result = torch.zeros(slices.shape, dtype=torch.float32, device=slices.device)
    result.scatter_(1, leaders.columns, gradient.masked_fill_(values < smallest, 0.0))
    if bool(doubtful.any()):  # asked at the very end: by then nothing is left to be launched
        return solution(vocab_parallel_logits, target, grad_output, tp_group, top_k, top_p, chunk_size)
    return result.view(vocab_parallel_logits.shape)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, width = world_size, size["vocab"] // world_size
    tokens = size["batch"] * size["seq"]
    leaders = tokens * min(size["top_k"], width) * element_bytes
    return Cost.all_to_all(
        leaders,
        w,
        flops=tokens * width,
        hbm_bytes=tokens * width * (element_bytes + 4) + 10 * tokens,
        note="each rank sends its k largest logits of each token, where the reference sends its slice and gets another "
        "back; one rank may find the cut of a token for all, at the price of a second, smaller message",
    )


PROBLEM = Problem(
    id=84,
    name="vocab_parallel_log_prob_topk_chunked_backward",
    source="NeMo-RL, backward pass of vocabulary-parallel log-probabilities with sampling filters",
    taxonomy=Taxonomy(
        parallelism=("vocab", "tp"),
        layer="loss",
        stage=("training-backward", "rl"),
        pattern=("all-to-all",),
        system="RL post-training",
        fusable="top-k and top-p filter, softmax, gradient, pipelined over chunks",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    kinds=KINDS,
    reference=solution,
    baseline=baseline,
    reference_faster_at=("paper",),
    tried=(Alternative("top-k among the best blocks of 16 columns"),),
    cost=cost,
    compare=Close(rtol={torch.float32: 1e-5}, atol={torch.float32: 1e-6}),
    truth="native",  # the filter is defined in the logits' dtype
    requires=why_too_small,
    dtypes=("bf16", "fp16", "fp32"),
    version=5,  # top-p drops something at `tiny`
)
