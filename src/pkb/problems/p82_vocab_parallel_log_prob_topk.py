"""Log-probabilities of target tokens from vocabulary-parallel logits, under top-k and top-p filtering.

NeMo-RL. Rank r holds the logits (B, S, V / W) of its slice of the vocabulary for all B * S tokens; targets are the same
on all ranks. An all-to-all gives each rank whole rows for its share of the tokens. There the k largest logits are kept
(top_k is never None here, which would keep all), ties with the k-th included; of these, sorted from the smallest, those
are dropped whose cumulative probability is at most 1 - top_p, the largest always staying. The filter runs in the
logits' dtype. The result is the float32 log-probability of the target among what is kept, -inf if the target was
dropped, gathered to (B, S) on every rank.

With top-k active no rank needs whole rows: its own k largest logits for each token, with their ties, are enough,
which is a few hundred times less than its slice. A good kernel reads its logits once, sends those, and hands out the
results.

Where the cut falls is a matter of rounding when a cumulative probability comes near 1 - top_p. Inputs are drawn so
that it never does, and no target stands in a tie that the cut divides: every sound order of summation gives one
answer.
"""

import math
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Close
from pkb.problems.draw import Arguments, Draw
from pkb.problems.filtered_logits import published_rows
from pkb.problems.leading_logits import log_probabilities
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # vocab // W entries a rank; seq is rounded up until W divides batch * seq
    "tiny": {"batch": 2, "seq": 4, "vocab": 64, "top_k": 5, "top_p_percent": 90},
    "paper": {"batch": 2, "seq": 8, "vocab": 256, "top_k": 10, "top_p_percent": 90},
    "real": {"batch": 4, "seq": 2048, "vocab": 151936, "top_k": 50, "top_p_percent": 95},  # Qwen3
    "odd": {"batch": 3, "seq": 7, "vocab": 499, "top_k": 13, "top_p_percent": 85},
}
GRID = 0.125  # planned logits are multiples of it below 16: exact in bf16, and so are their ties
EXTRA = 3  # planned logits beside the k largest: ties with the k-th, or the next below it
ATTEMPTS = 32
CLEARANCE = 0.04
"""How far every cumulative probability stays from 1 - top_p, relative to it: bf16 sums of 50 terms err by far less."""
KINDS = {"top_p": 0.5, "top_k_only": 0.5}


class TopRows(NamedTuple):
    """What all ranks must agree on, for T tokens: the largest logits of each row and where they stand."""

    values: torch.Tensor
    """(T, k + EXTRA) float64, descending."""
    positions: torch.Tensor
    """(T, k + EXTRA) in [0, vocab), distinct in a row."""
    ceiling: torch.Tensor
    """(T,): every other logit of the row is at most this, which is less than all of `values`."""
    target: torch.Tensor


def cut_distance(values: torch.Tensor, kept_by_k: torch.Tensor, dropped: float) -> tuple[torch.Tensor, torch.Tensor]:
    """How near the cumulative probabilities come to `dropped`, and which entries lie in a tie that the cut divides."""
    probabilities = values.masked_fill(~kept_by_k, float("-inf")).softmax(-1)
    cumulative = probabilities.flip(-1).cumsum(-1).flip(-1)  # from the smallest; 0 where the k-filter dropped
    kept = (cumulative > dropped) & kept_by_k
    smallest_kept = values.masked_fill(~kept, float("inf")).amin(-1, keepdim=True)
    largest_dropped = values.masked_fill(kept, float("-inf")).amax(-1, keepdim=True)
    divided = (values == smallest_kept) & (smallest_kept == largest_dropped)
    return (cumulative - dropped).abs().amin(-1), divided


def plan_rows(draw: Draw, tokens: int, vocab: int) -> TopRows:
    """Draws several sets of leading logits for each token and takes the first whose cut is clear."""
    k = min(draw.size["top_k"], vocab)
    m, dropped = k + EXTRA, 1 - draw.size["top_p_percent"] / 100
    exact = torch.float64
    # Sharp and flat rows, at different heights: no fixed threshold separates the leading logits from the others.
    steps = draw.uniform("steps", (tokens, ATTEMPTS, m), 0, 1, key="all", dtype=exact)
    spread = draw.integers("spread", (tokens, 1, 1), 8, 33, key="all")
    height = draw.integers("height", (tokens, 1, 1), 16, 41, key="all")
    values = ((steps * spread).floor() + height).mul_(GRID).sort(dim=-1, descending=True).values
    order = torch.arange(m, device=draw.device)
    ties = draw.integers("ties", (tokens, ATTEMPTS, 1), 0, EXTRA + 1, key="all")
    kth = values[..., k - 1 : k]
    values = torch.where(order < k, values, torch.where(order < k + ties, kth, kth - GRID))
    distance, divided = cut_distance(values, values >= kth, dropped)
    clear = distance > CLEARANCE * dropped
    best = torch.where(clear, 1.0, distance).argmax(dim=1)
    row = torch.arange(tokens, device=draw.device)
    values, divided = values[row, best], divided[row, best]

    # Positions stand `stride` apart: 1 puts all of a row's leaders into one or two slices, a large one spreads them.
    widest = (vocab - 1) // m
    stride = draw.uniform("stride", (tokens, 1), 0, math.log(widest), key="all", dtype=exact).exp().long()
    stride = stride.clamp(1, widest)
    start = draw.integers("start", (tokens, 1), 0, vocab, key="all")
    shuffle = draw.uniform("shuffle", (tokens, m), 0, 1, key="all", dtype=exact).argsort(-1)
    jitter = draw.uniform("jitter", (tokens, m), 0, 1, key="all", dtype=exact).mul(stride).long().clamp(max=stride - 1)
    positions = (start + shuffle * stride + jitter) % vocab

    # Three targets in four are a leader, which top-p may still drop; the others, and doubtful ones, are never kept.
    choice = draw.integers("choice", (tokens, 1), 0, m, key="all")
    elsewhere = draw.uniform("elsewhere", (tokens, 1), 0, 1, key="all", dtype=exact) * (vocab - m * stride)
    elsewhere = (start + m * stride + elsewhere.long()) % vocab
    leads = draw.uniform("leads", (tokens, 1), 0, 1, key="all", dtype=exact) < 0.75
    target = torch.where(leads & ~divided.gather(1, choice), positions.gather(1, choice), elsewhere)
    return TopRows(values, positions, values[:, -1] - GRID / 2, target[:, 0])


