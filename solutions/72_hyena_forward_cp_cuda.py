"""Hyena's long convolution: three launches, two tensors exchanged in place of four, and the whole FFT in shared memory.

1. send: z = x2 * v, rounded, is written to the rank that owns the channel, in natural order of positions.
2. convolve: a block a channel. Modulo x^N - i the product of two real sequences of length N has the first half of
   their convolution as its real part and the second as its imaginary part ("right-angle" convolution). So a complex FFT
   of N >= L weighted real values replaces a real one of 2 L: up to N = 16384 it fits into shared memory, in float32.
   Lags below 0, which the circle of 2 L closes for a long filter, go to the filter's imaginary part: exact for any
   filter. The bias is a constant added to the spectrum. Longer sequences, to 131072, take a first radix-8 step straight
   from z as it is read, and a last one through scratch memory. A block makes a filter's spectrum once for all channels
   that it has of a group. y, rounded, is written to the rank that owns the position.
3. gate: x1 * y, transposed through a tile in shared memory.

Links: 2 (W-1)/W B C l e bytes in each direction of a GPU, peers in turn, in two dependent steps. Device memory: x1, x2,
v, h and the result once, z and y twice; for long sequences also 24 N bytes of scratch a channel. No block waits but the
last one of a grid (pkb::finish_grid): `send` ends when all of z is there and `convolve` when all of y is. One region
for each is enough: a rank sends the next z after all ranks have convolved, and the next y after all have gated, since
they send z after that. float64, and sequences beyond 131072, are convolved by torch.fft between the same exchanges.
"""

from ctypes import Structure, c_int32, c_uint64

import torch
import torch.distributed as dist

from pkb import kit

