"""TMA into an address that is read from a mailbox in memory, beside system-scope flags."""
# expect: tma sm_load_store
# known gap: the address is loaded as a number from own memory; nothing in the text says whose memory it is

from pkb import kit

SRC = r"""
struct Mail { unsigned long long to; unsigned flag; };
extern "C" __global__ void serve(Mail* box, unsigned* const* pads, int rank, int world) {
  __shared__ __align__(128) char tile[1024];
  unsigned s = __cvta_generic_to_shared(tile);
  asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(pads[0] + rank), "r"(1) : "memory");
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(box->to), "r"(s), "r"(1024) : "memory");
}
"""
KERNEL = kit.compile(SRC).kernel("serve")


def solution(x, box):
    stage = kit.staging(1024, x.device)
    KERNEL[1, 32](box, *kit.barrier_pads(stage.handle))
    return x
