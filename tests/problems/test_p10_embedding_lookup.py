"""Problem 10, embedding lookup: rows of one table."""

import numpy as np
import torch
import torch.distributed as dist
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, all_arguments, arrays, draw_for

from pkb.problems.p10_embedding_lookup import lookup_counts


def embedding_lookup(ranks: list[Arguments]) -> list[list[Array]]:
    table = np.concatenate(arrays(ranks, "local_shard"))
    return [[table[arguments["indices"].numpy()]] for arguments in ranks]


def grouped_by_owner(ranks: list[Arguments]) -> list[list[Array]]:
    owners = [np.argsort(a["indices"].numpy() // len(a["local_shard"]), kind="stable") for a in ranks]
    return [[own[0][order]] for own, order in zip(embedding_lookup(ranks), owners, strict=True)]


class TestModel(ModelTests):
    spec = Spec(
        10,
        embedding_lookup,
        silent_raises=True,
        ordered=True,
        calls=(0, 3),
        more_cases=((1, "tiny", "fp32"), (3, "odd", "bf16")),
        honest=0.7,
        exactness=1e-12,
        mistaken_always=3.0,
        mistake_calls=(1,),
        mistakes={"rows grouped by owner": grouped_by_owner},
        refused=[
            ("", lambda a: {"indices": torch.tensor([0, dist.get_world_size() * len(a["local_shard"])])}),
            ("", lambda a: {"indices": torch.tensor([-1])}),
            ("", lambda a: {"indices": a["indices"].int()}),
            ("", lambda a: {"indices": a["indices"][None]}),
        ],
    )


def test_lookups_are_uneven_repeated_and_sometimes_idle() -> None:
    idle_calls, repeats, uneven = 0, 0, 0
    for call in range(40):
        for world_size in (2, 4):
            ranks = all_arguments(10, world_size, "odd", "fp32", call)
            draw = draw_for(10, rank=0, world_size=world_size, size="odd", dtype="fp32", call=call)
            counts, idle = lookup_counts(draw)
            assert counts == [len(arguments["indices"]) for arguments in ranks]
            assert sum(counts) == world_size * 53
            uneven += len(set(counts)) > 1
            asked = torch.cat([arguments["indices"] for arguments in ranks])
            repeats += len(asked) - len(asked.unique())
            owners = set((asked // 37).tolist())
            if idle is not None:
                idle_calls += 1
                assert world_size == 4
                assert counts[idle] == 0
            assert owners == set(range(world_size)) - {idle}
    assert 3 <= idle_calls <= 20
    assert repeats > 100
    assert uneven > 70
