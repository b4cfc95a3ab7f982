"""60: transforms along dim[0] first, for half spectra: three exchanges of half as much, and a real transform at the end."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get


def alternative(
    x: torch.Tensor,
    s: tuple[int, ...] | None,
    dim: tuple[int, ...],
    norm: str = "ortho",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    world_size = dist.get_world_size(group)
    first, second = dim[0] % x.dim(), dim[1] % x.dim()
    part, half = x.shape[first], x.shape[second]
    rows, columns = (world_size * part, 2 * (half - 1)) if s is None else (s[0], s[1])

    def trade(given: torch.Tensor, spread: int, joined: int) -> torch.Tensor:
        """Real numbers: parts of axis `spread` go to the ranks, and those of `joined` come together."""
        send = given.unflatten(spread, (world_size, -1)).movedim(spread, 0).contiguous()
        received = torch.empty_like(send)
        dist.all_to_all_single(received.view(-1), send.view(-1), group=group)
        return torch.cat(received.unbind(0), dim=joined)

    padded = torch.nn.functional.pad(x.movedim(second, -1), (0, -half % world_size)).movedim(-1, second)
    whole_rows = torch.view_as_complex(trade(torch.view_as_real(padded), second, first).contiguous())
    lines = torch.fft.ifft(whole_rows, n=rows, dim=first, norm=norm)
    back = torch.view_as_complex(trade(torch.view_as_real(lines), first, second).contiguous())
    fields = torch.fft.irfft(back.narrow(second, 0, half), n=columns, dim=second, norm=norm)
    return trade(fields, second, first).contiguous()


PROBLEM = replace(get(60), id=6001, name="rows_first", baseline=alternative)
