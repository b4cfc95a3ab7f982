"""Gathered masks with overlap suppression: decided on bits, a row of the overlap matrix on one rank, written once.

1. publish: each rank copies its masks and scores into its stage, and stores one bit a pixel to every rank: `decide`
   reads bits for many pairs, and what is read from a peer does not stay in this GPU's L2.
2. decide: a block takes an object and 32 others, a warp one other that could suppress it (only those whose last
   occlusion says so); intersection and union are popcounts of AND and OR, exact, and one division rounds as the
   reference's. A hit is stored to every rank. With many objects rank r decides for objects r, r + W, ...: n^2 / W
   pairs; with few, all decide all.
3. write: masks are fetched straight from their owners' stages and written as float32; a suppressed one is not fetched.

Links: (n - n_r) (P e + P / 8) bytes into a GPU for P pixels of e bytes (less what is suppressed), in two dependent
steps or, shared out, three. Device memory: 4 n P written.

No block waits but the last one of a grid (pkb::finish_grid): `publish` ends when all masks are there, and `decide`,
where shared out, when all hits are. Calls use two regions in turn, and why that is enough is said at kit.exchange.
"""

from ctypes import Structure, c_int32, c_uint64

import torch
import torch.distributed as dist

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < n; ++i)

constexpr int OTHERS = 32;  // objects that one block holds its own against

// Where things lie in a region, the same on all ranks, and who owns which objects.
struct Layout {
  u64 flags, scores, bits, masks;  // from the start of a region
  int first[65];                   // of each rank's objects; then the number of all
  int pixels, row;                 // row: bytes of one object's bits, a multiple of 16, zero behind the last pixel
};

__device__ int owner_of(const Layout& at, int object) {
  int rank = 0;
  while (object >= at.first[rank + 1]) ++rank;
  return rank;
}

template <class T>
__device__ void publish(const Peers& p, const Layout& at, const char* masks, const char* scores) {
  constexpr int N = Lanes<T>::count, S = Lanes<T>::size, VECTORS = 8 / N;  // a thread takes 8 pixels: a byte of bits
  const u64 region = p.next_region();
  char* stage = p.stage + region;
  const int own = at.first[p.rank + 1] - at.first[p.rank], all = at.first[p.world];
  const u64 start = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;
  const bool whole = at.pixels % 8 == 0 && (reinterpret_cast<u64>(masks) & 15) == 0;
  for (u64 i = start; i < (u64)own * at.row; i += step) {
    const u64 object = i / at.row, pixel = 8 * (i % at.row), from = (object * at.pixels + pixel) * S;
    u32 byte = 0;
    if (whole && pixel < at.pixels) {
      EACH(v, VECTORS) {
        const uint4 data = ld_once(masks + from + 16 * v);
        st_weak(stage + at.masks + from + 16 * v, data);
        float x[N] = {};
        Lanes<T>::accumulate(x, data);
        EACH(e, N) byte |= (x[e] > 0.f) << (v * N + e);
      }
    } else {
      for (int e = 0; e < 8 && pixel + e < at.pixels; ++e) {
        const char* p = masks + from + e * S;
        char* to = stage + at.masks + from + e * S;
        if constexpr (S == 4) *reinterpret_cast<u32*>(to) = *reinterpret_cast<const u32*>(p);
        else *reinterpret_cast<unsigned short*>(to) = *reinterpret_cast<const unsigned short*>(p);
        byte |= (Lanes<T>::get(p) > 0.f) << e;
      }
    }
    for (u32 k = 0; k < p.world; ++k) {  // to everybody: they are read for many pairs
      const u32 next = p.rank + k, peer = next < p.world ? next : next - p.world;
      p.stages[peer][region + at.bits + (u64)at.first[p.rank] * at.row + i] = (char)byte;
    }
  }
  for (u64 i = start; i < all; i += step) reinterpret_cast<u32*>(stage + at.flags)[i] = 0;
  for (u64 i = start; i < own; i += step)
    reinterpret_cast<float*>(stage + at.scores)[i] = Lanes<T>::get(scores + S * i);
  finish_grid(p, 0);
}

