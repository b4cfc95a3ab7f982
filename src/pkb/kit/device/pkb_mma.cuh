// pkb_mma.cuh: the product of one tile on the tensor cores, for kernels that send a tile away as soon as it is there.
//
// It is mma.sync with cp.async (sm_80 and later): on a Hopper about 60 % of what a library's wgmma can reach. It pays
// where a launch, a trip through memory or a wait for the whole product costs more than that: below some GFLOP.
//
// Use: MmaTile<128, 128, 4> is a tile of 128 x 128 whose operands come through four stages. A block of 256 threads
// calls `multiply<T>` with T = bf16 or f16 and `memory`, shared_bytes of dynamic shared memory aligned to 16 bytes;
// afterwards `get` reads the rounded tile from there, 16 bytes at a time. Sums are kept in fp32 and rounded once. All
// threads must be done with the tile (__syncthreads, with which announce() begins) before `multiply` is called again.
#pragma once
#include "pkb.cuh"

namespace pkb {

// ---------------------------------------------------------------------------------------------------------------------
// The instructions

// 16 bytes from global to shared memory, past L1, without waiting; zeros if `bytes` is 0. Done when wait_async says so.
__device__ __forceinline__ void copy_async(void* to, const void* from, u32 bytes) {
  const u32 place = (u32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(bytes) : "memory");
}
// Closes a group of this thread's copies, which may be empty. wait_async<N> waits for all groups but the last N.
__device__ __forceinline__ void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_async() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Four 8 x 8 matrices into a warp's registers; lane l has the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix(u32 (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((u32)__cvta_generic_to_shared(p)) : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(u32 (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((u32)__cvta_generic_to_shared(p)) : "memory");
}

