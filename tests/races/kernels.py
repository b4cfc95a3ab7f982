"""Our kernels, each with constants so small that a few kilobytes take several turns and slots go round."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOLUTIONS = Path(__file__).parents[2] / "solutions"
NEVER, ALWAYS = 0, 2**60  # for limits in FLOP


@dataclass(frozen=True)
class Kernel:
    """One way through a solution."""

    name: str
    problem: int
    size: str | Mapping[str, int] = "tiny"
    constants: Mapping[str, Any] = field(default_factory=dict)
    edits: Sequence[tuple[str, str]] = ()
    calls: int = 3
    nvls: bool = False
    dtype: str = "bf16"

    @property
    def path(self) -> Path:
        return next(SOLUTIONS.glob(f"{self.problem:02d}_*_cuda.py"))

    def text(self) -> str:
        """The solution with these constants, and kernels of one dtype only: the others are never launched."""
        text = self.path.read_text()
        for name, value in self.constants.items():
            text, count = re.subn(rf"^{name} = [^#\n]*", f"{name} = {value}  ", text, flags=re.M)
            if count != 1:
                raise ValueError(f"{count} lines `{name} = ...`, not one")
        for old, new in self.edits:
            if text.count(old) != 1:
                raise ValueError(f"{text.count(old)} times in the text, not once: {old}")
            text = text.replace(old, new)
        others = "|".join({"f32", "bf16", "f16", "f64"} - {{"fp32": "f32"}.get(self.dtype, self.dtype)})
        return re.sub(rf"^(?!#)(\s*\w+\((?:{others})\b[^)]*\))+\s*$", "", text, flags=re.M)


def collective(name: str, problem: int, *, nvls: bool = False, **constants: Any) -> Kernel:
    size = "TURN_BYTES" if problem in (1, 4, 7, 8) else "CHUNK_BYTES"
    small = {"THREADS": 32, "LEAST_BYTES": 64, "MAX_BLOCKS": 2, size: 512, **constants}
    calls = 8 if problem in (3, 4, 5, 6) else 3  # roots differ from call to call: some must follow upon themselves
    return Kernel(name, problem, {"m": 8, "n": 64}, small, nvls=nvls, calls=calls)


def product(m: int, n: int, k: int) -> dict[str, int]:
    return {"m": m, "n": n, "k": k}


SEVERAL_TOKENS = (('MODULE.kernel("merge")[share, 128, shared]', 'MODULE.kernel("merge")[2, 128, shared]'),)
LONG_ROWS = ("constexpr int SMALL = 512;", "constexpr int SMALL = 8;")

KERNELS = (
    collective("01 one-shot", 1, ONE_SHOT_BYTES=ALWAYS),
    collective("01 two-shot", 1, ONE_SHOT_BYTES=0),
    collective("01 switch", 1, ONE_SHOT_BYTES=0, nvls=True),
    collective("02", 2),
    collective("03", 3),
    collective("03 switch", 3, nvls=True),
    collective("04 one-shot", 4, ONE_SHOT_BYTES=ALWAYS),
    collective("04 two-shot", 4, ONE_SHOT_BYTES=0),
    collective("04 switch", 4, ONE_SHOT_BYTES=0, nvls=True),
    collective("05", 5),
    collective("06", 6),
    collective("07", 7),
    collective("08", 8),
    Kernel("13 fused", 13, product(64, 64, 160), {"FUSED_FLOPS": ALWAYS, "MAX_BLOCKS": 1}, calls=2),
    Kernel("13 pushed", 13, product(24, 16, 16),
           {"FUSED_FLOPS": NEVER, "PUSH_FLOPS": NEVER, "CHUNK_BYTES": 256, "MAX_BLOCKS": 2}),
    Kernel("13 pulled", 13, product(24, 16, 16),
           {"FUSED_FLOPS": NEVER, "PUSH_FLOPS": ALWAYS, "CHUNK_BYTES": 256, "MAX_BLOCKS": 2}),
    Kernel("16 fused", 16, product(48, 64, 192), {"FUSED_FLOPS": ALWAYS, "MAX_BLOCKS": 1}, calls=2),
    Kernel("16 pushed", 16, product(192, 64, 24), {"FUSED_FLOPS": NEVER, "PUSH_FLOPS": NEVER}),
    Kernel("17", 17, "tiny", {"THREADS": 64, "CHUNK_BYTES": 200, "MAX_BLOCKS": 2}, calls=2),
    Kernel("21", 21, "tiny", dtype="fp32"),
    Kernel("45", 45, {"tokens": 24, "hidden": 64}, {"THREADS": 64, "PIECE_BYTES": 64, "MAX_BLOCKS": 2}),
    Kernel("54 small", 54, {"batch": 1, "tokens": 24, "heads": 3, "head_size": 8},
           edits=(("THREADS, SCORES = 256, 4096", "THREADS, SCORES = 64, 64"),)),
    Kernel("54 large", 54, {"batch": 1, "tokens": 24, "heads": 4, "head_size": 8}, {"SMALL_WORK": 0},
           edits=(("kernel[kernel.resident_blocks(256), 256]", "kernel[2, 64]"),)),
    Kernel("72", 72, {"batch": 1, "groups": 24, "group_dim": 1, "local": 40, "filter": 60}, calls=2,
           edits=(("kernel.resident_blocks(threads, shared=shared), batch * own", "2, batch * own"),)),  # several items each
    Kernel("81", 81, "tiny", {"MANY_PAIR_PIXELS": 1 << 40}, calls=2),
    Kernel("81 shared out", 81, "tiny", {"MANY_PAIR_PIXELS": 0}, calls=2),
    Kernel("82 few", 82, "tiny", {"ROWS": 4}, SEVERAL_TOKENS, calls=3),
    Kernel("82 many", 82, "tiny", {"ROWS": 4, "FEW_TOKENS": 0}, SEVERAL_TOKENS, calls=2),
    Kernel("82 collected", 82, {"batch": 1, "seq": 8, "vocab": 960, "top_k": 5, "top_p_percent": 90}, {"ROWS": 4},
           (*SEVERAL_TOKENS, LONG_ROWS), calls=2),
    Kernel("82 bisected", 82, {"batch": 1, "seq": 2, "vocab": 64, "top_k": 5, "top_p_percent": 90}, {"ROWS": 4},
           (*SEVERAL_TOKENS, LONG_ROWS), calls=2),
)  # fmt: skip
BY_NAME = {kernel.name: kernel for kernel in KERNELS}
