// What kernels of today are written with, each with a twin that forgets to wait (`right` is false). Pure CUDA: nvcc has to accept it too.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <cuda_pipeline.h>
#include <stdint.h>

#include <utility>
#pragma nv_diag_suppress static_var_with_dynamic_init
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
constexpr int T = 128;  // threads of a block, and numbers that it turns round

__device__ __forceinline__ uint32_t sa(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__global__ void of_a_thread(const float* in, float* out, bool right) {
  __shared__ float a[T], b[T];
  auto pipe = cuda::make_pipeline();
  const int i = blockIdx.x * T + threadIdx.x;
  pipe.producer_acquire();
  cuda::memcpy_async(&a[threadIdx.x], in + i, sizeof(float), pipe);
  pipe.producer_commit();
  pipe.producer_acquire();
  cuda::memcpy_async(&b[threadIdx.x], in + i, sizeof(float), pipe);
  pipe.producer_commit();
  pipe.consumer_wait();
  pipe.consumer_release();
  if (right) pipe.consumer_wait();  // for the second of two
  __syncthreads();
  out[i] = a[T - 1 - threadIdx.x] + b[T - 1 - threadIdx.x];
}
template <bool ACQUIRES, bool WAITS>
__global__ void of_a_block(const float* in, float* out, int turns) {
  __shared__ alignas(16) float stage[2][T];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  float sum = 0.f;
  for (int turn = 0; turn <= turns; ++turn) {
    if (turn < turns) {
      if (ACQUIRES) pipe.producer_acquire();
      cuda::memcpy_async(block, stage[turn % 2], in + blockIdx.x * T, cuda::aligned_size_t<16>(sizeof(stage[0])), pipe);
      pipe.producer_commit();
    }
    if (turn == 0) continue;
    if (WAITS) pipe.consumer_wait();
    sum += stage[(turn - 1) % 2][T - 1 - threadIdx.x];
    pipe.consumer_release();
  }
  out[blockIdx.x * T + threadIdx.x] = sum;
}
__global__ void in_two_roles(const float* in, float* out, bool right) {
  __shared__ float stage[T];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state;
  auto block = cg::this_thread_block();
  const bool producer = threadIdx.x < 32;
  auto pipe = cuda::make_pipeline(block, &state, producer ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
  if (producer) {
    pipe.producer_acquire();
    for (int i = threadIdx.x; i < T; i += 32) cuda::memcpy_async(&stage[i], in + blockIdx.x * T + i, sizeof(float), pipe);
    pipe.producer_commit();
  } else {
    if (right) pipe.consumer_wait();
    for (int i = threadIdx.x - 32; i < T; i += T - 32) out[blockIdx.x * T + i] = stage[T - 1 - i];
    if (!right) pipe.consumer_wait();  // too late
    pipe.consumer_release();
  }
}
__global__ void at_a_barrier(const float* in, float* out, bool right) {
  __shared__ alignas(16) float tile[T];
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  auto block = cg::this_thread_block();
  if (block.thread_rank() == 0) init(&bar, block.size());
  block.sync();
  cuda::memcpy_async(block, tile, in + blockIdx.x * T, sizeof(tile), bar);
  auto token = bar.arrive();
  if (right) bar.wait(std::move(token));
  out[blockIdx.x * T + threadIdx.x] = tile[T - 1 - threadIdx.x];
}
__global__ void by_functions(const float* in, float* out, bool right) {
  __shared__ alignas(16) float tile[T];
  if (threadIdx.x < T / 4) __pipeline_memcpy_async(&tile[4 * threadIdx.x], in + blockIdx.x * T + 4 * threadIdx.x, 16);
  __pipeline_commit();
  if (right) __pipeline_wait_prior(0);
  __syncthreads();
  out[blockIdx.x * T + threadIdx.x] = tile[T - 1 - threadIdx.x];
}
__global__ void of_a_group(const float* in, float* out, bool right) {
  __shared__ float tile[2][T];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, tile[0], in + blockIdx.x * T, sizeof(tile[0]));
  cg::memcpy_async(block, tile[1], (int)T, in + blockIdx.x * T, (int)T);
  if (right) cg::wait(block);
  else cg::wait_prior<1>(block);
  out[blockIdx.x * T + threadIdx.x] = tile[0][T - 1 - threadIdx.x] + tile[1][T - 1 - threadIdx.x];
}
__global__ void at_an_mbarrier(const float* in, float* out, bool right) {
  __shared__ float tile[T];
  __shared__ alignas(8) uint64_t bar;
  if (threadIdx.x == 0) ptx::mbarrier_init(&bar, T);
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(sa(&tile[threadIdx.x])), "l"(in + blockIdx.x * T + threadIdx.x) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(sa(&bar)) : "memory");
  if (right)
    asm volatile("{ .reg .pred P;\nAGAIN_%=:\nmbarrier.try_wait.parity.shared::cta.b64 P, [%0], 0;\n@P bra DONE_%=;\nbra AGAIN_%=;\nDONE_%=:\n}" ::"r"(sa(&bar)) : "memory");
  out[blockIdx.x * T + threadIdx.x] = tile[T - 1 - threadIdx.x];
}
// A test that says no is none: it must be asked again.
__global__ void asked_once(const float* in, float* out, bool right) {
  __shared__ float tile[T];
  __shared__ alignas(8) uint64_t bar;
  if (threadIdx.x == 0) ptx::mbarrier_init(&bar, T);
  __syncthreads();
  tile[threadIdx.x] = in[blockIdx.x * T + threadIdx.x];
  const uint64_t phase = ptx::mbarrier_arrive(&bar);
  bool over = ptx::mbarrier_test_wait(&bar, phase);
  while (right && !over) over = ptx::mbarrier_test_wait(&bar, phase);
  out[blockIdx.x * T + threadIdx.x] = tile[T - 1 - threadIdx.x];
}

