"""The device side of the window as CUDA C++: a keystream and a tree of hashes; and a kernel that notices company.

`open_arguments` is ChaCha with 8 rounds (RFC 8439's layout; no attack on 8 rounds is known that is better than trying keys),
which is meant to keep up with memory. `hash_segments` is BLAKE2s in its own tree mode with the batch's key as salt and
personalisation, so `hashlib.blake2s` says the same (tests/gpu/test_window_gpu.py).
"""

PARTS = 64
"""Tensors of one launch; as many addresses fit into a kernel's parameters with room to spare."""
CHACHA_BYTES = 64
LEAF_BYTES = 256
FANOUT = 8
LEVELS = 3
"""Above the leaves, inside one thread block."""
SEGMENT_BYTES = LEAF_BYTES * FANOUT**LEVELS
HASH_THREADS = FANOUT**LEVELS
DIGEST_BYTES = 32

SOURCE = """
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;

struct Parts { u64 address[64]; u64 bytes[64]; u64 first_segment[64]; u32 count; u32 first; };
struct Key { u32 word[8]; };
struct Salt { u32 word[4]; };

// -- ChaCha8 ----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ u32 left(u32 x, int by) { return x << by | x >> (32 - by); }

__device__ __forceinline__ void quarter(u32& a, u32& b, u32& c, u32& d) {
  a += b; d = left(d ^ a, 16);
  c += d; b = left(b ^ c, 12);
  a += b; d = left(d ^ a, 8);
  c += d; b = left(b ^ c, 7);
}

__device__ __forceinline__ void keystream(u32 (&x)[16], const Key& key, u32 block, u32 part, u32 rank, u32 slot) {
  const u32 start[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u, key.word[0], key.word[1], key.word[2],
                         key.word[3], key.word[4], key.word[5], key.word[6], key.word[7], block, part, rank, slot};
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = start[i];
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    quarter(x[0], x[4], x[8], x[12]);
    quarter(x[1], x[5], x[9], x[13]);
    quarter(x[2], x[6], x[10], x[14]);
    quarter(x[3], x[7], x[11], x[15]);
    quarter(x[0], x[5], x[10], x[15]);
    quarter(x[1], x[6], x[11], x[12]);
    quarter(x[2], x[7], x[8], x[13]);
    quarter(x[3], x[4], x[9], x[14]);
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] += start[i];
}

extern "C" __global__ void __launch_bounds__(256) open_arguments(Parts parts, Key key, u32 rank, u32 slot) {
  const u64 thread = blockIdx.x * (u64)blockDim.x + threadIdx.x, threads = gridDim.x * (u64)blockDim.x;
  for (u32 part = 0; part < parts.count; ++part) {
    const u64 bytes = parts.bytes[part];
    u8* const base = (u8*)parts.address[part];
    const bool wide = parts.address[part] % 16 == 0;
    for (u64 block = thread; block * 64 < bytes; block += threads) {
      u32 x[16];
      keystream(x, key, (u32)block, parts.first + part, rank, slot);
      u8* const here = base + block * 64;
      const u64 left_over = bytes - block * 64;
      if (wide && left_over >= 64) {
        uint4* const words = (uint4*)here;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint4 word = words[i];
          word.x ^= x[4 * i];
          word.y ^= x[4 * i + 1];
          word.z ^= x[4 * i + 2];
          word.w ^= x[4 * i + 3];
          words[i] = word;
        }
      } else {
#pragma unroll
        for (int i = 0; i < 64; ++i)
          if (i < left_over) here[i] ^= (u8)(x[i / 4] >> (8 * (i % 4)));
      }
    }
  }
}

// -- BLAKE2s ----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ u32 right(u32 x, int by) { return x >> by | x << (32 - by); }

__device__ __forceinline__ void mix(u32& a, u32& b, u32& c, u32& d, u32 x, u32 y) {
  a += b + x; d = right(d ^ a, 16);
  c += d; b = right(b ^ c, 12);
  a += b + y; d = right(d ^ a, 8);
  c += d; b = right(b ^ c, 7);
}

#define ROUND(a, b, c, d, e, f, g, h, i, j, k, l, n, o, p, q) \\
  mix(v[0], v[4], v[8], v[12], m[a], m[b]);                   \\
  mix(v[1], v[5], v[9], v[13], m[c], m[d]);                   \\
  mix(v[2], v[6], v[10], v[14], m[e], m[f]);                  \\
  mix(v[3], v[7], v[11], v[15], m[g], m[h]);                  \\
  mix(v[0], v[5], v[10], v[15], m[i], m[j]);                  \\
  mix(v[1], v[6], v[11], v[12], m[k], m[l]);                  \\
  mix(v[2], v[7], v[8], v[13], m[n], m[o]);                   \\
  mix(v[3], v[4], v[9], v[14], m[p], m[q]);

#define IV0 0x6a09e667u
#define IV1 0xbb67ae85u
#define IV2 0x3c6ef372u
#define IV3 0xa54ff53au
#define IV4 0x510e527fu
#define IV5 0x9b05688cu
#define IV6 0x1f83d9abu
#define IV7 0x5be0cd19u

__device__ __forceinline__ void compress(u32 (&h)[8], const u32 (&m)[16], u32 so_far, bool last) {
  u32 v[16] = {h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7],
               IV0, IV1, IV2, IV3, IV4 ^ so_far, IV5, last ? ~IV6 : IV6, IV7};
  ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
  ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
  ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4)
  ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8)
  ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13)
  ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9)
  ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11)
  ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10)
  ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5)
  ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0)
#pragma unroll
  for (int i = 0; i < 8; ++i) h[i] ^= v[i] ^ v[i + 8];
}

// The parameter block of a node: digest 32, no key, fanout 8, depth 255, leaves of 256 bytes, inner digests of 32.
__device__ __forceinline__ void begin_node(u32 (&h)[8], const Salt& salt, u64 number, u32 level) {
  h[0] = IV0 ^ (32u | 8u << 16 | 255u << 24);
  h[1] = IV1 ^ 256u;
  h[2] = IV2 ^ (u32)number;
  h[3] = IV3 ^ ((u32)(number >> 32) & 0xffffu | level << 16 | 32u << 24);
  h[4] = IV4 ^ salt.word[0];
  h[5] = IV5 ^ salt.word[1];
  h[6] = IV6 ^ salt.word[2];
  h[7] = IV7 ^ salt.word[3];
}

__device__ __forceinline__ void hash_leaf(u32 (&h)[8], const u8* data, u32 bytes, bool wide) {
  for (u32 done = 0; done < bytes; done += 64) {
    const u32 here = bytes - done < 64 ? bytes - done : 64;
    u32 m[16];
    if (wide && here == 64) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint4 word = ((const uint4*)(data + done))[i];
        m[4 * i] = word.x;
        m[4 * i + 1] = word.y;
        m[4 * i + 2] = word.z;
        m[4 * i + 3] = word.w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        u32 word = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (4 * i + j < here) word |= (u32)data[done + 4 * i + j] << (8 * j);
        m[i] = word;
      }
    }
    compress(h, m, done + here, done + here == bytes);
  }
}

__device__ __forceinline__ void hash_children(u32 (&h)[8], const u32* digests, u32 children) {
  for (u32 done = 0; done < children; done += 2) {
    u32 m[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) m[i] = i < 8 || done + 1 < children ? digests[8 * done + i] : 0;
    const u32 after = done + 2 < children ? done + 2 : children;
    compress(h, m, 32 * after, after == children);
  }
}

// One block of 512 threads a segment of 512 leaves; what is over of a part's last segment has fewer.
extern "C" __global__ void __launch_bounds__(512) hash_segments(Parts parts, Salt salt, u64 segments, u32* out) {
  __shared__ u32 digests[512 * 8];
  const u32 t = threadIdx.x;
  for (u64 segment = blockIdx.x; segment < segments; segment += gridDim.x) {
    u32 part = 0;
    while (part + 1 < parts.count && parts.first_segment[part + 1] <= segment) ++part;
    const u64 local = segment - parts.first_segment[part];
    const u64 bytes = parts.bytes[part] - local * (512 * 256);
    const u8* const data = (const u8*)parts.address[part] + local * (512 * 256);
    u32 nodes = bytes >= 512 * 256 ? 512 : (u32)((bytes + 255) / 256);
    u32 h[8];
    if (t < nodes) {
      const u64 rest = bytes - t * 256ull;
      begin_node(h, salt, local * 512 + t, 0);
      hash_leaf(h, data + t * 256ull, rest < 256 ? (u32)rest : 256, parts.address[part] % 16 == 0);
#pragma unroll
      for (int i = 0; i < 8; ++i) digests[8 * t + i] = h[i];
    }
    u64 first = local * 512;
#pragma unroll 1
    for (u32 level = 1; level <= 3; ++level) {
      const u32 children = nodes;
      nodes = (children + 7) / 8;
      first /= 8;
      __syncthreads();
      if (t < nodes) {
        begin_node(h, salt, first + t, level);
        hash_children(h, digests + 64 * t, children - 8 * t < 8 ? children - 8 * t : 8);
      }
      __syncthreads();
      if (t < nodes) {
#pragma unroll
        for (int i = 0; i < 8; ++i) digests[8 * t + i] = h[i];
      }
    }
    __syncthreads();
    if (t < 8) out[8 * segment + t] = digests[t];
    __syncthreads();
  }
}

"""

COMPANY = """
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u64 now_ns() {
  u64 time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

// Two blocks of 1024 threads are all that fits on an SM: a block of anybody else's makes one of ours wait for the
// others to end. And a context that is time-sliced with ours leaves gaps in time.
extern "C" __global__ void __launch_bounds__(1024, 2) occupy(u32 steps, u64* out) {
  __shared__ u64 begin;
  if (threadIdx.x == 0) begin = now_ns();
  __syncthreads();
  u32 x = threadIdx.x;
  u64 before = begin, gap = 0;
  for (u32 step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < 64; ++i) asm volatile("mad.lo.u32 %0, %0, 1664525, 1013904223;" : "+r"(x));
    if (threadIdx.x == 0) {
      const u64 now = now_ns();
      if (now - before > gap) gap = now - before;
      before = now;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    out[3 * blockIdx.x] = begin;
    out[3 * blockIdx.x + 1] = now_ns();
    out[3 * blockIdx.x + 2] = gap;
  }
}
"""