SOURCE = r"""
#include "pkb_fft.cuh"
using namespace pkb;
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < n; ++i)

// Positions of all ranks: `pieces` runs of `length` a rank, 2 if zigzag. Run c of the whole sequence is the first of
// rank c, or the second of rank 2 world - 1 - c.
struct Runs {
  u64 inverse;  // 2^48 / length + 1: t * inverse >> 48 is t / length
  int pieces, length;
};

// x2 * v to the owners of the channels; or back, and without v, to those of the positions. A warp takes a run of a row.
template <class T>
__device__ void send(const Peers& p, const char* x2, const char* v, int batch, int own, Runs runs, u64 region,
                     int back) {
  constexpr int S = Lanes<T>::size, N = Lanes<T>::count;
  const int lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32), channels = own * p.world;
  const bool aligned = ((reinterpret_cast<u64>(x2) | reinterpret_cast<u64>(v) | (u64)runs.length * S) & 15) == 0;
  const int whole = aligned ? runs.length / N : 0;
  for (int i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < batch * channels * runs.pieces; i += warps) {
    const int piece = i % runs.pieces, rest = i / runs.pieces, b = rest / channels;
    const int turned = (rest % channels + p.rank * own) % channels;  // not everybody to rank 0 first
    const int c = back ? p.rank * own + turned % own : turned, at = back ? turned / own : p.rank;
    const u64 by_position = (u64)(b * channels + c) * runs.pieces + piece;
    const u64 by_channel = (u64)(b * own + c % own) * p.world * runs.pieces + (piece ? 2 * p.world - 1 - at : at);
    const u64 from = (back ? by_channel : by_position) * runs.length * S;
    char* to = p.stages[back ? at : c / own] + region + (back ? by_position : by_channel) * runs.length * S;
#pragma unroll 4
    for (int i = lane; i < whole; i += 32) {
      wide_t<T> a[N] = {}, m[N] = {};
      Lanes<T>::accumulate(a, ld_once(x2 + from + 16 * i));
      if (v) Lanes<T>::accumulate(m, ld_once(v + from + 16 * i));
      EACH(e, N) a[e] = v ? a[e] * m[e] : a[e];
      st_stream(to + 16 * i, Lanes<T>::pack(a));
    }
    for (int i = whole * N + lane; i < runs.length; i += 32)
      Lanes<T>::put(to + i * S, Lanes<T>::get(x2 + from + i * S) * (v ? Lanes<T>::get(v + from + i * S) : 1));
  }
  finish_grid(p, back);
}

constexpr int STEPS = 8;  // the outer radix of long sequences

struct Work {
  const char *h, *bias;     // of all groups and channels
  float2* scratch;          // of each block: a spectrum, then the transforms of all steps
  u64 z, y;                 // regions
  int batch, own, group_dim, filter, length, steps, kind;  // steps: 1 or STEPS
  Runs runs;
};

// Values are read and written in one of three dtypes: a uniform branch, rather than three kernels to build.
template <class F>
__device__ __forceinline__ void in_dtype(int kind, F f) {
  if (kind == 0) f(Lanes<f32>{});
  else if (kind == 1) f(Lanes<bf16>{});
  else f(Lanes<f16>{});
}

template <int LOG>
__device__ __forceinline__ void convolve(const Peers& p, const Work& w) {
  using F = Fft<LOG>;
  constexpr int M = F::size, THREADS = F::threads;
  extern __shared__ float2 data[];
  __shared__ float2 turns[F::turns], weights[16 * STEPS], crosses[STEPS * STEPS];
  const int tid = threadIdx.x, steps = w.steps, size = steps * M, S = w.kind == 0 ? 4 : 2;
  const float scale = 1.f / size;
  F::prepare(turns);
  // A weight of exp(i pi t / (2 N)) on position t moves all frequencies by a quarter: q becomes q - 1/4. Of t = j +
  // k M / 16 + m M, `weights` has the share of k, `crosses` that of m with the outer radix, for each q; that of j is
  // `u` below.
  if (tid < steps * 16) weights[tid] = root_of_one((tid % 16) * (4 * (tid / 16) - 1) / (32.f * steps));
  if (tid < steps * steps) crosses[tid] = root_of_one((tid % steps) * (4 * (tid / steps) - 1) / (2.f * steps));
  __syncthreads();

  const int each = w.batch * w.group_dim, groups = w.own / w.group_dim, items = groups * each;
  const int end = (int)((long long)items * (blockIdx.x + 1) / gridDim.x);
  float2 *filter = w.scratch + (u64)blockIdx.x * 2 * size, *parts = filter + size;
  float* whole = reinterpret_cast<float*>(data);
  int item = (int)((long long)items * blockIdx.x / gridDim.x), ready = -1;
  while (item < end) {  // a filter, or a channel of one sequence
    const int group = item / each, b = item % each / w.group_dim, channel = group * w.group_dim + item % w.group_dim;
    const bool make = ready != group;  // the filter's spectrum, before the item
    const char* row = make ? w.h + (u64)(p.rank * groups + group) * w.filter * S
                           : p.stages[p.rank] + w.z + (u64)(b * w.own + channel) * w.length * S;
    float bias = 0.f;
    in_dtype(w.kind, [&](auto lanes) { bias = lanes.get(w.bias + (u64)(p.rank * w.own + channel) * S) * scale; });
    float2 x[16];
#pragma unroll 1
    for (int q = 0; q < steps; ++q) {
      const float2 u = root_of_one(tid * (4 * q - 1) * 0.5f * scale);
      EACH(k, 16) x[k] = make_float2(0.f, 0.f);
#pragma unroll 1
      for (int m = 0; m < (make ? 2 : 1) * steps; ++m) {
        // Once more for a filter: lags from L + 1 are those below 0 on the circle of 2 L; minus i times them.
        const bool wrap = m >= steps;
        float2 factor = crosses[q * steps + m % steps];
        if (wrap) factor = make_float2(factor.y, -factor.x);
        const int low = wrap ? w.length + 1 : 0, high = make && (wrap || w.filter < w.length) ? w.filter : w.length;
        const int at = tid + m % steps * M + (wrap ? 2 * w.length - size : 0);
        in_dtype(w.kind, [&](auto lanes) {
          float value[16];
          EACH(k, 16) {
            const int i = at + k * THREADS;
            value[k] = i >= low && i < high ? lanes.get(row + (u64)i * lanes.size) : 0.f;
          }
          EACH(k, 16) x[k] = add(x[k], make_float2(value[k] * factor.x, value[k] * factor.y));
        });
      }
      EACH(k, 16) x[k] = mul(x[k], weights[q * 16 + k]);
      float2* spectrum = filter + q * M + tid;  // what this thread has of it, to write and to read
      F::run(x, data, turns, u, [&] {
        if (make) {
          EACH(k, 16) spectrum[k * THREADS] = make_float2(x[k].x * scale, x[k].y * scale);
          __syncthreads();  // all have read before the next transform stores
          return false;
        }
        EACH(k, 16) {
          const float2 y = mul(x[k], add(spectrum[k * THREADS], make_float2(bias, 0.f)));
          x[k] = make_float2(y.x, -y.y);
        }
        return true;
      });
      EACH(k, 16) x[k] = mul(x[k], weights[q * 16 + k]);
      if (steps > 1 && !make) EACH(k, 16) parts[q * M + k * THREADS + tid] = x[k];
    }
    if (make) {
      ready = group;
      continue;
    }
    __syncthreads();  // all have read what the passes left, and written their parts
    if (steps == 1) {
      EACH(k, 16) whole[k * THREADS + tid] = x[k].x;
      __syncthreads();
    }
    const u64 rows = (u64)(b * w.own * p.world + p.rank * w.own + channel) * w.runs.pieces;
    const auto find = [&](int t) {  // position t, on the rank that has it
      const int run = (int)(t * w.runs.inverse >> 48);
      const bool second = run >= p.world;
      char* to = p.stages[second ? 2 * p.world - 1 - run : run] + w.y;
      return to + ((rows + second) * w.runs.length + t - run * w.runs.length) * S;
    };
#pragma unroll 1
    for (int t = 2 * tid; t < M; t += 2 * THREADS) {  // two neighbours a time, M apart
      float* pairs = whole + t;
      if (steps > 1) {
        pairs = whole + 2 * tid;  // this thread's own
#pragma unroll 1
        for (int e = 0; e < 2; ++e) {
          float2 part[STEPS];
          EACH(q, STEPS) part[q] = parts[q * M + t + e];
          dft<STEPS>(part);
          EACH(m, STEPS) pairs[2 * m * THREADS + e] = mul(part[m], crosses[m]).x;
        }
      }
#pragma unroll 1
      for (int m = 0, at = t; m < steps && at < w.length; ++m, at += M) {
        const float2 y = *reinterpret_cast<const float2*>(pairs + 2 * m * THREADS);
        char* to = find(at);
        char* next = w.runs.length % 2 ? find(min(at + 1, w.length - 1)) : nullptr;
        in_dtype(w.kind, [&](auto lanes) {
          if (next) {
            lanes.put(to, y.x);
            if (at + 1 < w.length) lanes.put(next, y.y);
          } else if constexpr (lanes.size == 2) {
            *reinterpret_cast<u32*>(to) = lanes.pack2(y.x, y.y);
          } else {
            *reinterpret_cast<float2*>(to) = y;
          }
        });
      }
    }
    __syncthreads();  // all have read before the next item stores
    ++item;
  }
  finish_grid(p, 1);
}
#define CONVOLVE(LOG)                                                                      \
  extern "C" __global__ void __launch_bounds__((1 << LOG) / 16, 16384 >> LOG)              \
      convolve_##LOG(const __grid_constant__ Peers p, const __grid_constant__ Work w) {    \
    convolve<LOG>(p, w);                                                                   \
  }
CONVOLVE(12) CONVOLVE(13) CONVOLVE(14)

// x1 * y, transposed

template <class T>
__device__ void gate(const char* x1, const char* y, char* out, int channels, int local) {
  constexpr int S = Lanes<T>::size, TILE = 64;
  __shared__ __align__(16) char tile[TILE * (TILE + 1) * S];
  const int s0 = blockIdx.x * TILE, c0 = blockIdx.y * TILE, lane = threadIdx.x % TILE, row = threadIdx.x / TILE;
  const u64 start = (u64)blockIdx.z * channels * local;
#pragma unroll 8
  for (int c = row; c < TILE; c += 4)
    if (c0 + c < channels && s0 + lane < local) {
      const u64 at = (start + (u64)(c0 + c) * local + s0 + lane) * S;
      Lanes<T>::put(tile + (c * (TILE + 1) + lane) * S, Lanes<T>::get(x1 + at) * Lanes<T>::get(y + at));
    }
  __syncthreads();
#pragma unroll 8
  for (int s = row; s < TILE; s += 4)
    if (s0 + s < local && c0 + lane < channels)
      Lanes<T>::put(out + (start + (u64)(s0 + s) * channels + c0 + lane) * S,
                    Lanes<T>::get(tile + (lane * (TILE + 1) + s) * S));
}
#define KERNELS(T)                                                                                                     \
  extern "C" __global__ void send_##T(const __grid_constant__ Peers p, const char* x2, const char* v, int batch,       \
                                      int own, Runs runs, u64 region, int back) {                                      \
    send<T>(p, x2, v, batch, own, runs, region, back);                                                                 \
  }                                                                                                                    \
  extern "C" __global__ void gate_##T(const char* x1, const char* y, char* out, int channels, int local) {             \
    gate<T>(x1, y, out, channels, local);                                                                              \
  }
KERNELS(f32) KERNELS(bf16) KERNELS(f16) KERNELS(f64)
"""
MODULE = kit.compile(SOURCE, name="hyena_forward_cp")
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
IN_BLOCK = (12, 13, 14)  # binary logarithms of what a block transforms at once
STEPS = 8


