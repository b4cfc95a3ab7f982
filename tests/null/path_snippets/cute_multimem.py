"""CuTe DSL: the switch adds, by the DSL's own helper; an acquire of this GPU's own memory is no communication."""
# expect: nvls

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm
from cutlass.utils import distributed


@cute.kernel
def all_reduce(tensor: cute.Tensor, counts: cutlass.Int64):
    llvm.inline_asm(None, [counts], "ld.acquire.gpu.global.u32 $0, [$1];", "=r,l")
    x, y, z, w = distributed.multimem_ld_reduce_8xbf16(tensor.iterator)  # <- nvls
    distributed.multimem_st_4xb32(tensor.iterator, x, y, z, w)  # <- nvls


def solution(x):
    all_reduce(x, 0).launch(grid=(1, 1, 1), block=(32, 1, 1))
    return x
