"""`from utils.cuda_helpers import compile_cuda_extension`, as candidates written for upstream say it."""

from pkb.kit.extension import compile_cuda_extension

__all__ = ["compile_cuda_extension"]
