"""Worked examples: candidates of our own that the judge calls correct, one file each in `examples/<backend>/NN_name.py`.

The order is fixed, so that all problems are asked with the same examples, but for the one that is asked itself.
"""

from dataclasses import dataclass
from pathlib import Path

from pkb.types.errors import UserError

FOLDER = Path(__file__).parent / "examples"
# Different patterns one after another: each further shot shows something that the ones before do not.
EXAMPLES = {
    "cuda": ("02_allgather", "08_alltoall", "03_broadcast"),
    "cuda-kit": ("02_allgather", "16_gemm_reducescatter", "08_alltoall", "21_clip_grad_norm_no_ep", "01_allreduce"),
    "triton": ("02_allgather", "16_gemm_reducescatter", "08_alltoall", "01_allreduce"),
    "cute": ("02_allgather", "01_allreduce"),
    "nccl-device": ("02_allgather", "01_allreduce"),
    "nvshmem": ("02_allgather", "01_allreduce"),
}
JUDGED = {
    "cuda": "on one H200 shared by 4 ranks",
    "cuda-kit": "on one H200 shared by 4 and by 8 ranks",
    "triton": "on CPU ranks, in Triton's interpreter",
    "cute": "on one H200 shared by 4 ranks",
    "nccl-device": "on one H200 shared by 4 ranks",
    "nvshmem": "on one H200 shared by 4 ranks",
}
"""Where the judge said so. A prompt repeats it, since what a CPU calls right says nothing about speed. Examples of a backend
that is not here wait to be judged, and are not shown."""


@dataclass(frozen=True)
class Example:
    backend: str
    stem: str

    @property
    def problem_id(self) -> int:
        return int(self.stem.partition("_")[0])

    @property
    def path(self) -> Path:
        return FOLDER / self.backend / f"{self.stem}.py"

    @property
    def candidate(self) -> str:
        return self.path.read_text(encoding="utf-8").strip()


def examples(backend: str) -> list[Example]:
    return [Example(backend, stem) for stem in EXAMPLES.get(backend, ()) if backend in JUDGED]


def choose(backend: str, *, problem_id: int, shots: int | None) -> list[Example]:
    """The first `shots` examples that are not the problem itself. None: one, if the backend has any."""
    if shots is None:
        shots = min(1, len(examples(backend)))
    if shots < 0:
        raise UserError(f"{shots} worked examples cannot be shown", "give 0 or more")
    if shots == 0:
        return []
    known = [example for example in examples(backend) if example.problem_id != problem_id]
    if not known:
        raise UserError(
            f"there is no worked example for {backend}: no candidate of ours has been judged there",
            f"ask with --shots 0, or choose one of {', '.join(JUDGED)}",
        )
    if shots > len(known):
        raise UserError(
            f"{shots} worked examples were asked for, and {backend} has {len(known)} for this problem",
            f"ask for at most {len(known)}",
        )
    return known[:shots]
