"""Problem 25, importance-sampling policy loss, token by token."""

import math
from functools import partial

import numpy as np
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments

from pkb.problems.compare import Context
from pkb.problems.p25_importance_sampling_loss import Metrics


def importance_sampling_loss(ranks: list[Arguments], ignored: float = 0.0) -> list[Outputs]:
    """Mistake: the sum over the vocabulary leaves out a share of it, its last entries."""
    token_outputs, valid_tokens = [], []
    for a in ranks:
        logits = a["hidden_states"].double() @ a["weight"].double().T
        logprob, loss = torch.zeros(len(logits)).double(), torch.zeros(len(logits)).double()
        for t, label in enumerate(a["labels"].tolist()):
            if label == a["ignore_index"]:
                continue
            kept = len(a["weight"]) - math.ceil(ignored * len(a["weight"]))
            logprob[t] = logits[t, label] - logits[t, :kept].logsumexp(0)
            d = max(-20.0, min(20.0, float(logprob[t]) - float(a["old_logprobs"][t])))
            loss[t] = -math.exp(d) * float(a["advantages"][t])
            valid_tokens.append((math.exp(d), math.exp(d) - d - 1, -float(logprob[t]), float(loss[t])))
        token_outputs.append([logprob, loss])
    ratio, kl, nll, losses = np.array(valid_tokens).T
    metrics = torch.tensor([ratio.mean(), ratio.min(), ratio.max(), kl.mean(), nll.mean()])
    return [[torch.tensor(losses.mean()), *own, metrics] for own in token_outputs]


class TestModel(ModelTests):
    spec = Spec(
        25,
        importance_sampling_loss,
        results=(torch.float32, None, None, torch.float32),
        spoilt=1.2,
        spoilt_offset=0.25,
        mistakes={"3 % of the vocabulary ignored": partial(importance_sampling_loss, ignored=0.03)},
        refused=[("do not fit labels", lambda _: {"labels": torch.zeros(3, dtype=torch.int64)})],
    )


def test_some_ranks_have_no_tokens_and_some_ratios_are_clamped() -> None:
    ranks = [all_arguments(25, 4, "tiny", "fp32", call) for call in range(40)]
    idle = [a for call in ranks for a in call if bool((a["labels"] == a["ignore_index"]).all())]
    assert 3 <= len(idle) <= 20
    lowest = [float(importance_sampling_loss(a)[0][3][1]) for a in ranks[:20]]
    assert 3 <= sum(ratio == math.exp(-20) for ratio in lowest) <= 17


def test_a_clamped_ratio_may_be_zero_where_the_dtype_has_nothing_smaller() -> None:
    truth = torch.tensor([1.0, math.exp(-20), 3.0, 0.5, 4.0])
    output = truth.clone()
    output[1] = 0.0
    for dtype, accepted in ((torch.float16, True), (torch.bfloat16, False), (torch.float32, False)):
        context = Context(arguments={}, rank=0, world_size=2, dtype=dtype)
        assert (Metrics()(truth, output, context) <= 1) is accepted
        assert Metrics()(truth, truth + torch.tensor([0.0, 1e-3, 0.0, 0.0, 0.0]), context) > 1


def test_a_ratio_of_one_that_no_valid_token_has_shows_in_the_smallest_and_in_the_largest() -> None:
    """As an ignored token, or a rank that has no other, may leave it behind: both cases, within eight calls in a row."""
    for size, first in (("tiny", 0), ("odd", 8)):
        calls = [all_arguments(25, 4, size, "bf16", call) for call in range(first, first + 8)]
        seen = set()
        for ranks in calls:
            metrics = importance_sampling_loss(ranks)[0][3]
            idle = any(bool((a["labels"] == a["ignore_index"]).all()) for a in ranks)
            context = Context(arguments={}, rank=0, world_size=4, dtype=torch.bfloat16)
            for place, spoilt in ((1, metrics[1].clamp(max=1)), (2, metrics[2].clamp(min=1))):
                wrong = metrics.clone()
                wrong[place] = spoilt
                if Metrics()(metrics.float(), wrong.float(), context) > 1.5:
                    seen.add((place, idle))
        assert seen == {(1, False), (1, True), (2, False), (2, True)}
