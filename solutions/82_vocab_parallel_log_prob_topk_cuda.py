"""Log-probabilities under top-k and top-p from vocabulary slices: each slice's k largest logits travel, not its rows.

1. select: one block a token finds the k largest logits of its slice, exactly, in one read of it: a row is held in
   registers (if it is 16-byte aligned). The maxima of 128 disjoint parts of it give a first threshold, the k-th largest
   of them: at least k logits reach it, and seldom many more, which go to a list; those equal to it are only counted.
   Should the list overflow, a bisection over the bits finds the k-th largest itself. Sent: k sorted values, how many
   logits of the slice equal the last of them, and the target's logit. The global k-th largest is at least every slice's
   own, so this is all that lies above it, ties included.
2. merge: a block a token merges W sorted lists by binary search, adds the ties that no list holds, takes the
   probabilities from the small end and writes the result.

Few tokens: every rank sends to all and merges all tokens, one exchange, 4 (k + 2) T bytes to each peer. Many: a token's
owner alone merges it and hands the result out, (W-1)/W 4 (k + 2) T bytes and a second exchange of 4 T / W to each. No
block waits but the last one of a grid (pkb::finish_grid), so a kernel ends when everybody's data are there. Calls with
one exchange use two regions in turn (kit.exchange says why that is enough), those with two need one (`_stage` says
why). Where top-k is off, or k is above 1024, whole rows travel in the same way and torch filters them.
"""

import torch
import torch.distributed as dist

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < n; ++i)

constexpr int CACHED = 10;  // 16-byte vectors of a row that a thread keeps
constexpr int LIST = 1024;  // logits above the first threshold
constexpr int SMALL = 512;  // rows up to this many go to the list whole
constexpr int PARTS = 128;  // of a row, for the first threshold
#define LOWEST __int_as_float(0xff800000)

// Keys in the order of the floats.
__device__ u32 key_of(float x) {
  const u32 b = __float_as_uint(x);
  return b & 0x80000000u ? ~b : b | 0x80000000u;
}
__device__ float value_of(u32 k) { return __uint_as_float(k & 0x80000000u ? k ^ 0x80000000u : ~k); }

struct Found {
  float list[LIST], best[LIST], parts[PARTS];
  u32 count, ties, total;
  float threshold;
};

// A row in 16-byte vectors, thread after thread; past its end stands minus infinity, which changes no sum. Of an
// aligned row, the first CACHED vectors of a thread are in its registers; a rare pass reads them again.
template <class T>
struct Row {
  static constexpr int N = Lanes<T>::count;
  const char* start;
  int width, vectors;
  bool aligned;  // start and end
  __device__ uint4 load(int vector) const {
    if (aligned && vector < vectors) return ld_once(start + 16ull * vector);
    float x[N];
    EACH(e, N) {
      const int i = vector * N + e;
      x[e] = i < width ? Lanes<T>::get(start + (u64)i * Lanes<T>::size) : LOWEST;
    }
    return Lanes<T>::pack(x);
  }
  template <class F>
  __device__ void each(const uint4* cached, bool use, F f) const {
    if (use) EACH(i, CACHED) f(cached[i]);
#pragma unroll 1
    for (int v = threadIdx.x + (use ? CACHED * blockDim.x : 0); v < vectors; v += blockDim.x) f(load(v));
  }
};

// List of what is above the threshold, count of what equals it.
template <class T>
__device__ __forceinline__ void collect(const Row<T>& row, const uint4* cached, bool use, Found& s) {
  const float threshold = s.threshold;
  u32 ties = 0;
  row.each(cached, use, [&](uint4 v) {
    if (!(top_lane<T>(v) >= threshold)) return;
    float x[Lanes<T>::count] = {};
    Lanes<T>::accumulate(x, v);  // 0 + x: a negative zero becomes positive
    EACH(e, Lanes<T>::count) {
      if (x[e] > threshold) {
        const u32 at = atomicAdd(&s.count, 1u);
        if (at < LIST) s.list[at] = x[e];
      }
      ties += x[e] == threshold;
    }
  });
  if (ties) atomicAdd(&s.ties, ties);
  __syncthreads();
}

