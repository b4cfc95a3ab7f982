"""Where an exception came from: its class, its chain and its frames. What it says plays no part."""

import dis
import sys
from collections.abc import Iterator
from types import TracebackType

import torch

from pkb.types.failure import Cause, NotOnThisPlatform


class MissingSolution(Exception):
    """The candidate's file has no function called solution."""


def cause_of(error: BaseException) -> Cause:
    if isinstance(error, MissingSolution):
        return Cause.NO_SOLUTION
    if isinstance(error, SystemExit):
        return Cause.EXIT
    for link in _chain(error):
        if isinstance(link, NotOnThisPlatform):
            return link.cause
    errors = sys.modules.get("pkb.kit.errors")  # there if the candidate uses the kit
    if errors is not None and isinstance(error, errors.OptionRefused):
        return Cause.OPTION
    if errors is not None and isinstance(error, errors.CompileError):
        return Cause.COMPILER
    if isinstance(error, torch.AcceleratorError | torch.cuda.CudaError) and not _raised_by_statement(error):
        return Cause.DEVICE
    return Cause.CANDIDATE


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that it was raised from: Triton's interpreter wraps what its operations raise."""
    link: BaseException | None = error
    for _ in range(8):  # a candidate may tie the ends together
        if link is None:
            return
        yield link
        link = link.__cause__


def _raised_by_statement(error: BaseException) -> bool:
    """Whether a `raise` of Python code outside torch made it; torch's own errors come out of calls into C++."""
    last = error.__traceback__
    if last is None:
        return True
    while last.tb_next is not None:
        last = last.tb_next
    return "/torch/" not in last.tb_frame.f_code.co_filename and _at_raise(last)


def _at_raise(place: TracebackType) -> bool:
    code = place.tb_frame.f_code.co_code
    return dis.opname[code[place.tb_lasti]] == "RAISE_VARARGS"