// --- clusters ---
// Each block of two takes its numbers from the other's shared memory. `left`: it stays until the other has done so.
template <bool MEETS, bool STAYS>
__global__ void __cluster_dims__(2, 1, 1) exchanged(const float* in, float* out) {
  __shared__ float tile[T];
  auto cluster = cg::this_cluster();
  const unsigned me = cluster.block_rank(), other = 1 - me;
  tile[threadIdx.x] = in[blockIdx.x * T + threadIdx.x];
  if (MEETS) cluster.sync();
  else __syncthreads();
  out[blockIdx.x * T + threadIdx.x] = cluster.map_shared_rank(tile, other)[T - 1 - threadIdx.x];
  if (STAYS) cluster.sync();
}
// Between an arrival and its wait nothing is ordered.
__global__ void arrived(const float* in, float* out, bool right) {
  extern __shared__ float tile[];
  uint32_t me, there;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(me));
  if (right) tile[threadIdx.x] = in[blockIdx.x * T + threadIdx.x];
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  if (!right) tile[threadIdx.x] = in[blockIdx.x * T + threadIdx.x];
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(sa(&tile[T - 1 - threadIdx.x])), "r"(me ^ 1));
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(there));
  out[blockIdx.x * T + threadIdx.x] = v;
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
// A message to the other block's shared memory, and an arrival at its mbarrier.
__global__ void __cluster_dims__(2) told(const float* in, float* out, bool right) {
  __shared__ float tile[T];
  __shared__ alignas(8) uint64_t bar;
  auto cluster = cg::this_cluster();
  const unsigned other = cluster.block_rank() ^ 1;
  if (threadIdx.x == 0) ptx::mbarrier_init(&bar, T);
  cluster.sync();
  *cluster.map_shared_rank(&tile[threadIdx.x], other) = in[blockIdx.x * T + threadIdx.x];
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(sa(&bar)), "r"(other));
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
  if (right)
    while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &bar, 0)) {}
  out[blockIdx.x * T + threadIdx.x] = tile[T - 1 - threadIdx.x];
  cluster.sync();
}
// One bulk copy to both blocks of a cluster.
__global__ void __cluster_dims__(2) cast(const float* in, float* out, bool) {
  __shared__ alignas(128) float tile[T];
  __shared__ alignas(8) uint64_t bar;
  auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&bar, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, (uint32_t)sizeof(tile));
  }
  cluster.sync();
  if (threadIdx.x == 0 && cluster.block_rank() == 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(sa(tile)), "l"(in + blockIdx.x * T), "r"((uint32_t)sizeof(tile)), "r"(sa(&bar)), "h"((short)3) : "memory");
  while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {}
  out[blockIdx.x * T + threadIdx.x] = tile[T - 1 - threadIdx.x];
  cluster.sync();
}

// --- launches that may begin early ---
__global__ void ahead(const float* in, float* middle) {
  cudaTriggerProgrammaticLaunchCompletion();
  middle[blockIdx.x * T + threadIdx.x] = in[blockIdx.x * T + threadIdx.x];
}
__global__ void behind(const float* middle, float* out, bool right) {
  if (right) cudaGridDependencySynchronize();
  out[blockIdx.x * T + threadIdx.x] = __ldg(middle + blockIdx.x * T + T - 1 - threadIdx.x);
}

