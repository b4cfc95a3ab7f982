"""How Python values become kernel parameters.

| Python | CUDA parameter |
|---|---|
| CUDA tensor | pointer to its first element |
| `int` | 8 bytes: `long long`, `size_t`, or an address as a pointer |
| `float` | 8 bytes: `double` |
| `bool` | 1 byte: `bool` |
| `None` | a null pointer |
| `i32(x)`, `u32(x)`, `i64(x)`, `u64(x)`, `f32(x)`, `f64(x)`, `ptr(address)` | what the name says |
| any other ctypes value | its bytes, by value (a `ctypes.Structure` for a struct, such as a 128-byte CUtensorMap) |

A plain `int` never turns into a 4-byte parameter by itself: it could be an `int` or a `float`, and a guess that is
wrong gives wrong numbers. The launch raises instead and names the wrapper to use.
"""

import ctypes
from collections.abc import Sequence
from typing import Any


def _ranged(kind: Any, bits: int, *, signed: bool) -> Any:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    name = f"{'i' if signed else 'u'}{bits}"

    def convert(value: int) -> Any:
        # ctypes would wrap around without a word.
        if not low <= value <= high:
            raise OverflowError(f"{value} does not fit kit.{name} ({low} .. {high})")
        return kind(value)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"A {bits}-bit {'signed' if signed else 'unsigned'} integer parameter."
    return convert


i32 = _ranged(ctypes.c_int32, 32, signed=True)
u32 = _ranged(ctypes.c_uint32, 32, signed=False)
i64 = _ranged(ctypes.c_int64, 64, signed=True)
u64 = _ranged(ctypes.c_uint64, 64, signed=False)


def f32(value: float) -> ctypes.c_float:
    """A `float` parameter."""
    return ctypes.c_float(value)


def f64(value: float) -> ctypes.c_double:
    """A `double` parameter."""
    return ctypes.c_double(value)


def ptr(address: int) -> ctypes.c_uint64:
    """A pointer parameter from an address, such as `handle.buffer_ptrs[peer]`."""
    return ctypes.c_uint64(address)


def aligned(tensor: Any) -> Any:
    """The tensor, or a copy where it is not contiguous or not aligned to 16 bytes, as a view need not be."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


_LANES = {"torch.float32": "f32", "torch.bfloat16": "bf16", "torch.float16": "f16", "torch.float64": "f64"}


def lanes(dtype: Any) -> str:
    """What pkb.cuh calls a dtype: `MODULE.kernel(f"sum_{kit.lanes(x.dtype)}")` for kernels named after their type."""
    if str(dtype) not in _LANES:
        raise TypeError(f"pkb.cuh has no lanes of {dtype}; it has {', '.join(_LANES)}")
    return _LANES[str(dtype)]


# Bound once: this runs on every launch, between two microseconds that count.
_ctypes_bases: tuple[Any, ...] = (ctypes._SimpleCData, ctypes.Structure, ctypes.Union, ctypes.Array)
_address = ctypes.addressof
_size = ctypes.sizeof
_MASK = (1 << 64) - 1


class Frame:
    """Storage for the parameters of one kernel launch, made once per kernel and filled anew each time.

    The driver takes an array of pointers to values and copies them before the launch returns.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._slots = (ctypes.c_uint64 * max(count, 1))()
        self._doubles = (ctypes.c_double * max(count, 1)).from_buffer(self._slots)
        base = ctypes.addressof(self._slots)
        self._homes = [base + 8 * index for index in range(count)]
        self.pointers = (ctypes.c_void_p * max(count, 1))(*self._homes)

    def fill(
        self, values: tuple[Any, ...], sizes: tuple[int, ...] | None, tensor_type: Any, kernel: str, grid: Sequence[int]
    ) -> None:
        """Put `values` in place. `sizes` are what the kernel declares, where the driver can say so."""
        slots, pointers, homes = self._slots, self.pointers, self._homes
        for index, value in enumerate(values):
            width = 8
            kind = type(value)
            if kind is int:
                slots[index] = value & _MASK
                pointers[index] = homes[index]
            elif isinstance(value, tensor_type):
                if not value.is_cuda:
                    raise TypeError(f"argument {index} of kernel {kernel!r} is a {value.device} tensor, not a CUDA one")
                slots[index] = value.data_ptr()
                pointers[index] = homes[index]
            elif isinstance(value, _ctypes_bases):
                width = _size(value)
                pointers[index] = _address(value)
                most = getattr(value, "most_blocks", 0)
                if most and grid[0] * grid[1] * grid[2] > most:
                    raise ValueError(
                        f"kernel {kernel!r} has a grid of {tuple(grid[:3])} on a pipeline for {most} blocks"
                    )
            elif kind is float:
                self._doubles[index] = value
                pointers[index] = homes[index]
            elif kind is bool or value is None:
                width = 1 if kind is bool else 8
                slots[index] = 1 if value else 0
                pointers[index] = homes[index]
            else:
                wanted = "pass a tensor, a number or a ctypes value"
                raise TypeError(f"argument {index} of kernel {kernel!r} is a {kind.__name__}; {wanted}")
            if sizes is not None and sizes[index] != width:
                raise TypeError(_wrong_width(index, value, declared=sizes[index], passed=width, kernel=kernel))


def _wrong_width(index: int, value: Any, *, declared: int, passed: int, kernel: str) -> str:
    wrapper = " (for a 4-byte parameter use kit.i32, kit.u32 or kit.f32)" if declared == 4 else ""
    return (
        f"argument {index} of kernel {kernel!r} is declared with {declared} bytes in CUDA, "
        f"but {type(value).__name__} passes {passed}{wrapper}"
    )