// c += a b for 16 x 16 by 16 x 8.
__device__ __forceinline__ void mma(bf16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma(f16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---------------------------------------------------------------------------------------------------------------------
// The tile: eight warps, two down and four across, in steps of 32 along the contraction

template <u32 ROWS, u32 COLUMNS, u32 STAGES>
struct MmaTile {
  static_assert((ROWS == 64 || ROWS == 128) && (COLUMNS == 64 || COLUMNS == 128) && STAGES >= 2, "no such tile");
  static constexpr u32 rows = ROWS, columns = COLUMNS, threads = 256, step = 32;
  static constexpr u32 chunks = COLUMNS / 8;  // of 16 bytes, in a row of the tile
  static constexpr u32 a_bytes = ROWS * step * 2, stage_bytes = (ROWS + COLUMNS) * step * 2;
  static constexpr u32 row_bytes = 2 * COLUMNS + 16;  // of the finished tile: padded against bank conflicts
  static constexpr u32 shared_bytes = STAGES * stage_bytes;
  static_assert(ROWS * row_bytes <= shared_bytes, "the finished tile takes the place of the stages");

  // Chunk `chunk` (8 columns) of row `row` of the finished tile.
  __device__ __forceinline__ static uint4 get(const char* memory, u32 row, u32 chunk) {
    return ld_weak(memory + row * row_bytes + 16 * chunk);
  }

  // The tile's rows times B's columns [column, column + COLUMNS). Row r of the tile is row row_of(r) of A, any rows in
  // any order; a negative one is a row of zeros. A is (any, k), B is (k, n), both contiguous and aligned to 16 bytes; n
  // and k are multiples of 8.
  template <class T, class RowOf>
  __device__ __forceinline__ static void multiply(char* memory, const char* A, const char* B, u32 column, u32 n, u32 k,
                                                  RowOf row_of) {
    const u32 thread = threadIdx.x, lane = thread % 32;
    const u32 warp_row = thread / 128 * (ROWS / 2), warp_column = thread / 32 % 4 * (COLUMNS / 4);
    // What this thread fetches in a step: chunk thread % 4 of some rows of A, chunk thread % chunks of some rows of B.
    constexpr u32 A_ROWS = threads / 4, B_ROWS = threads / chunks;
    const char* a_from[ROWS / A_ROWS];
#pragma unroll
    for (u32 j = 0; j < ROWS / A_ROWS; ++j) {
      const int row = row_of(thread / 4 + j * A_ROWS);
      a_from[j] = row < 0 ? nullptr : A + ((u64)row * k + thread % 4 * 8) * 2;
    }
    const u32 b_column = column + thread % chunks * 8;
    const char* b_from = B + ((u64)(thread / chunks) * n + b_column) * 2;
    auto load = [&](u32 number) {
      char* stage = memory + number % STAGES * stage_bytes;
      const u32 k0 = number * step;
#pragma unroll
      for (u32 j = 0; j < ROWS / A_ROWS; ++j) {
        const bool valid = a_from[j] && k0 + thread % 4 * 8 < k;
        const char* from = valid ? a_from[j] + 2 * k0 : A;
        copy_async(stage + place_a(thread / 4 + j * A_ROWS, thread % 4), from, valid ? 16 : 0);
      }
#pragma unroll
      for (u32 j = 0; j < step / B_ROWS; ++j) {
        const u32 row = thread / chunks + j * B_ROWS;
        const bool valid = b_column < n && k0 + row < k;
        const char* from = valid ? b_from + (u64)(k0 + j * B_ROWS) * n * 2 : B;
        copy_async(stage + a_bytes + place_b(row, thread % chunks), from, valid ? 16 : 0);
      }
    };

    float sum[ROWS / 32][COLUMNS / 32][4] = {};
    const u32 steps = (k + step - 1) / step;
#pragma unroll 1
    for (u32 number = 0; number < STAGES - 1; ++number) {
      if (number < steps) load(number);
      commit_async();
    }
#pragma unroll 1
    for (u32 number = 0; number < steps; ++number) {
      wait_async<STAGES - 2>();
      __syncthreads();  // this step's stage is full, and the one before it has been read
      if (number + STAGES - 1 < steps) load(number + STAGES - 1);
      commit_async();
      const char* a = memory + number % STAGES * stage_bytes;
      const char* b = a + a_bytes;
#pragma unroll
      for (u32 half = 0; half < 2; ++half) {
        u32 left[ROWS / 32][4], right[COLUMNS / 64][4];
#pragma unroll
        for (u32 i = 0; i < ROWS / 32; ++i)
          ldmatrix(left[i], a + place_a(warp_row + 16 * i + lane % 16, 2 * half + lane / 16));
#pragma unroll
        for (u32 j = 0; j < COLUMNS / 64; ++j)
          ldmatrix_trans(right[j], b + place_b(16 * half + lane % 16, warp_column / 8 + 2 * j + lane / 16));
#pragma unroll
        for (u32 i = 0; i < ROWS / 32; ++i)
#pragma unroll
          for (u32 j = 0; j < COLUMNS / 32; ++j)
            mma(T{}, sum[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
      }
    }
    wait_async<0>();
    __syncthreads();  // all have read the stages, which the finished tile now overwrites
#pragma unroll
    for (u32 i = 0; i < ROWS / 32; ++i)
#pragma unroll
      for (u32 j = 0; j < COLUMNS / 32; ++j)
#pragma unroll
        for (u32 high = 0; high < 2; ++high) {
          const u32 row = warp_row + 16 * i + 8 * high + lane / 4, at = warp_column + 8 * j + lane % 4 * 2;
          const u32 pair = Lanes<T>::pack2(sum[i][j][2 * high], sum[i][j][2 * high + 1]);
          *reinterpret_cast<u32*>(memory + row * row_bytes + 2 * at) = pair;
        }
    __syncthreads();
  }

 private:
  // Where 16 bytes lie in a stage, so that eight rows of a column of them fall into eight different bank groups.
  __device__ __forceinline__ static u32 place_a(u32 row, u32 chunk) { return row * 64 + (chunk ^ (row >> 1 & 3)) * 16; }
  __device__ __forceinline__ static u32 place_b(u32 row, u32 chunk) {
    return row * 2 * COLUMNS + (chunk ^ (row & 7)) * 16;
  }
};

}  // namespace pkb