extern "C" __global__ void decide(const __grid_constant__ Peers p, const __grid_constant__ Layout at,
                                  const long long* occluded, float threshold, int reverse, int shared_out) {
  __shared__ int hit;
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const u64 region = p.this_region();
  const int object = shared_out ? p.rank + p.world * blockIdx.x : blockIdx.x;
  if (threadIdx.x == 0) hit = 0;
  __syncthreads();
  if (object < at.first[p.world]) {
    const long long mine = occluded[object];
    const char *all_bits = p.stage + region + at.bits, *own = all_bits + (u64)object * at.row;
    const int end = min((int)(blockIdx.y + 1) * OTHERS, at.first[p.world]);
    for (int other = blockIdx.y * OTHERS + threadIdx.x / 32; other < end; other += warps) {
      const long long theirs = occluded[other];
      const bool loses = reverse ? mine < theirs : mine > theirs;
      // One lane looks whether another warp has a hit: each for itself might see another answer, and part the warp.
      if (!loses || theirs <= -1 || other == object || __shfl_sync(~0u, *(volatile int*)&hit, 0)) continue;
      const char* bits = all_bits + (u64)other * at.row;
      u32 both = 0, either = 0;
#pragma unroll 4
      for (int v = lane; v < at.row / 16; v += 32) {
        const uint4 a = ld_weak(own + 16 * v), b = ld_stream(bits + 16 * v);
        both += __popc(a.x & b.x) + __popc(a.y & b.y) + __popc(a.z & b.z) + __popc(a.w & b.w);
        either += __popc(a.x | b.x) + __popc(a.y | b.y) + __popc(a.z | b.z) + __popc(a.w | b.w);
      }
      both = __reduce_add_sync(~0u, both);
      either = __reduce_add_sync(~0u, either);
      const float overlap = __fdiv_rn((float)both, fmaxf((float)either, 1.f));
      if (overlap >= threshold) *(volatile int*)&hit = 1;  // all lanes, the same
    }
    __syncthreads();
    // Several blocks may have the same object: they store the same.
    if (hit && threadIdx.x < (shared_out ? p.world : 1))
      reinterpret_cast<u32*>(p.stages[shared_out ? threadIdx.x : p.rank] + region + at.flags)[object] = 1;
  }
  if (shared_out) finish_grid(p, 1);
}

template <class T>
__device__ void write(const Peers& p, const Layout& at, float* masks, float* scores, char* suppressed) {
  constexpr int N = Lanes<T>::count, S = Lanes<T>::size, AHEAD = 2, TILE = AHEAD * 8;
  const u64 region = p.this_region();
  const u32* flags = reinterpret_cast<const u32*>(p.stage + region + at.flags);
  const int all = at.first[p.world], tiles = (at.pixels + TILE * blockDim.x - 1) / (TILE * blockDim.x);
  if (blockIdx.x == 0)
    for (int i = threadIdx.x; i < all; i += blockDim.x) {
      const int owner = owner_of(at, i);
      scores[i] = reinterpret_cast<const float*>(p.stages[owner] + region + at.scores)[i - at.first[owner]];
      suppressed[i] = flags[i] != 0;
    }
  const bool whole = at.pixels % 8 == 0;
  for (int unit = blockIdx.x; unit < all * tiles; unit += gridDim.x) {
    const int turned = unit / tiles + at.first[p.rank];  // own objects first
    const int object = turned < all ? turned : turned - all;
    const int owner = owner_of(at, object), tile = unit % tiles * TILE * blockDim.x;
    const char* from = p.stages[owner] + region + at.masks + (u64)(object - at.first[owner]) * at.pixels * S;
    float* to = masks + (u64)object * at.pixels;
    const bool off = flags[object];
    if (whole) {
      uint4 data[AHEAD][8 / N];
      if (!off)
#pragma unroll
        for (int i = 0; i < AHEAD; ++i)
          EACH(v, 8 / N) {
            const int pixel = tile + (i * blockDim.x + threadIdx.x) * 8 + v * N;
            if (pixel < at.pixels) data[i][v] = ld_stream(from + (u64)pixel * S);
          }
      EACH(i, AHEAD) {
        const int pixel = tile + (i * blockDim.x + threadIdx.x) * 8;
        if (pixel >= at.pixels) continue;
        float x[8];
        EACH(v, 8 / N) {
          float part[N] = {};
          if (!off) Lanes<T>::accumulate(part, data[i][v]);
          EACH(e, N) x[v * N + e] = off ? -10.f : part[e];
        }
        const float low[4] = {x[0], x[1], x[2], x[3]}, high[4] = {x[4], x[5], x[6], x[7]};
        st_stream(to + pixel, Lanes<f32>::pack(low));
        st_stream(to + pixel + 4, Lanes<f32>::pack(high));
      }
    } else {
      const int end = min(tile + TILE * (int)blockDim.x, at.pixels);
      for (int pixel = tile + threadIdx.x; pixel < end; pixel += blockDim.x)
        to[pixel] = off ? -10.f : Lanes<T>::get(from + (u64)pixel * S);
    }
  }
}

