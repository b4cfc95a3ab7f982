"""Hyena's long convolution: three launches, two tensors exchanged in place of four, and the whole FFT in shared memory.

1. send: z = x2 * v, rounded, is written to the rank that owns the channel, in natural order of positions.
2. convolve: a block a channel. Modulo x^N - i the product of two real sequences of length N has the first half of their
   convolution as its real part and the second as its imaginary part ("right-angle" convolution). So a complex FFT of N >= L
   weighted real values replaces a real one of 2 L: up to N = 16384 it fits into shared memory, in float32. Lags below 0,
   which the circle of 2 L closes for a long filter, go to the filter's imaginary part: exact for any filter. The bias is a
   constant added to the spectrum. Longer sequences, to 131072, take a first radix-8 step straight from z as it is read,
   and a last one through scratch memory. A block makes a filter's spectrum once for all channels that it has of a group.
   y, rounded, is written to the rank that owns the position.
3. gate: x1 * y, transposed through a tile in shared memory.

Sent: 2 (W-1)/W B C l e bytes, in two phases. Device memory: x1, x2, v, h and the result once, z and y twice; for long
sequences also 24 N bytes of scratch a channel. No block waits but the last one of a grid: when all blocks have written,
it tells the peers and waits for them, so `send` ends when all of z is there and `convolve` when all of y is. One region
for each is enough: a rank sends the next z after all ranks have convolved, and the next y after all have gated, since
they send z after that. float64, and sequences beyond 131072, are convolved by torch.fft between the same exchanges.
"""

from ctypes import Structure, c_int32, c_uint32, c_uint64

import torch
import torch.distributed as dist

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < n; ++i)
#define INLINE __device__ __forceinline__

struct Peers {
  char* const* stages;  // each starts with signals, a channel for each exchange, and from 512 bytes on a counter for each
  int rank, world;
  u32 epoch;
};
// Positions of all ranks: `pieces` runs of `length` a rank, 2 if zigzag. Run c of the whole sequence is the first of rank
// c, or the second of rank 2 world - 1 - c.
struct Runs {
  u64 inverse;  // 2^48 / length + 1: t * inverse >> 48 is t / length
  int pieces, length;
};

__device__ void finish(const Peers& p, int exchange) {
  __shared__ bool last;
  u32* const* signals = reinterpret_cast<u32* const*>(p.stages);
  u32* arrived = signals[p.rank] + 128 + exchange;
  __syncthreads();
  if (threadIdx.x == 0) last = add_acq_rel_gpu(arrived, 1) == blocks_in_grid() - 1;
  __syncthreads();
  if (!last) return;
  if (threadIdx.x == 0) *arrived = 0;
  announce(signals, p.rank, p.world, exchange, p.epoch);
  await_all(signals, p.rank, p.world, exchange, p.epoch);
}

// x2 * v to the owners of the channels; or back, and without v, to those of the positions. A warp takes a run of a row.
template <class T>
__device__ void send(Peers p, const char* x2, const char* v, int batch, int own, Runs runs, u64 region, int back) {
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
  finish(p, back);
}

// The transform. Complex numbers are float2. Backwards is forwards on conjugates, so there is one code for both.