// The threshold becomes the k-th largest logit itself, by bisection over the bits of its key.
template <class T>
__device__ __noinline__ void bisect(Row<T> row, int keep, Found& s) {
  constexpr int N = Lanes<T>::count;
  u32 found = 0;  // the largest key that at least `keep` logits reach
  for (u32 bit = 0x80000000u; bit; bit >>= 1) {
    const u32 candidate = found | bit;
    u32 reach = 0;
    row.each(nullptr, false, [&](uint4 v) {
      float x[N] = {};
      Lanes<T>::accumulate(x, v);
      EACH(e, N) reach += key_of(x[e]) >= candidate;
    });
    __syncthreads();
    if (threadIdx.x == 0) s.total = 0;
    __syncthreads();
    reach = __reduce_add_sync(~0u, reach);
    if (threadIdx.x % 32 == 0) atomicAdd(&s.total, reach);
    __syncthreads();
    if (s.total >= (u32)keep) found = candidate;
  }
  if (threadIdx.x == 0) s.threshold = value_of(found), s.count = s.ties = 0;
  __syncthreads();
  collect<T>(row, nullptr, false, s);
}

template <class T>
__device__ void select_row(const Row<T>& row, int keep, Found& s) {
  const int tid = threadIdx.x, threads = blockDim.x;
  __syncthreads();  // the last row's results are read
  if (tid == 0) s.count = s.ties = 0;
  if (row.width <= SMALL) {
    for (int i = tid; i < row.width; i += threads) s.list[i] = Lanes<T>::get(row.start + (u64)i * Lanes<T>::size) + 0.f;
    __syncthreads();
    if (tid == 0) s.count = row.width;
  } else {
    uint4 cached[CACHED], most = row.load(row.vectors);  // minus infinity
    if (row.aligned) EACH(i, CACHED) {
        const int v = tid + i * threads;
        cached[i] = v < row.vectors ? ld_once(row.start + 16ull * v) : most;
      }
    row.each(cached, row.aligned, [&](uint4 v) { most = max_lanes<T>(most, v); });
    const int lanes = threads / PARTS;
    float mine = top_lane<T>(most);
    for (int step = 1; step < lanes; step *= 2) mine = fmaxf(mine, __shfl_xor_sync(~0u, mine, step));
    if (tid % lanes == 0) s.parts[tid / lanes] = mine + 0.f;
    __syncthreads();
    bool exact = min(PARTS, (min(row.vectors, threads) + lanes - 1) / lanes) < keep;  // too few parts have logits
    if (!exact) {
      if (tid < PARTS) {
        const float x = s.parts[tid];
        int above = 0, same = 0;
#pragma unroll 8
        for (int i = 0; i < PARTS; ++i) above += s.parts[i] > x, same += s.parts[i] == x;
        if (above < keep && above + same >= keep) s.threshold = x;  // all who write, write the same
      }
      __syncthreads();
      collect<T>(row, cached, row.aligned, s);
      exact = s.count > LIST;
    }
    if (exact) bisect<T>(row, keep, s);
  }
  __syncthreads();
  const int count = s.count;
  for (int i = tid; i < count; i += threads) {
    const float x = s.list[i];
    int above = 0;
#pragma unroll 4
    for (int j = 0; j < count; ++j) above += s.list[j] > x || (s.list[j] == x && j < i);
    if (above < keep) s.best[above] = x;
  }
  for (int i = count + tid; i < keep; i += threads) s.best[i] = s.threshold;
  __syncthreads();
  if (count >= keep) {  // the last of the k came from the list: its ties are there
    if (tid == 0) s.ties = 0;
    __syncthreads();
    u32 ties = 0;
    for (int i = tid; i < count; i += threads) ties += s.list[i] == s.best[keep - 1];
    if (ties) atomicAdd(&s.ties, ties);
    __syncthreads();
  }
}

template <class T>
__device__ void select(const Peers& p, const char* logits, const long long* target, int tokens, int share, int width,
                       int keep) {
  __shared__ Found s;
  const u64 region = p.next_region();
  const u64 row_bytes = (u64)width * Lanes<T>::size;
  const bool aligned = ((reinterpret_cast<u64>(logits) | row_bytes) & 15) == 0;
  const int stride = keep + 2, receivers = share < tokens ? 1 : p.world;
  for (int token = blockIdx.x; token < tokens; token += gridDim.x) {
    const Row<T> row{logits + token * row_bytes, width, (width + Row<T>::N - 1) / Row<T>::N, aligned};
    select_row<T>(row, keep, s);
    const long long column = target[token] - (long long)p.rank * width;
    for (int i = threadIdx.x; i < receivers * stride; i += blockDim.x) {
      const int peer = receivers == 1 ? token / share : i / stride, e = i % stride;
      float x = e < keep ? s.best[e] : e == keep ? __uint_as_float(s.ties) : 0.f;
      if (e == keep + 1 && column >= 0 && column < width) x = Lanes<T>::get(row.start + column * Lanes<T>::size) + 0.f;
      float* to = reinterpret_cast<float*>(p.stages[peer] + region) + ((u64)p.rank * share + token % share) * stride;
      to[e] = x;
    }
  }
  finish_grid(p, 0);
}
#define SELECT(T)                                                                                                      \
  extern "C" __global__ void __launch_bounds__(1024, 1)                                                                \
      select_##T(const __grid_constant__ Peers p, const char* logits, const long long* target, int tokens, int share,  \
                 int width, int keep) {                                                                                \
    select<T>(p, logits, target, tokens, share, width, keep);                                                          \
  }
