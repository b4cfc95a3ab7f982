"""Where a problem belongs: the axes by which results are grouped."""

from dataclasses import dataclass

PARALLELISM = ("collective", "tp", "sp", "cp", "pp", "dp", "fsdp", "ep", "vocab", "graph", "geometric", "other")
LAYER = (
    "collective", "attention", "mlp", "moe", "norm", "embedding", "loss", "gradient", "optimizer", "convolution", "fft",
    "graph", "rendering", "sort", "recurrence", "quantization", "other",
)  # fmt: skip
STAGE = ("training-forward", "training-backward", "optimizer", "inference", "rl", "simulation", "data")
# Who wrote the code that a problem is taken from. The groups are those of the published pie chart; which problem is in which
# was never published, so our counts differ from its.
SYSTEM = (
    "collectives", "graph networks", "science", "vision", "recommendation", "RL post-training", "inference engines",
    "kernel libraries", "LLM training", "other",
)  # fmt: skip


@dataclass(frozen=True)
class Taxonomy:
    """Every field but `pattern` and `fusable` holds words from the tuples above, the first being the main one."""

    parallelism: tuple[str, ...]
    layer: str
    stage: tuple[str, ...]
    pattern: tuple[str, ...]
    """Communication patterns, such as all-reduce, all-to-all-v, ring, halo."""
    system: str = "other"
    """The kind of system that the problem's code is from; `Problem.source` names the project and the function."""
    fusable: str = ""
    """The computation that a fused kernel could overlap with the communication."""

    def __post_init__(self) -> None:
        for field, words, allowed in (
            ("parallelism", self.parallelism, PARALLELISM),
            ("layer", (self.layer,), LAYER),
            ("stage", self.stage, STAGE),
            ("system", (self.system,), SYSTEM),
        ):
            if not words or not set(words) <= set(allowed):
                raise ValueError(f"{field} {words} must be words of {allowed}")