INLINE float2 add(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
INLINE float2 sub(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
INLINE float2 mul(float2 a, float2 b) { return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
__device__ __noinline__ float2 root(float angle) {  // exp(-i pi angle)
  float s, c;
  sincospif(angle, &s, &c);
  return make_float2(c, -s);
}

// Radix 4 over a, then R / 4 over b, of x[R / 4 * a + b]; the result stands in natural order. R is 2, 4, 8 or 16.
template <int R>
INLINE void dft(float2* x) {
  if constexpr (R == 2) {
    const float2 a = x[0];
    x[0] = add(a, x[1]), x[1] = sub(a, x[1]);
  } else if constexpr (R == 4) {
    const float2 a = add(x[0], x[2]), b = sub(x[0], x[2]), c = add(x[1], x[3]), d = sub(x[1], x[3]);
    const float2 e = make_float2(d.y, -d.x);  // -i d
    x[0] = add(a, c), x[1] = add(b, e), x[2] = sub(a, c), x[3] = sub(b, e);
  } else {
    constexpr float C1 = 0.92387953251f, C2 = 0.70710678119f, C3 = 0.38268343236f;
    constexpr float COS[14] = {0.f, C3, C2, C1, 1.f, C1, C2, C3, 0.f, -C3, -C2, -C1, -1.f, -C1};  // 2 pi (k - 4) / 16
    constexpr int B = R / 4;
    float2 t[B][4];
    EACH(b, B) {
      EACH(a, 4) t[b][a] = x[B * a + b];
      dft<4>(t[b]);
      EACH(c, 4) if (b * c) t[b][c] = mul(t[b][c], make_float2(COS[16 / R * b * c + 4], -COS[16 / R * b * c]));
    }
    EACH(c, 4) {
      float2 y[B];
      EACH(b, B) y[b] = t[b][c];
      dft<B>(y);
      EACH(d, B) x[c + 4 * d] = y[d];
    }
  }
}

// x[q] *= u * v^q
INLINE void twiddle(float2 (&x)[16], float2 u, float2 v) {
  const float2 v2 = mul(v, v), v4 = mul(v2, v2), low[4] = {make_float2(1.f, 0.f), v, v2, mul(v2, v)};
  EACH(d, 4) {
    EACH(e, 4) x[4 * d + e] = mul(x[4 * d + e], e ? mul(u, low[e]) : u);
    u = mul(u, v4);
  }
}

// Value m of sixteen that stand `gap` apart: one free place after every 16 keeps all passes without bank conflicts. (The
// gap is a power of two and the first index, modulo 16 gaps, is below one: so the places of all 16 differ by constants.)
INLINE u32 place(u32 index) { return index + index / 16; }
template <int gap>
INLINE float2& tooth(float2* first, int m) { return first[m * gap + m * gap / 16]; }

// One pass of radix 16 inside pieces of 16 * gap, in place.
template <int gap>
INLINE void pass(float2 (&x)[16], float2* data, const float2* table, bool back) {
  const u32 j = threadIdx.x % gap;
  float2* first = data + place(threadIdx.x / gap * (16 * gap) + j);
  __syncthreads();
  EACH(m, 16) x[m] = tooth<gap>(first, m);
  if (back) twiddle(x, make_float2(1.f, 0.f), table[j]);
  dft<16>(x);
  if (!back) twiddle(x, make_float2(1.f, 0.f), table[j]);
  EACH(m, 16) tooth<gap>(first, m) = x[m];
}

// From 16 values that stand M / 16 apart, in registers, to 16 of a spectrum in the order of the passes: decimation in
// frequency, and in time backwards, so nothing is ever reordered. `use` changes them, to go back (to conjugates), or
// returns false to stop there. turns: exp(-2 pi i j / n) for j < n / 16, n = M, M / 16, M / 256.
template <int LOG, class F>
INLINE void transform(float2 (&x)[16], float2* data, const float2* turns, float2 u, F use) {
  constexpr int THREADS = (1 << LOG) / 16, MIDDLE = (LOG - 1) / 4 - 1;  // passes of radix 16 after the first
  constexpr int LAST = 1 << (LOG - 4 * (MIDDLE + 1));                   // the last pass: radix 2, 4 or 16
  float2 *own = data + place(threadIdx.x), *ends = data + place(16 * threadIdx.x);
  dft<16>(x);
  twiddle(x, u, turns[threadIdx.x]);
  EACH(m, 16) tooth<THREADS>(own, m) = x[m];  // where this thread alone loads, at the end
#pragma unroll 1  // one code for both ways
  for (int p = 0; p < 2 * MIDDLE; ++p) {
    if (p == MIDDLE) {
      __syncthreads();
      EACH(m, 16) x[m] = ends[m];
      EACH(s, 16 / LAST) dft<LAST>(x + s * LAST);
      if (!use()) return;
      EACH(s, 16 / LAST) dft<LAST>(x + s * LAST);
      EACH(m, 16) ends[m] = x[m];
    }
    const bool back = p >= MIDDLE;
    if (MIDDLE == 1 || p == 0 || p == 3) pass<THREADS / 16>(x, data, turns + THREADS, back);
    else if constexpr (MIDDLE == 2) pass<THREADS / 256>(x, data, turns + THREADS + THREADS / 16, back);
  }
  __syncthreads();
  EACH(m, 16) x[m] = tooth<THREADS>(own, m);
  twiddle(x, u, turns[threadIdx.x]);
  dft<16>(x);
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
INLINE void in_dtype(int kind, F f) {
  if (kind == 0) f(Lanes<f32>{});
  else if (kind == 1) f(Lanes<bf16>{});
  else f(Lanes<f16>{});
}

template <int LOG>
INLINE void convolve(const Peers& p, const Work& w) {
  constexpr int M = 1 << LOG, THREADS = M / 16;
  extern __shared__ float2 data[];
  __shared__ float2 turns[THREADS * 17 / 16 + 8], weights[16 * STEPS], crosses[STEPS * STEPS];
  const int tid = threadIdx.x, steps = w.steps, size = steps * M, S = w.kind == 0 ? 4 : 2;
  const float scale = 1.f / size;
#pragma unroll 1
  for (int n = M, at = 0; n >= 16; at += n / 16, n /= 16)
    if (tid < n / 16) turns[at + tid] = root(2.f * tid / n);
  // A weight of exp(i pi t / (2 N)) on position t moves all frequencies by a quarter: q becomes q - 1/4. Of t = j + k M /
  // 16 + m M, `weights` has the share of k, `crosses` that of m with the outer radix, for each q; that of j is `u` below.
  if (tid < steps * 16) weights[tid] = root((tid % 16) * (4 * (tid / 16) - 1) / (32.f * steps));
  if (tid < steps * steps) crosses[tid] = root((tid % steps) * (4 * (tid / steps) - 1) / (2.f * steps));
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
      const float2 u = root(tid * (4 * q - 1) * 0.5f * scale);
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
      transform<LOG>(x, data, turns, u, [&] {
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
  finish(p, 1);
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
TYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
HEAD = 1024  # bytes before the regions
IN_BLOCK = (12, 13, 14)  # binary logarithms of what a block transforms at once
STEPS = 8
CALLS: dict[int, int] = {}


class Peers(Structure):
    _fields_ = [("stages", c_uint64), ("rank", c_int32), ("world", c_int32), ("epoch", c_uint32)]


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
    at_z, at_y = HEAD, HEAD + -(-nbytes // 16) * 16
    stage = kit.staging(2 * at_y - at_z, device, name="hyena", group=group)
    epoch = CALLS[id(stage)] = CALLS.get(id(stage), 0) + 1
    peers = Peers(kit.buffers(stage.handle).value, rank, world, epoch & 0xFFFFFFFF)
    send, sizes = MODULE.kernel(f"send_{TYPES[dtype]}"), (kit.i32(batch), kit.i32(own), runs)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    rows = min(4 * processors, -(-batch * channels * pieces // 16))
    send[rows, 512](peers, x2, v, *sizes, at_z, kit.i32(0))

    if dtype in KINDS and length <= STEPS << IN_BLOCK[-1]:
        steps = 1 if length <= 1 << IN_BLOCK[-1] else STEPS
        log = next(bits for bits in IN_BLOCK if length <= steps << bits)
        kernel, threads, shared = MODULE.kernel(f"convolve_{log}"), (1 << log) // 16, (1 << log) // 16 * 17 * 8
        blocks = min(kernel.resident_blocks(threads, shared=shared), batch * own)
        scratch = torch.empty((blocks, 2, steps << log, 2), dtype=torch.float32, device=device)
        work = Work(h.data_ptr(), bias.data_ptr(), scratch.data_ptr(), at_z, at_y)
        work.batch, work.own, work.group_dim, work.filter = batch, own, group_dim, h.shape[1]
        work.length, work.steps, work.kind, work.runs = length, steps, KINDS[dtype], runs
        kernel[blocks, threads, shared](peers, work)
    else:
        z = stage.buffer[at_z : at_z + nbytes].view(dtype).view(batch, own, length)
        y = _convolve(z, h, bias, rank * own, num_groups // world, group_dim)
        send[rows, 512](peers, y, 0, *sizes, at_y, kit.i32(1))

    out = torch.empty((batch, local, channels), dtype=dtype, device=device)
    grid = (-(-local // 64), -(-channels // 64), batch)
    MODULE.kernel(f"gate_{TYPES[dtype]}")[grid, 256](x1, stage.buffer[at_y:], out, kit.i32(channels), kit.i32(local))
    return out


def _convolve(z, h, bias, first, groups, group_dim):
    wide = torch.promote_types(z.dtype, torch.float32)
    length, own = z.shape[-1], groups * group_dim
    filters = h[first // group_dim : first // group_dim + groups].to(wide)
    spectrum = torch.fft.rfft(filters, n=2 * length).repeat_interleave(group_dim, dim=0)
    z = z.to(wide)
    y = torch.fft.irfft(torch.fft.rfft(z, n=2 * length) * spectrum, n=2 * length)[..., :length]
    return (y + z * bias[first : first + own].to(wide)[:, None]).to(h.dtype).contiguous()
