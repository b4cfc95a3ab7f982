"""One rank of the naive way to evaluate: its own process, its own imports, its own build. Used by evaluation_cost.py."""

import argparse
import importlib.util
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.base import DTYPES
from pkb.problems.draw import Draw


def main() -> None:
    options = argparse.ArgumentParser()
    for name in ("--role", "--problem", "--size", "--store", "--candidate", "--out", "--shared"):
        options.add_argument(name, required=True)
    for name in ("--rank", "--world", "--trial", "--cuda"):
        options.add_argument(name, type=int, required=True)
    args = options.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    device = torch.device("cuda", 0) if args.cuda else torch.device("cpu")
    if args.cuda:
        torch.cuda.set_device(device)
    store = dist.FileStore(args.store, args.world)  # type: ignore[attr-defined]
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if args.cuda else "gloo", store=store, rank=args.rank, world_size=args.world
    )
    problem = get(args.problem)
    draw = Draw(
        secret=b"public", call=args.trial, rank=args.rank, world_size=args.world, size=problem.sizes[args.size],
        dtype=DTYPES["bf16"], device=device, layout=problem.layout,
    )  # fmt: skip
    function = problem.reference
    if args.role == "candidate":
        if not args.cuda:
            from pkb.rank.symmetric import memory as symmetric

            symmetric.install(Path(args.shared))
        import pkb.kit

        sys.path.insert(0, str(Path(pkb.kit.__file__).parent / "upstream"))
        spec = importlib.util.spec_from_file_location("candidate", args.candidate)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        function = module.solution
    output = function(*problem.inputs(draw).values())
    if args.cuda:
        torch.cuda.synchronize()
    torch.save(output.cpu(), args.out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
