"""Calls that may wait for peers, put in order where they come from several streams of a process."""

from typing import Any

_LAST: dict[int, tuple[int, Any]] = {}
"""By device: the stream of the last such call, its address first."""


def enter_stream(device: Any) -> None:
    """The current stream waits for the last one that such a call came from. Grids that wait for each other's ranks at the
    same time can take the SMs that the other needs, and would share slots and counts. Costs nothing on one stream.

    Replays of a CUDA graph are not seen: replay on the stream of the other calls, or order them by events.
    """
    import torch

    found = current(device)
    if found is None:
        return
    index, address = found
    last, stream = _LAST.get(index, (address, None))
    if address != last:
        now = torch.cuda.current_stream(index)
        captured = torch.cuda.is_current_stream_capturing()
        with torch.cuda.stream(stream):
            was_captured = torch.cuda.is_current_stream_capturing()
        if was_captured and not captured:
            raise RuntimeError("a call on another stream is being captured into a CUDA graph; end the capture first")
        if captured == was_captured:
            now.wait_stream(stream)
    if address != last or stream is None:
        _LAST[index] = address, torch.cuda.current_stream(index)


def current(device: Any) -> tuple[int, int] | None:
    """The number of this GPU and the address of its current stream; None where there is no GPU. The emulated GPU of
    platform cpu, where tensors say that they are the CPU's, puts its own in place of it.
    """
    import torch

    where = torch.device(device)
    if where.type != "cuda":
        return None
    index = torch.cuda.current_device() if where.index is None else where.index
    return index, torch._C._cuda_getCurrentRawStream(index)