class Runs(Structure):
    _fields_ = [("inverse", c_uint64), ("pieces", c_int32), ("length", c_int32)]


class Work(Structure):
    _fields_ = [(name, c_uint64) for name in ("h", "bias", "scratch", "z", "y")] + [
        *((name, c_int32) for name in ("batch", "own", "group_dim", "filter", "length", "steps", "kind")),
        ("runs", Runs),
    ]


def solution(x1_seq, x2_seq, v_seq, h, conv_bias, num_groups, group_dim, group=None, with_zigzag_splitting=True):
    group = group if group is not None else dist.group.WORLD
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    batch, channels, local = x1_seq.shape
    pieces = 2 if with_zigzag_splitting else 1
    if num_groups % world or num_groups * group_dim != channels or local % pieces:
        raise ValueError(f"{num_groups} groups of {group_dim} of {channels} channels, {local} positions, {world} ranks")
    x1, x2, v, h, bias = (x.contiguous() for x in (x1_seq, x2_seq, v_seq, h, conv_bias))
    own, length, dtype, device = channels // world, world * local, x1.dtype, x1.device
    runs = Runs((1 << 48) // (local // pieces) + 1, pieces, local // pieces)
    nbytes = batch * channels * local * x1.element_size()
    room = -(-nbytes // 16) * 16
    now = kit.exchange("hyena", region_bytes=2 * room, regions=1, device=device, group=group)
    peers, at_z, stage = now.peers, now.region, now.buffer
    at_y = at_z + room
    send, gate = (MODULE.kernel(f"{name}_{kit.lanes(dtype)}") for name in ("send", "gate"))
    sizes = kit.i32(batch), kit.i32(own), runs
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    rows = min(4 * processors, -(-batch * channels * pieces // 16))
    # All memory and the largest kernel before the first launch that waits for peers.
    out = torch.empty((batch, local, channels), dtype=dtype, device=device)
    convolve = None
    if dtype in KINDS and length <= STEPS << IN_BLOCK[-1]:
        steps = 1 if length <= 1 << IN_BLOCK[-1] else STEPS
        log = next(bits for bits in IN_BLOCK if length <= steps << bits)
        kernel, threads, shared = MODULE.kernel(f"convolve_{log}"), (1 << log) // 16, (1 << log) // 16 * 17 * 8
        blocks = min(kernel.resident_blocks(threads, shared=shared), batch * own)
        scratch = torch.empty((blocks, 2, steps << log, 2), dtype=torch.float32, device=device)
        work = Work(h.data_ptr(), bias.data_ptr(), scratch.data_ptr(), at_z, at_y)
        work.batch, work.own, work.group_dim, work.filter = batch, own, group_dim, h.shape[1]
        work.length, work.steps, work.kind, work.runs = length, steps, KINDS[dtype], runs
        convolve = kernel[blocks, threads, shared]

    send[rows, 512](peers, x2, v, *sizes, at_z, kit.i32(0))
    if convolve is not None:
        convolve(peers, work)
    else:
        z = stage[at_z : at_z + nbytes].view(dtype).view(batch, own, length)
        y = _convolve(z, h, bias, rank * own, num_groups // world, group_dim)
        send[rows, 512](peers, y, 0, *sizes, at_y, kit.i32(1))
    grid = (-(-local // 64), -(-channels // 64), batch)
    gate[grid, 256](x1, stage[at_y:], out, kit.i32(channels), kit.i32(local))
    return out


def _convolve(z, h, bias, first, groups, group_dim):
    wide = torch.promote_types(z.dtype, torch.float32)
    length, own = z.shape[-1], groups * group_dim
    filters = h[first // group_dim : first // group_dim + groups].to(wide)
    spectrum = torch.fft.rfft(filters, n=2 * length).repeat_interleave(group_dim, dim=0)
    z = z.to(wide)
    y = torch.fft.irfft(torch.fft.rfft(z, n=2 * length) * spectrum, n=2 * length)[..., :length]
    return (y + z * bias[first : first + own].to(wide)[:, None]).to(h.dtype).contiguous()