#define KERNELS(T)                                                                                                     \
  extern "C" __global__ void publish_##T(const __grid_constant__ Peers p, const __grid_constant__ Layout at,           \
                                         const char* masks, const char* scores) {                                      \
    publish<T>(p, at, masks, scores);                                                                                  \
  }                                                                                                                    \
  extern "C" __global__ void write_##T(const __grid_constant__ Peers p, const __grid_constant__ Layout at,             \
                                       float* masks, float* scores, char* suppressed) {                                \
    write<T>(p, at, masks, scores, suppressed);                                                                        \
  }
KERNELS(f32) KERNELS(bf16) KERNELS(f16)
"""
MODULE = kit.compile(SOURCE, name="iou_suppression")
OTHERS, THREADS = 32, 256
MANY_PAIR_PIXELS = 1 << 28


class Layout(Structure):
    _fields_ = [
        *((name, c_uint64) for name in ("flags", "scores", "bits", "masks")),
        ("first", c_int32 * 65),
        ("pixels", c_int32),
        ("row", c_int32),
    ]


def solution(
    low_res_masks_local,
    obj_scores_local,
    num_obj_per_gpu,
    last_occluded,
    iou_threshold=0.7,
    reverse=False,
    group=None,
):
    group = group if group is not None else dist.group.WORLD
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    own, height, width = low_res_masks_local.shape
    n, pixels, size = sum(num_obj_per_gpu), height * width, low_res_masks_local.element_size()
    if own != num_obj_per_gpu[rank] or obj_scores_local.shape[0] != own:
        raise ValueError(f"rank {rank} should have {num_obj_per_gpu[rank]} objects")
    if world > 64:
        raise ValueError("at most 64 ranks: Layout has a place for each")
    if len(num_obj_per_gpu) != world or last_occluded.numel() != n:
        raise ValueError("num_obj_per_gpu needs an entry for each rank, last_occluded one for each object")
    device = low_res_masks_local.device
    out = torch.empty((n, height, width), dtype=torch.float32, device=device)
    scores = torch.empty((n,), dtype=torch.float32, device=device)
    suppressed = torch.empty((n,), dtype=torch.bool, device=device)
    if n == 0:  # on all ranks
        return out, scores, suppressed

    # Room for all objects on one rank: calls with other splits share one stage.
    row, slots = -(-pixels // 128) * 16, -(-4 * n // 16) * 16
    sizes = (slots, slots, n * row, -(-n * pixels * size // 16) * 16)
    peers = kit.exchange("iou_suppression", region_bytes=sum(sizes), device=device, group=group).peers
    at, place = Layout(pixels=pixels, row=row), 0
    for name, nbytes in zip(("flags", "scores", "bits", "masks"), sizes, strict=True):
        setattr(at, name, place)
        place += nbytes
    for index, count in enumerate(num_obj_per_gpu):
        at.first[index + 1] = at.first[index] + count

    kind = kit.lanes(low_res_masks_local.dtype)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    shared_out = world > 1 and n * n * pixels >= MANY_PAIR_PIXELS
    masks_in, scores_in = low_res_masks_local.contiguous(), obj_scores_local.contiguous()
    blocks = max(1, min(8 * processors, -(-own * row // THREADS)))
    MODULE.kernel(f"publish_{kind}")[blocks, THREADS](peers, at, masks_in, scores_in)
    MODULE.kernel("decide")[(-(-n // world) if shared_out else n, -(-n // OTHERS)), THREADS](
        peers,
        at,
        last_occluded.to(torch.int64).contiguous(),
        kit.f32(iou_threshold),
        kit.i32(bool(reverse)),
        kit.i32(shared_out),
    )
    blocks = max(1, min(16 * processors, n * -(-pixels // (16 * THREADS))))
    MODULE.kernel(f"write_{kind}")[blocks, THREADS](peers, at, out, scores, suppressed)
    return out, scores, suppressed