SELECT(f32) SELECT(bf16) SELECT(f16)

// How many of a list, sorted from the largest, stand before x: those above it, and with `same` those equal to it.
__device__ int before(const float* list, int length, float x, bool same) {
  int low = 0, high = length;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (list[middle] > x || (same && list[middle] == x)) low = middle + 1;
    else high = middle;
  }
  return low;
}
__device__ float sum_warp(float x) {
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// One warp: the log-probability of the target among k merged values, from the largest, and `extra` more of the last.
__device__ float log_prob(const float* merged, int k, u32 extra, float dropped_share, float target) {
  const int lane = threadIdx.x % 32;
  const float top = merged[0], kth = merged[k - 1];
  const float each = expf(kth - top);
  float sum = 0.f;
  for (int i = lane; i < k; i += 32) sum += expf(merged[i] - top);
  const float whole = sum_warp(sum) + extra * each;
  float kept = whole, smallest = kth;
  if (dropped_share >= 0.f) {
    const float limit = dropped_share * whole;
    // Copies of the k-th largest come first from the small end: n of them sum to n * each.
    const float copies = each > 0.f ? fminf(floorf(limit / each), (float)extra) : (float)extra;
    const float extra_kept = (float)extra - copies;
    float below = extra * each;  // all of smaller index from the small end
    kept = 0.f;
    int last_kept = 0;
    for (int first = (k - 1) / 32 * 32; first >= 0; first -= 32) {
      const int i = first + lane;
      const float x = i < k ? expf(merged[i] - top) : 0.f;
      float upward = x;  // the sum over lanes at and above this one
      for (int step = 1; step < 32; step *= 2) {
        const float more = __shfl_down_sync(~0u, upward, step);
        if (lane + step < 32) upward += more;
      }
      if (i < k && (below + upward > limit || i == 0)) kept += x, last_kept = max(last_kept, i);
      below += __shfl_sync(~0u, upward, 0);
    }
    kept = sum_warp(kept) + extra_kept * each;
    last_kept = __reduce_max_sync(~0u, last_kept);
    smallest = extra_kept > 0.f ? kth : merged[last_kept];
  }
  return target >= smallest ? (target - top) - logf(kept) : LOWEST;
}

extern "C" __global__ void merge(const __grid_constant__ Peers p, const long long* target, float* out, int tokens,
                                 int share, int width, int keep, int k, float dropped_share, u64 results) {
  extern __shared__ float lists[];
  const u64 region = p.this_region();
  float* merged = lists + p.world * keep;
  const bool all = share == tokens;
  const int stride = keep + 2;
  for (int index = blockIdx.x; index < share; index += gridDim.x) {
    const int token = all ? index : p.rank * share + index;
    const float* records = reinterpret_cast<const float*>(p.stages[p.rank] + region) + (u64)index * stride;
    const u64 next = (u64)share * stride;
    __syncthreads();
    for (int i = threadIdx.x; i < p.world * keep; i += blockDim.x) lists[i] = records[i / keep * next + i % keep];
    __syncthreads();
    for (int i = threadIdx.x; i < p.world * keep; i += blockDim.x) {
      const int own = i / keep;
      const float x = lists[i];
      int place = i % keep;
      for (int other = 0; other < p.world && place < k; ++other)
        if (other != own) place += before(lists + other * keep, keep, x, other < own);
      if (place < k) merged[place] = x;
    }
    __syncthreads();
    if (threadIdx.x >= 32) continue;
    const float kth = merged[k - 1];
    u32 same = 0;
    for (int r = threadIdx.x; r < p.world; r += 32) {
      const float* list = lists + r * keep;
      same += list[keep - 1] == kth ? __float_as_uint(records[r * next + keep])
                                    : before(list, keep, kth, true) - before(list, keep, kth, false);
    }
    same = __reduce_add_sync(~0u, same);
    const u32 extra = same - (k - before(merged, k, kth, false));
    const float x = records[target[token] / width * next + keep + 1];
    const float result = log_prob(merged, k, extra, dropped_share, x);
    if (all && threadIdx.x == 0) out[token] = result;
    for (int peer = threadIdx.x; !all && peer < p.world; peer += 32)
      reinterpret_cast<float*>(p.stages[peer] + region + results)[token] = result;
  }
  if (!all) finish_grid(p, 1);
}

// For what the above does not cover: to each rank its own rows, or to all of them the same values.
extern "C" __global__ void hand_out(const __grid_constant__ Peers p, const char* in, u64 bytes, u64 region,
                                    int exchange) {
  for (int n = 0; n < p.world; ++n) {
    const int peer = (p.rank + n) % p.world;
    copy_grid(p.stages[peer] + region + p.rank * bytes, exchange ? in : in + peer * bytes, bytes);
  }
  finish_grid(p, exchange);
}
"""
MODULE = kit.compile(SOURCE, name="log_prob_topk")
LARGEST_K = 1024
FEW_TOKENS = 512
CACHED = 10  # as in the kernel
ROWS = 1  # tokens that a block selects, one after another


def _stage(record_bytes, result_bytes, regions, device, group):
    """The exchange, and where results lie behind the records of a region.

    A call with two exchanges needs one region: records are written after all have merged, in the call before, and
    results after all have taken theirs, since they send records after that. A call with one exchange needs two.
    """
    records, results = (-(-nbytes // 16) * 16 for nbytes in (record_bytes, result_bytes))
    size = records + results
    return kit.exchange("log_prob_topk", region_bytes=size, regions=regions, device=device, group=group), records


def solution(vocab_parallel_logits, target, tp_group=None, top_k=None, top_p=1.0):
    group = tp_group if tp_group is not None else dist.group.WORLD
    world = dist.get_world_size(group)
    batch, seq, width = vocab_parallel_logits.shape
    tokens, vocab = batch * seq, width * world
    if tokens % world:
        raise ValueError(f"{batch} x {seq} tokens cannot be shared equally by {world} ranks")
    logits, target = vocab_parallel_logits.contiguous(), target.contiguous()
    if top_k is None or not 0 < min(top_k, vocab) <= LARGEST_K:
        return _whole_rows(logits, target, group, top_k, top_p).view(batch, seq)

    k = min(top_k, vocab)
    keep = min(k, width)
    share = tokens if tokens <= FEW_TOKENS or world == 1 else tokens // world
    regions = 2 if share == tokens else 1
    now, results = _stage(4 * world * share * (keep + 2), 4 * tokens, regions, logits.device, group)
    peers = now.peers
    out = torch.empty((batch, seq), dtype=torch.float32, device=logits.device)
    vectors = -(-width * logits.element_size() // 16)
    threads = next((n for n in (256, 512) if vectors <= n * CACHED), 1024)
    sizes = (kit.i32(tokens), kit.i32(share), kit.i32(width), kit.i32(keep))
    MODULE.kernel(f"select_{kit.lanes(logits.dtype)}")[-(-tokens // ROWS), threads](peers, logits, target, *sizes)
    dropped = kit.f32(1.0 - top_p if top_p is not None and top_p < 1.0 else -1.0)
    shared = 4 * (world * keep + k)
    MODULE.kernel("merge")[share, 128, shared](peers, target, out, *sizes, kit.i32(k), dropped, results)
    if share < tokens:
        first = now.region + results
        out.copy_(now.buffer[first : first + 4 * tokens].view(torch.float32).view(batch, seq))
    return out


def _whole_rows(logits, target, group, top_k, top_p):
    """Without a k that bounds what can be kept: an all-to-all of the rows, and torch's own operators on them."""
    rank, world, width = dist.get_rank(group), dist.get_world_size(group), logits.shape[-1]
    tokens, vocab = target.numel() // world, width * world
    nbytes = logits.numel() * logits.element_size()
    now, results = _stage(nbytes, 4 * target.numel(), 1, logits.device, group)
    region, stage, peers = now.region, now.buffer, now.peers
    results += region
    MODULE.kernel("hand_out")[64, 512](peers, logits, nbytes // world, region, kit.i32(0))
    received = stage[region : region + nbytes].view(logits.dtype).view(world, tokens, width)
    rows = received.transpose(0, 1).reshape(tokens, vocab)
    if top_k is not None and top_k > 0:
        kth = torch.topk(rows, min(top_k, vocab), dim=-1).values[:, -1:]
        rows = rows.masked_fill(rows < kth, float("-inf"))
    if top_p is not None and top_p < 1.0:
        ascending, index = rows.sort(dim=-1)
        drop = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1.0 - top_p
        drop[:, -1] = False
        rows = rows.masked_fill(torch.zeros_like(drop).scatter(1, index, drop), float("-inf"))
    mine = target.view(-1)[rank * tokens : (rank + 1) * tokens, None]
    log_prob = torch.log_softmax(rows.to(torch.float32), dim=-1).gather(1, mine).view(-1)
    MODULE.kernel("hand_out")[1, 512](peers, log_prob, 4 * tokens, results, kit.i32(1))
    return stage[results : results + 4 * target.numel()].view(torch.float32).clone()
