"""The share of the time in which a GPU works, for programs that measure sweeps."""

import threading

from pkb.platforms.nvml import library


class Busy:
    """Samples the share of time in which the first GPU runs a kernel, until it is left; None where there is no GPU."""

    def __init__(self) -> None:
        self.samples: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Busy":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        with library() as nvml:
            if nvml is None:
                return
            handle = nvml.nvmlDeviceGetHandleByIndex(0)
            while not self._over.wait(0.2):
                self.samples.append(int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu))

    @property
    def share(self) -> float | None:
        return sum(self.samples) / (100 * len(self.samples)) if self.samples else None
