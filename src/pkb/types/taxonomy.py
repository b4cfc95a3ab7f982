"""Where a problem belongs: the axes by which results are grouped."""

from dataclasses import dataclass

PARALLELISM = ("collective", "tp", "sp", "cp", "pp", "dp", "fsdp", "ep", "vocab", "graph", "geometric", "other")
LAYER = (
    "collective", "attention", "mlp", "moe", "norm", "embedding", "loss", "gradient", "optimizer", "convolution", "fft",
    "graph", "rendering", "sort", "recurrence", "quantization", "other",
)  # fmt: skip
STAGE = ("training-forward", "training-backward", "optimizer", "inference", "rl", "simulation", "data")


@dataclass(frozen=True)
class Taxonomy:
    """Every field but `fusable` holds words from the tuples above, the first being the main one."""

    parallelism: tuple[str, ...]
    layer: str
    stage: tuple[str, ...]
    pattern: tuple[str, ...]
    """Communication patterns, such as all-reduce, all-to-all-v, ring, halo."""
    fusable: str = ""
    """The computation that a fused kernel could overlap with the communication."""

    def __post_init__(self) -> None:
        for field, words, allowed in (
            ("parallelism", self.parallelism, PARALLELISM),
            ("layer", (self.layer,), LAYER),
            ("stage", self.stage, STAGE),
        ):
            if not words or not set(words) <= set(allowed):
                raise ValueError(f"{field} {words} must be words of {allowed}")
