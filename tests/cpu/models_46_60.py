"""The mathematics of problems 46-53 and 56-60 in float64, from the arguments of all ranks to the outputs of all ranks.

Nothing here is split or sent: matrices and sequences are put together again and worked on whole, gradients come from
autograd, the update from torch's own AdamW, transforms from torch's two-dimensional FFT. `mistake` names a plausible error
of a kernel; with it, a model gives what that kernel would return, and the problem's rule must refuse it.
"""

import math
from typing import Any

import torch
from torch.nn import functional as F

Arguments = dict[str, Any]
Outputs = list[torch.Tensor]


def joined(ranks: list[Arguments], name: str, dim: int = 0) -> torch.Tensor:
    return torch.cat([wide(arguments[name]) for arguments in ranks], dim=dim)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor.double()


def gemv_decode(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    hidden = wide(ranks[0]["hidden_states"])
    logits = hidden @ joined(ranks, "weight_shard").T
    if mistake != "no bias":
        logits = logits + joined(ranks, "bias_shard")
    if mistake == "flat gather":
        logits = torch.cat([block.reshape(-1) for block in logits.chunk(len(ranks), dim=1)]).view_as(logits)
    return [[logits] for _ in ranks]


def fsdp_step(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    first, w = ranks[0], len(ranks)
    flat = joined(ranks, "flat_param_shard").requires_grad_()
    w1, b1, w2, b2 = (
        part.view(shape)
        for part, shape in zip(
            flat.split([math.prod(s) for s in first["param_shapes"]]), first["param_shapes"], strict=True
        )
    )
    losses = [
        F.mse_loss(F.linear(F.relu(F.linear(wide(a["X_local"]), w1, b1)), w2, b2), wide(a["y_local"])) for a in ranks
    ]
    part = flat.numel() // w
    gradients = [torch.autograd.grad(loss, flat, retain_graph=True)[0] for loss in losses]
    mean = torch.stack(gradients).mean(0) * (w if mistake == "sum instead of mean" else 1)
    outputs = []
    for rank, a in enumerate(ranks):
        own = slice(rank * part, (rank + 1) * part)
        parameter = torch.nn.Parameter(flat.detach()[own].clone())
        parameter.grad = (gradients[rank] if mistake == "own gradient" else mean)[own].clone()
        betas, decay = (a["beta1"], a["beta2"]), 0.0 if mistake == "no weight decay" else a["weight_decay"]
        optimizer = torch.optim.AdamW([parameter], lr=a["lr"], betas=betas, eps=a["eps"], weight_decay=decay)
        moments = {"exp_avg": wide(a["exp_avg_shard"]).clone(), "exp_avg_sq": wide(a["exp_avg_sq_shard"]).clone()}
        optimizer.state[parameter] = {"step": torch.tensor(float(a["step"] - 1)), **moments}
        optimizer.step()
        state = optimizer.state[parameter]
        updated = flat.detach()[own] if mistake == "parameters not updated" else parameter.detach()
        outputs.append([updated, state["exp_avg"], state["exp_avg_sq"]])
    return outputs


def fsdp_and_tp(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    n_tp, n_fsdp = ranks[0]["n_tp"], ranks[0]["n_fsdp"]
    block = [[ranks[f * n_tp + t] for t in range(n_tp)] for f in range(n_fsdp)]
    x = torch.cat([wide(row[0]["x_local"]) for row in block])
    w1, w2 = (torch.cat([torch.cat([wide(a[n]) for a in row], 1) for row in block]) for n in ("W1_shard", "W2_shard"))
    w3 = torch.cat([torch.cat([wide(a["W3_shard"]) for a in row]) for row in block], 1)
    if mistake == "W3 gathered flat":
        w3 = torch.cat([wide(block[f][t]["W3_shard"]).reshape(-1) for t in range(n_tp) for f in range(n_fsdp)]).view_as(
            w3
        )
    z = F.silu(x @ w1) * (x @ w2)
    if mistake == "no TP sum":
        parts = [p @ q for p, q in zip(z.chunk(n_tp, 1), w3.chunk(n_tp), strict=True)]
        return [[parts[r % n_tp].chunk(n_fsdp)[r // n_tp]] for r in range(len(ranks))]
    return [[(z @ w3).chunk(n_fsdp)[r // n_tp]] for r in range(len(ranks))]


def moe(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    """Token by token: softmax, the chosen experts, and the MLP of the rank that owns each."""
    experts, top_k = ranks[0]["num_experts"], ranks[0]["top_k"]
    block = min(len(ranks), experts)

    def layer(linear: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        return wide(linear.weight) @ x + (0 if mistake == "no layer bias" else wide(linear.bias))

    outputs = []
    for rank, a in enumerate(ranks):
        hidden = wide(a["hidden_states"]).flatten(0, -2)
        out = torch.zeros_like(hidden)
        for token, x in enumerate(hidden):
            bias = 0 if a["gate_bias"] is None else wide(a["gate_bias"])
            p = (wide(a["gate_weight"]) @ x + bias).exp()
            p = p / p.sum()
            best = sorted(range(experts), key=lambda e, p=p: -float(p[e]))  # type: ignore[misc]
            if len(best) > top_k:  # the promise of the inputs: rounding does not decide the route
                assert float(p[best[top_k - 1]] / p[best[top_k]]) > 1.2
            total = float(p[best[:top_k]].sum()) if mistake == "weights normalised" else 1.0
            for expert in best[:top_k]:
                owner = rank // block * block + expert * block // experts
                if mistake == "own expert":
                    owner = rank
                o = ranks[owner]
                inner = F.silu(layer(o["gate_proj"], x)) * layer(o["up_proj"], x)
                out[token] += p[expert] / total * layer(o["down_proj"], inner)
        outputs.append([out])
    return outputs


def e4m3(value: torch.Tensor) -> torch.Tensor:
    """Nearest float8_e4m3fn, ties to even, by hand: four significant bits, and steps of 2^-9 below 2^-6."""
    value = value.double()
    exponent = value.abs().clamp(min=2.0**-6).log2().floor()
    step = (exponent - 3).exp2()
    return ((value / step).round() * step).clamp(-448, 448)


def through_fp8(values: torch.Tensor, history: torch.Tensor, mistake: str = "") -> tuple[torch.Tensor, torch.Tensor]:
    """Values after the FP8 round trip (rounded to their dtype, then float64), and the new history."""
    largest = values.abs().max().to(torch.bfloat16)
    new = torch.tensor([*history.tolist()[1:], float(largest)], dtype=torch.bfloat16)
    peak = max(history.tolist()) if mistake == "old entry kept" else max(new.tolist())
    scale = torch.tensor(peak, dtype=torch.float32) / torch.tensor(448.0)
    if mistake == "not quantised":
        return values.double(), new
    coded = e4m3(values.float() / scale).float() * scale
    return coded.to(values.dtype).double(), new


def fp8_reduce_scatter(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    pairs = [through_fp8(a["flat_grads"], a["amax_history"], mistake) for a in ranks]
    mean = torch.stack([values for values, _ in pairs]).mean(0)
    return [[part, new] for part, (_, new) in zip(mean.chunk(len(ranks)), pairs, strict=True)]


def fp8_allgather(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    pairs = [through_fp8(a["flat_param_shard"], a["amax_history"], mistake) for a in ranks]
    outputs = []
    for rank, (_, new) in enumerate(pairs):
        parts = [values for values, _ in pairs]
        if mistake == "own part as it was":
            parts[rank] = ranks[rank]["flat_param_shard"].double()
        outputs.append([torch.cat(parts), new])
    return outputs


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """(B, positions, heads, head size), over one undivided sequence."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if causal:
        position = torch.arange(q.shape[1])
        scores = scores.masked_fill(position[:, None] < position[None, :], float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


def ring_attention_pp(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    cp = max(1, len(ranks) // 2)
    x = joined(ranks[:cp], "hidden_states", 1)
    outputs: list[Outputs] = []
    for stage in range(len(ranks) // cp):
        a = ranks[stage * cp]
        if mistake == "own hidden states":
            x = joined(ranks[:cp], "hidden_states", 1)
        q, k, v = ((x @ w.T).unflatten(-1, (a["num_heads"], -1)) for w in wide(a["w_qkv"]).chunk(3))
        if mistake == "own block of keys":
            pieces = zip(*(t.chunk(cp, dim=1) for t in (q, k, v)), strict=True)
            context = torch.cat([attention(*piece, causal=a["causal"]) for piece in pieces], dim=1)
        else:
            context = attention(q, k, v, causal=a["causal"])
        x = context.flatten(2) @ wide(a["w_o"]).T
        outputs += [[block] for block in x.chunk(cp, dim=1)]
    return outputs


def ring_attention_backward(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    cp = max(1, len(ranks) // 2)
    replicas = []
    for start in range(0, len(ranks), cp):
        ring = ranks[start : start + cp]
        q, k, v, dout, out = (joined(ring, name, 1) for name in ("q", "k", "v", "dout", "out"))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
        if ring[0]["causal"]:
            scores = scores.masked_fill(torch.ones(scores.shape[2:]).triu(1) > 0, float("-inf"))
        p = (scores - joined(ring, "softmax_lse", 2)[..., None]).exp()
        d_p = torch.einsum("bqhd,bkhd->bhqk", dout, v)
        d_s = p * (d_p - (dout * out).sum(-1).transpose(1, 2)[..., None]) / math.sqrt(q.shape[-1])
        dq, dk = torch.einsum("bhqk,bkhd->bqhd", d_s, k), torch.einsum("bhqk,bqhd->bkhd", d_s, q)
        replicas.append((dq, dk, torch.einsum("bhqk,bqhd->bkhd", p, dout)))
    outputs = []
    for rank in range(len(ranks)):
        own = (
            replicas[rank // cp]
            if mistake == "no average"
            else [torch.stack(g).mean(0) for g in zip(*replicas, strict=True)]
        )
        outputs.append([gradient.chunk(cp, dim=1)[rank % cp] for gradient in own])
    return outputs


def siglip_loss(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    outputs = []
    for rank, a in enumerate(ranks):
        images, texts = wide(a["image_features"]), joined(ranks, "text_features")
        b = len(images)
        logits = a["logit_scale"] * images @ texts.T + a["logit_bias"]
        y = -torch.ones_like(logits)
        for block in range(len(ranks)):
            if block == rank or mistake == "positives in every block":
                y[:, block * b : (block + 1) * b].fill_diagonal_(1)
        losses = F.softplus(-y * logits).sum() / (b * len(ranks) if mistake == "mean over all texts" else b)
        if mistake == "own block, W times":
            own = slice(rank * b, (rank + 1) * b)
            losses = F.softplus(-y[:, own] * logits[:, own]).sum() / b * len(ranks)
        outputs.append([losses])
    return outputs


def rfft(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    a = ranks[0]
    spectrum = torch.fft.rfft2(joined(ranks, "x", -1), s=a["s"], dim=a["dim"], norm=a["norm"])
    if mistake == "imaginary part dropped":
        spectrum = torch.complex(spectrum.real, torch.zeros_like(spectrum.real))
    if mistake == "conjugate":
        spectrum = spectrum.conj().resolve_conj()
    return [[block] for block in spectrum.chunk(len(ranks), dim=-2)]


def irfft(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    a = ranks[0]
    spectrum = joined(ranks, "x", -2)
    if mistake == "mirror off by one":  # rows of the missing half read as H - 1 - h
        n = 2 * (spectrum.shape[-1] - 1) if a["s"] is None else a["s"][1]
        mirror = spectrum[..., 1 : n - spectrum.shape[-1] + 1].flip(-2, -1).conj()
        field = torch.fft.ifft2(torch.cat([spectrum, mirror], -1), norm=a["norm"]).real
    else:
        field = torch.fft.irfft2(spectrum, s=a["s"], dim=a["dim"], norm=a["norm"])
    return [[block] for block in field.chunk(len(ranks), dim=-1)]


MODELS = {
    46: gemv_decode, 47: fsdp_step, 48: fsdp_and_tp, 49: moe, 50: moe, 51: moe, 52: fp8_reduce_scatter, 53: fp8_allgather,
    56: ring_attention_pp, 57: ring_attention_backward, 58: siglip_loss, 59: rfft, 60: irfft,
}  # fmt: skip
MISTAKES = [
    (46, "no bias"), (46, "flat gather"),
    (47, "own gradient"), (47, "sum instead of mean"), (47, "parameters not updated"),
    (48, "no TP sum"), (48, "W3 gathered flat"),
    (49, "weights normalised"), (49, "no layer bias"), (49, "own expert"),
    (50, "weights normalised"), (50, "no layer bias"), (50, "own expert"),
    (51, "no layer bias"), (51, "own expert"),
    (52, "not quantised"), (53, "not quantised"), (53, "own part as it was"),
    (56, "own hidden states"), (56, "own block of keys"), (57, "no average"),
    (58, "positives in every block"), (58, "mean over all texts"), (58, "own block, W times"),
    (59, "imaginary part dropped"), (59, "conjugate"), (60, "mirror off by one"),
]  # fmt: skip
