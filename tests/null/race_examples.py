"""A race as an analyser reports it: an all-reduce whose flag is relaxed."""

import json
from typing import Any

from pkb.types.race import RaceProof, read_analysis

ACCESS = {
    "rank": 0, "kernel": "all_reduce", "block": 3, "thread": 17, "call": 1, "write": True, "what": "plain store",
    "file": "all_reduce.cu", "line": 6,
}  # fmt: skip
FINDING: dict[str, Any] = {
    "kind": "relaxed_where_release_acquire_is_needed",
    "count": 512,
    "memory": "symmetric allocation 0 of rank 0",
    "offset": 1024,
    "bytes": 2,
    "first": ACCESS,
    "second": ACCESS | {"rank": 1, "write": False, "what": "plain load", "line": 12},
    "missing": {
        "text": "the store of the flag must release, the load that sees it must acquire",
        "first": {"file": "all_reduce.cu", "line": 8, "what": "st.relaxed.sys"},
        "second": {"file": "all_reduce.cu", "line": 9, "what": "ld.relaxed.sys"},
    },
}
TIMELINE = [
    {"rank": 0, "order": 40, "what": "write", "file": "all_reduce.cu", "line": 6, "detail": ""},
    {"rank": 0, "order": 41, "what": "st.relaxed.sys", "file": "all_reduce.cu", "line": 8, "detail": "value 2"},
    {"rank": 1, "order": 57, "what": "ld.relaxed.sys", "file": "all_reduce.cu", "line": 9, "detail": "sees 41"},
    {"rank": 1, "order": 58, "what": "read", "file": "all_reduce.cu", "line": 12, "detail": ""},
]


def analysis(**changes: Any) -> dict[str, Any]:
    whole = {
        "events": 9000,
        "threads": 256,
        "truncated": False,
        "broken": False,
        "findings": [FINDING],
        "timeline": TIMELINE,
    }
    return whole | changes


def printed(**changes: Any) -> bytes:
    return json.dumps(analysis(**changes)).encode()


def proof(**changes: Any) -> RaceProof:
    found = read_analysis(printed(**changes))
    return RaceProof(1, 3, 2, "tiny", (7, 8, 9), "both", found.events, found.findings, found.timeline)


CANDIDATE = '''"""An all-reduce."""

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"

extern "C" __global__ void all_reduce(float* const* buffers, unsigned* const* pads, int rank, const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  buffers[rank][i] = in[i];
  __syncthreads();
  put_relaxed(pads[1 - rank], 1);
  while (get_relaxed(pads[rank]) != 1) {}
  __syncthreads();
  float sum = 0.f;
  for (int peer = 0; peer < 2; ++peer) sum += buffers[peer][i];
  out[i] = sum;
}
"""
KERNEL = kit.compile(SOURCE, name="all_reduce").kernel("all_reduce")
'''
