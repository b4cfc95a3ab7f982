"""Numbers and names that the judge and its ranks must agree on."""

import re

KIB, MIB = 1 << 10, 1 << 20

MAX_RANKS = 64
MAX_CALLS = 4096
"""In one batch."""
MAX_NAME = 200
"""Characters of a name: of a type, a kernel, an argument, a key."""
MAX_TEXT = 4000
"""Characters of what an exception says."""
MAX_TRACE = 8000

MAX_NODES = 10_000
"""Parts of a tree of arguments or outputs."""
MAX_DEPTH = 64
MAX_DIMENSIONS = 64
"""torch has no more."""
MAX_ELEMENTS = 1 << 48
"""Of one tensor."""

MAX_CONTAINERS = 50_000
"""Objects and lists of one message, told by its brackets before it is read: an empty one takes 3 bytes there and 72 here."""

MAX_RECORDS = 6000
"""Of what ran on a device, per rank and batch."""
MAX_KERNEL_NAMES = 2000
MAX_INSTRUCTIONS = 64
"""Of an emulated GPU, of different names; no kernel has as many."""
MAX_NS = 600_000_000_000

LONG_LATE_S = 0.3
"""How late one rank is told of one call, for each repeat of the plan, where a candidate's own code waits for its peers, and how
long an emulated GPU waits for it: whoever gives up before that goes on with what is there. Barriers of the library wait for
ever, or raise."""

_OF_NCCL = re.compile(r"[^<(]*\bnccl[A-Za-z]*(?:DevKernel|Kernel_)")
_OF_NVSHMEM = re.compile(
    r"(?<![A-Za-z_])(?:(?:rdxn|reducescatter|fcollect|broadcast|alltoall)_on_stream|nvshmemi_reduce)_kernel(?![a-z_])"
)

_HOST_COLLECTIVE = re.compile(
    r"p?nccl(?:AllReduce|Broadcast|Bcast|Reduce|AllGather|ReduceScatter|All[tT]oAll|Gather|Scatter|Send|Recv|PutSignal)"
    r"|nvshmemx_(?!(?:\w+_)?(?:barrier|barrier_all|sync|sync_all|quiet|fence|signal_op|wait_until\w*)_on_stream$)"
    r"\w+_on_stream"
)


def is_host_collective(function: str) -> bool:
    """A function of NCCL or NVSHMEM that the host calls to have data moved; what sets them up, and barriers and signals, move
    none. On windows NCCL may use copy engines, and then no kernel of its own tells. Of NVSHMEM only those on a stream: the
    names of others are also those of device functions."""
    return len(function) <= MAX_NAME and _HOST_COLLECTIVE.fullmatch(function) is not None


def is_library(kernel: str) -> bool:
    """A kernel of a communication library, by its name: for NCCL, that of the function. A candidate's own kernel may be called
    nccl_something and have a parameter of type `ncclDevComm`. Of NVSHMEM, what its host collectives launch: what sets it up
    and its barriers, which every allocation makes, move no data."""
    of_nccl = _OF_NCCL.match(kernel.replace("(anonymous namespace)", ""))
    return of_nccl is not None or _OF_NVSHMEM.search(kernel) is not None


def clean(text: str, most: int) -> str:
    """Text that fits into a message: cut, and without halves of surrogate pairs, which a file name or an exception may hold."""
    return text[:most].encode(errors="replace").decode()