def inputs(draw: Draw) -> Arguments:
    w, batch, seq, width = draw.world_size, draw.size["batch"], draw.size["seq"], draw.size["vocab"] // draw.world_size
    while batch * seq % w:
        seq += 1
    tokens = batch * seq
    logits = draw.normal("logits", (tokens, width))
    if draw.device.type == "meta":
        target = torch.empty((tokens,), dtype=torch.int64, device="meta")
    else:
        values, positions, ceiling, target = plan_rows(draw, tokens, width * w)
        torch.minimum(logits, ceiling[:, None].to(draw.dtype), out=logits)
        column = positions - draw.rank * width
        token, leader = ((column >= 0) & (column < width)).nonzero(as_tuple=True)
        logits[token, column[token, leader]] = values[token, leader].to(draw.dtype)
    return {
        "vocab_parallel_logits": logits.view(batch, seq, width),
        "target": target.view(batch, seq),
        "tp_group": draw.group("world"),
        "top_k": draw.size["top_k"],
        "top_p": draw.size["top_p_percent"] / 100 if draw.kind_of(KINDS) == "top_p" else 1.0,
    }


def solution(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    tp_group: dist.ProcessGroup | None = None,
    top_k: int | None = None,
    top_p: float = 1.0,
) -> torch.Tensor:
    rank, world_size = dist.get_rank(tp_group), dist.get_world_size(tp_group)
    batch, seq, width = vocab_parallel_logits.shape
    if batch * seq % world_size:
        raise ValueError(f"{batch} x {seq} tokens cannot be shared equally by {world_size} ranks")
    tokens, vocab = batch * seq // world_size, width * world_size

    # From all tokens and a slice of the vocabulary to a share of the tokens and the whole vocabulary.
    send = vocab_parallel_logits.reshape(world_size, tokens, width).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=tp_group)
    logits = received.transpose(0, 1).reshape(tokens, vocab)

    if top_k is not None and top_k > 0:
        kth_largest = torch.topk(logits, min(top_k, vocab), dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < kth_largest, float("-inf"))  # ties with the k-th largest stay
    if top_p is not None and top_p < 1.0:
        ascending, index = logits.sort(dim=-1)
        cumulative = ascending.softmax(dim=-1).cumsum(dim=-1)
        drop = cumulative <= 1.0 - top_p
        drop[:, -1] = False  # the largest always stays
        logits = logits.masked_fill(torch.zeros_like(drop).scatter(1, index, drop), float("-inf"))

    mine = target.reshape(-1)[rank * tokens : (rank + 1) * tokens, None]
    log_prob = torch.log_softmax(logits.to(torch.float32), dim=-1).gather(1, mine).view(-1)
    gathered = torch.empty(world_size * tokens, dtype=torch.float32, device=log_prob.device)
    dist.all_gather_into_tensor(gathered, log_prob, group=tp_group)
    return gathered.view(batch, seq)


def baseline(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    tp_group: dist.ProcessGroup | None = None,
    top_k: int | None = None,
    top_p: float = 1.0,
) -> torch.Tensor:
    """Only each rank's largest logits travel, and rows are filtered by these."""
    found = None
    if top_k:
        found = log_probabilities(vocab_parallel_logits, target, tp_group, top_k, top_p)
    return solution(vocab_parallel_logits, target, tp_group, top_k, top_p) if found is None else found


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, width = world_size, size["vocab"] // world_size
    tokens = size["batch"] * size["seq"]
    leaders = tokens * min(size["top_k"], width) * element_bytes
    return Cost.all_to_all(leaders, w) + Cost.all_gather(
        4 * tokens,
        w,
        flops=tokens * width,
        hbm_bytes=tokens * width * element_bytes + 12 * tokens,
        note="each rank sends its k largest logits of each token, where the reference sends its whole slice",
    )


def requires(size: Size, world_size: int) -> str | None:
    vocab, leaders = size["vocab"] // world_size * world_size, size["top_k"] + EXTRA
    if vocab <= leaders:
        return f"a vocabulary of {vocab} is too small for {leaders} leading logits"
    return None


PROBLEM = Problem(
    id=82,
    name="vocab_parallel_log_prob_topk",
    source="NeMo-RL, vocabulary-parallel log-probabilities with sampling filters",
    taxonomy=Taxonomy(
        parallelism=("vocab", "tp"),
        layer="loss",
        stage=("rl",),
        pattern=("all-to-all", "all-gather"),
        system="RL post-training",
        fusable="top-k and top-p filter, log-softmax, gather",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=partial(published_rows, step=17, first=3),
    kinds=KINDS,
    reference=solution,
    baseline=baseline,
    reference_faster_at=("paper",),
    tried=(Alternative("top-k among the best blocks of 16 columns"),),
    cost=cost,
    compare=Close(rtol={torch.float32: 0.0}, atol={torch.float32: 1e-5}),
    truth="native",  # the filter is defined in the logits' dtype
    requires=requires,
    dtypes=("bf16", "fp16", "fp32"),
    version=2,
)
