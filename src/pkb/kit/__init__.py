"""What a candidate may use: compile CUDA or C++ once for all ranks, launch kernels, pass peer pointers. See
docs/kit.md.

Needs torch (for launching) and the standard library, nothing else: it runs inside the candidate's rank.
"""

from pkb.kit.arguments import aligned, f32, f64, i32, i64, lanes, ptr, u32, u64
from pkb.kit.cpp import build_cpp
from pkb.kit.cuda import Kernel, Module, compile
from pkb.kit.driver import DriverError
from pkb.kit.errors import BuildTimeout, CompileError, CompilerMissing
from pkb.kit.exchange import PeerExchange, Peers, exchange
from pkb.kit.nvls import multicast, nvls
from pkb.kit.pads import Pads, barrier_pads, buffers, channels, pointer_table
from pkb.kit.pipeline import Pipe, Pipeline, pipeline, turns
from pkb.kit.staging import StagingBuffer, staging

__all__ = [
    "BuildTimeout",
    "CompileError",
    "CompilerMissing",
    "DriverError",
    "Kernel",
    "Module",
    "Pads",
    "PeerExchange",
    "Peers",
    "Pipe",
    "Pipeline",
    "StagingBuffer",
    "aligned",
    "barrier_pads",
    "buffers",
    "build_cpp",
    "channels",
    "compile",
    "exchange",
    "f32",
    "f64",
    "i32",
    "i64",
    "lanes",
    "multicast",
    "nvls",
    "pipeline",
    "pointer_table",
    "ptr",
    "staging",
    "turns",
    "u32",
    "u64",
]
