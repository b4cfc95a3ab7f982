"""What a rank reaches by itself: matrix products, memory, L2. Results are checked: work that did not happen has no rate."""

from typing import Any

import torch

from pkb import kit
from pkb.rank.probe.sample import ProbeTimes, Sampler

MATRIX = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "fp8": torch.float8_e4m3fn,
}
# Relative Frobenius error of a few rows against float64. An fp8 product is rounded to bf16 and summed with few bits on Hopper.
TOLERANCE = {"bf16": 1e-2, "fp16": 2e-3, "tf32": 2e-3, "fp32": 1e-4, "fp64": 1e-12, "fp8": 5e-2}
CHECKED_ROWS = 8


class Product:
    """A square matrix product in one dtype on random data (zeros would let the GPU clock higher than real data does)."""

    def __init__(self, dtype: str, side: int, device: torch.device) -> None:
        self.dtype, self.side = dtype, side
        kind = MATRIX[dtype]
        wide = torch.float64 if dtype == "fp64" else torch.float32
        self.a = torch.randn(side, side, device=device, dtype=wide).to(kind)
        self.b = torch.randn(side, side, device=device, dtype=wide).to(kind)
        self._one = torch.ones((), device=device)
        if dtype == "fp8":
            self.b = self.b.t().contiguous().t()  # the fp8 units want the second factor by columns
        else:
            self.c = torch.full((side, side), float("nan"), device=device, dtype=kind)

    def __call__(self, number: int) -> None:
        if self.dtype == "fp8":
            self.c = torch._scaled_mm(
                self.a, self.b, scale_a=self._one, scale_b=self._one, out_dtype=torch.bfloat16
            )  # fmt: skip
        else:
            torch.matmul(self.a, self.b, out=self.c)

    def check(self, rank: int) -> None:
        truth = self.a[:CHECKED_ROWS].double() @ self.b.double()
        error = float((self.c[:CHECKED_ROWS].double() - truth).norm() / truth.norm())
        if not error <= TOLERANCE[self.dtype]:
            raise RuntimeError(f"rank {rank}: a {self.dtype} product of side {self.side} is off by {error:.2g}")


def product(sampler: Sampler, *, dtype: str, side: int, runs: bool, rank: int) -> ProbeTimes:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        work = Product(dtype, side, sampler.device.torch_device) if runs else None
        sample = sampler.take(work if work is not None else idle, runs=runs)
        if work is not None:
            work.check(rank)
    finally:
        torch.set_float32_matmul_precision(before)
    return sample


def why_no_product(dtype: str, device: torch.device) -> str:
    """Why this device cannot multiply in a dtype; empty if it can. Tried on a small one."""
    if device.type == "cpu" and dtype in ("tf32", "fp8"):
        return "GPUs only"
    try:
        Product(dtype, 256, device)(0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:
        return str(error).strip().splitlines()[0][:200]
    return ""


def idle(number: int) -> None:
    return


class Memory:
    """Reads and copies within the rank's own memory. `kernels` is the module of probe.cu, None on a CPU."""

    def __init__(self, sampler: Sampler, *, rank: int, kernels: Any, blocks: int) -> None:
        self._sampler, self._rank, self._kernels, self._blocks = sampler, rank, kernels, blocks
        self._device = sampler.device.torch_device

    def copy(self, nbytes: int, *, by_kernel: bool, runs: bool) -> ProbeTimes:
        """Moves 2 nbytes: read once, written once."""
        if not runs:
            return self._sampler.take(idle, runs=False)
        source, target = self._words(nbytes), torch.zeros(nbytes // 4, dtype=torch.int32, device=self._device)
        if by_kernel:
            launch = self._kernels.kernel("move")[2 * self._blocks, 1024]
            sample = self._sampler.take(lambda number: launch(target, source, nbytes), runs=True)
        else:
            sample = self._sampler.take(lambda number: target.copy_(source), runs=True)
        if not torch.equal(source, target):
            raise RuntimeError(f"rank {self._rank}: a copy of {nbytes} bytes in its own memory arrived wrong")
        return sample

    def read(self, nbytes: int, *, passes: int, runs: bool) -> ProbeTimes:
        """Reads nbytes, several times over in one call where they are to stay in a cache."""
        if not runs:
            return self._sampler.take(idle, runs=False)
        source = self._words(nbytes)
        words = source.view(torch.int64) if self._kernels is None else source
        total = torch.zeros(1, dtype=torch.int64, device=self._device)
        if self._kernels is None:

            def call(number: int) -> None:
                for _ in range(passes):
                    total.add_(words.sum())
        else:
            launch = self._kernels.kernel("read_words")[2 * self._blocks, 1024]
            times = kit.i32(passes)

            def call(number: int) -> None:
                launch(source, nbytes, times, total)  # adds into the lower half of the 64 bits

        sample = self._sampler.take(call, runs=True)
        # Both sums wrap around; what they wrap at is the width they are added in.
        modulus = 2 ** (64 if self._kernels is None else 32)
        if (int(total[0]) - int(words.sum(dtype=torch.int64)) * passes * sample.calls) % modulus:
            raise RuntimeError(f"rank {self._rank}: reading {nbytes} bytes gave a wrong sum: not all of them were read")
        return sample

    def _words(self, nbytes: int) -> torch.Tensor:
        return torch.randint(-(2**31), 2**31 - 1, (nbytes // 4,), dtype=torch.int32, device=self._device)
