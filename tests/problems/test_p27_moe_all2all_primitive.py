"""Problem 27, expert-parallel all-to-all: rows picked by the senders' splits."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments


def all_to_all(ranks: list[Arguments]) -> list[Outputs]:
    outputs = []
    for r, receiver in enumerate(ranks):
        rows = []
        for s, sender in enumerate(ranks):
            first = sum(sender["input_split_sizes"][:r])
            rows.append(sender["local_tensor"][first : first + sender["input_split_sizes"][r]])
            assert len(rows[-1]) == receiver["output_split_sizes"][s]
        outputs.append([torch.cat(rows)])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        27,
        all_to_all,
        calls=(0, 1, 2, 5),
    )


def test_splits_are_uneven_and_partly_empty() -> None:
    matrices = [[a["input_split_sizes"] for a in all_arguments(27, 4, "tiny", "fp32", call)] for call in range(20)]
    pieces = [rows for matrix in matrices for row in matrix for rows in row]
    assert pieces.count(0) > 20
    assert len({str(matrix) for matrix in matrices}) == 20
    for matrix in matrices:
        assert sum(matrix[i][i] for i in range(4)) == 32  # what the cost counts on
        assert sum(map(sum, matrix)) == 4 * 32