// --- numbers ---
__global__ void products(float* out) {  // of the tables i % 7 (16 x 16) and (i + 1) % 5 (16 x 8), in four ways, and what a warp says
  __shared__ alignas(16) __nv_bfloat16 a[16 * 16], b[16 * 8], back[16 * 16];
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  for (int i = lane; i < 256; i += 32) a[i] = __float2bfloat16((float)(i % 7)), back[i] = __float2bfloat16(-1.f);
  for (int i = lane; i < 128; i += 32) b[i] = __float2bfloat16((float)((i + 1) % 5));
  __syncwarp();
  uint32_t x[4], y[2];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(sa(&a[lane % 16 * 16 + lane / 16 * 8])));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(sa(&b[lane % 16 * 8])));
  float c[5][4] = {};
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  for (int k = 0; k < 2; ++k)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" : "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]) : "r"(x[2 * k]), "r"(x[2 * k + 1]), "r"(y[k]));
  auto value = [](const __nv_bfloat16* m, int row, int col, int width) { return __float_as_uint(__bfloat162float(m[row * width + col])); };
  for (int k = 0; k < 16; k += 8)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]) : "r"(value(a, g, k + t, 16)), "r"(value(a, g + 8, k + t, 16)), "r"(value(a, g, k + t + 4, 16)), "r"(value(a, g + 8, k + t + 4, 16)), "r"(value(b, k + t, g, 8)), "r"(value(b, k + t + 4, g, 8)));
  uint32_t h[4], j[2], sums[2] = {};  // the same numbers in fp16, and the sum in it
  auto half = [&](uint32_t w) {
    const float lo = __uint_as_float(w << 16), hi = __uint_as_float(w & 0xffff0000u);
    uint32_t made;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(made) : "f"(hi), "f"(lo));
    return made;
  };
  for (int i = 0; i < 4; ++i) h[i] = half(x[i]);
  for (int i = 0; i < 2; ++i) j[i] = half(y[i]);
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};" : "+r"(sums[0]), "+r"(sums[1]) : "r"(h[0]), "r"(h[1]), "r"(h[2]), "r"(h[3]), "r"(j[0]), "r"(j[1]));
  for (int i = 0; i < 4; ++i) {
    const uint16_t bits = (uint16_t)(sums[i / 2] >> 16 * (i % 2));
    asm("cvt.f32.f16 %0, %1;" : "=f"(c[3][i]) : "h"(bits));
  }
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(sa(&back[lane % 16 * 16 + lane / 16 * 8])), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(sa(&b[lane % 8 * 8])), "r"(x[0]) : "memory");
  __syncwarp();
  for (int way = 0; way < 4; ++way)
    for (int i = 0; i < 4; ++i) out[way * 128 + (g + i / 2 * 8) * 8 + 2 * t + i % 2] = c[way][i];
  int all, some;
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  bool good = __match_all_sync(~0u, 3, &all) == ~0u && all && __match_all_sync(~0u, lane, &some) == 0 && !some;
  good = good && cg::inclusive_scan(warp, lane) == lane * (lane + 1) / 2 && cg::exclusive_scan(warp, 1) == lane;
  good = good && cg::reduce(cg::labeled_partition(warp, lane % 3), 1, cg::plus<int>()) == (lane % 3 == 2 ? 10 : 11);
  for (int i = lane; i < 256; i += 32) good = good && __bfloat162float(back[i]) == (float)(i % 7);
  for (int i = lane; i < 64; i += 32) good = good && __bfloat162float(b[i]) == (float)((i % 8 * 16 + i / 8) % 7);
  out[512 + lane] = good;
}

// --- launches ---
template <class... P, class... A>
cudaError_t launch(int blocks, int shared, cudaLaunchAttribute attribute, void (*kernel)(P...), A... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks), config.blockDim = dim3(T), config.dynamicSmemBytes = shared;
  config.attrs = &attribute, config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}
cudaError_t run(int which, const float* in, float* middle, float* out, bool right) {
  cudaLaunchAttribute attribute = {};
  switch (which) {
    case 0: of_a_thread<<<4, T>>>(in, out, right); break;
    case 1: right ? of_a_block<true, true><<<4, T>>>(in, out, 5) : of_a_block<true, false><<<4, T>>>(in, out, 5); break;
    case 2: right ? of_a_block<true, true><<<4, T>>>(in, out, 5) : of_a_block<false, true><<<4, T>>>(in, out, 5); break;
    case 3: in_two_roles<<<4, T>>>(in, out, right); break;
    case 4: at_a_barrier<<<4, T>>>(in, out, right); break;
    case 5: by_functions<<<4, T>>>(in, out, right); break;
    case 6: of_a_group<<<4, T>>>(in, out, right); break;
    case 7: at_an_mbarrier<<<4, T>>>(in, out, right); break;
    case 8: asked_once<<<4, T>>>(in, out, right); break;
    case 9: right ? exchanged<true, true><<<4, T>>>(in, out) : exchanged<false, true><<<4, T>>>(in, out); break;
    case 10: right ? exchanged<true, true><<<4, T>>>(in, out) : exchanged<true, false><<<4, T>>>(in, out); break;
    case 11:
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim.x = 2, attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
      return launch(4, T * sizeof(float), attribute, arrived, in, out, right);
    case 12: told<<<4, T>>>(in, out, right); break;
    case 13:
      ahead<<<4, T>>>(in, middle);
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
      return launch(4, 0, attribute, behind, (const float*)middle, out, right);
    case 14: cast<<<4, T>>>(in, out, right); break;
    case 15: products<<<1, 32>>>(out); break;
    case 16: told<<<3, T>>>(in, out, right); break;  // no multiple of its clusters
    case 17:
      attribute.id = cudaLaunchAttributeCooperative;
      attribute.val.cooperative = 1;
      return launch(1 << 20, 0, attribute, by_functions, in, out, right);  // does not fit
  }
  return cudaGetLastError();
}
