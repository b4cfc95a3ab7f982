"""The printed output of a side. Its beginning and end are kept, so that a flood costs no memory, and a side that prints more
than a limit is ended."""

import os

KEPT_BYTES = 64 * 1024
ALLOWED_BYTES = 64 << 20
ALLOWED_BYTES_PER_CALL = 8 << 20
"""And rank, on top."""
NOISE = ("USDT:",)
"""Lines that torch's profiler prints by itself."""


class Printed:
    def __init__(self) -> None:
        self._text = bytearray()
        self.total_bytes = 0
        self.allowed_bytes = ALLOWED_BYTES

    def allow(self, *, calls: int) -> None:
        """Raises the limit for that many calls, of all ranks together."""
        self.allowed_bytes += calls * ALLOWED_BYTES_PER_CALL

    @property
    def too_much(self) -> str:
        """The reason why a side must be ended; empty while it has printed no more than it may."""
        if self.total_bytes <= self.allowed_bytes:
            return ""
        return f"more than {self.allowed_bytes / 2**20:.0f} MiB printed"

    def read_from(self, pipe: int) -> bool:
        """Take what there is, up to 4 MiB at a time; True when the other end has closed."""
        for _ in range(64):
            try:
                chunk = os.read(pipe, 1 << 16)
            except (BlockingIOError, OSError):
                return False
            if not chunk:
                return True
            self.total_bytes += len(chunk)
            self._text += chunk
            if len(self._text) > 2 * KEPT_BYTES:
                del self._text[KEPT_BYTES:-KEPT_BYTES]
        return False

    def tail(self, characters: int) -> str:
        lines = self._text.decode(errors="replace").splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith(NOISE))[-characters:]
