// One extension with what candidates take from CUDA's libraries, for cuda_on_cpu_libraries.py.
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cooperative_groups.h>
#include <cublas_v2.h>
#include <cub/cub.cuh>
#include <cuda/atomic>
#include <cuda/std/cstdint>
#include <cuda/std/type_traits>
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <time.h>

__global__ void blocks(const float* in, float* sums, float* before, float* all, float* warps, bool meets) {
  using Reduce = cub::BlockReduce<float, 128>;
  using Scan = cub::BlockScan<float, 128>;
  __shared__ typename Reduce::TempStorage reduce;
  __shared__ typename Scan::TempStorage scan;
  __shared__ cub::WarpReduce<float>::TempStorage warp[4];
  const int i = blockIdx.x * 128 + threadIdx.x;
  const float sum = Reduce(reduce).Sum(in[i]);
  if (meets) __syncthreads();  // or the storage is written again while thread 0 reads it
  const float largest = Reduce(reduce).Reduce(in[i], [](float a, float b) { return fmaxf(a, b); });
  if (threadIdx.x == 0) sums[2 * blockIdx.x] = sum, sums[2 * blockIdx.x + 1] = largest;
  float total;
  Scan(scan).ExclusiveSum(in[i], before[i], total);
  all[i] = total;
  const float part = cub::WarpReduce<float>(warp[threadIdx.x / 32]).Sum(in[i]);
  if (threadIdx.x % 32 == 0) warps[i / 32] = part;
}
void block_functions(torch::Tensor in, torch::Tensor sums, torch::Tensor before, torch::Tensor all, torch::Tensor warps, bool meets) {
  blocks<<<in.numel() / 128, 128>>>(in.data_ptr<float>(), sums.data_ptr<float>(), before.data_ptr<float>(), all.data_ptr<float>(),
                                    warps.data_ptr<float>(), meets);
}

// On a stream of its own, so it is late; what it gives is counted by the caller.
int64_t sorts(torch::Tensor keys, torch::Tensor sorted, torch::Tensor values, torch::Tensor moved, torch::Tensor sum, bool join) {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  const int n = (int)keys.numel();
  size_t bytes = 0, more = 0;
  cub::DeviceRadixSort::SortPairsDescending(nullptr, bytes, keys.data_ptr<float>(), sorted.data_ptr<float>(), values.data_ptr<int64_t>(),
                                            moved.data_ptr<int64_t>(), n, 0, 32, stream);
  cub::DeviceReduce::Sum(nullptr, more, keys.data_ptr<float>(), sum.data_ptr<float>(), n, stream);
  void* place;
  cudaMallocAsync(&place, bytes > more ? bytes : more, stream);
  cub::DeviceRadixSort::SortPairsDescending(place, bytes, keys.data_ptr<float>(), sorted.data_ptr<float>(), values.data_ptr<int64_t>(),
                                            moved.data_ptr<int64_t>(), n, 0, 32, stream);
  cub::DeviceReduce::Sum(place, more, keys.data_ptr<float>(), sum.data_ptr<float>(), n, stream);
  cudaFreeAsync(place, stream);
  if (join) cudaStreamSynchronize(stream);
  return (int64_t)bytes;
}
int64_t selects(torch::Tensor in, torch::Tensor flags, torch::Tensor out, torch::Tensor offsets) {
  size_t bytes = 0;
  int64_t* count;
  cudaMalloc(&count, 8);
  void* place;
  cub::DeviceSelect::Flagged(nullptr, bytes, in.data_ptr<int64_t>(), flags.data_ptr<bool>(), out.data_ptr<int64_t>(), count, (int)in.numel());
  cudaMalloc(&place, bytes);
  cub::DeviceSelect::Flagged(place, bytes, in.data_ptr<int64_t>(), flags.data_ptr<bool>(), out.data_ptr<int64_t>(), count, (int)in.numel());
  int64_t kept;
  cudaMemcpy(&kept, count, 8, cudaMemcpyDeviceToHost);
  auto first = thrust::device_pointer_cast(in.data_ptr<int64_t>());
  thrust::exclusive_scan(thrust::cuda::par.on(at::cuda::getCurrentCUDAStream()), first, first + in.numel(),
                         thrust::device_pointer_cast(offsets.data_ptr<int64_t>()));
  thrust::sort(thrust::device, out.data_ptr<int64_t>(), out.data_ptr<int64_t>() + kept, thrust::greater<int64_t>());
  return kept;
}

template <int N>
__global__ void wants_shared(int* out) {
  extern __shared__ int place[];
  place[threadIdx.x] = threadIdx.x;
  *out = N;
}
// The error of a launch with so much shared memory, before and after it was allowed.
std::vector<int64_t> shared_limit(torch::Tensor out, int64_t bytes) {
  wants_shared<1><<<1, 32, bytes>>>(out.data_ptr<int>());
  const int64_t before = cudaGetLastError(), then = *out.data_ptr<int>();
  cudaFuncSetAttribute((const void*)wants_shared<1>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  wants_shared<1><<<1, 32, bytes>>>(out.data_ptr<int>());
  return {before, then, (int64_t)cudaGetLastError(), *out.data_ptr<int>()};
}

__global__ void meeting(unsigned* out, const int* in) {
  const unsigned all = __activemask();
  unsigned some = 0;
  if (threadIdx.x % 3 == 0) some = __activemask();
  int sum = 0;
  if (in[threadIdx.x] > 0) {
    auto group = cooperative_groups::coalesced_threads();
    sum = cooperative_groups::reduce(group, in[threadIdx.x], cooperative_groups::plus<int>());
  }
  out[threadIdx.x] = all, out[64 + threadIdx.x] = some, out[128 + threadIdx.x] = sum;
}
void meetings(torch::Tensor out, torch::Tensor in) { meeting<<<1, 64>>>((unsigned*)out.data_ptr<int>(), in.data_ptr<int>()); }

// Copies 64 floats in by a bulk copy that an mbarrier counts, doubles them, and copies them out. out[64]: what lay there before.
__global__ void bulk(const float* in, float* out, int waits) {
  __shared__ alignas(16) float tile[64];
  __shared__ alignas(8) unsigned long long barrier;
  const unsigned place = (unsigned)__cvta_generic_to_shared(tile), at = (unsigned)__cvta_generic_to_shared(&barrier);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(64) : "memory");
  tile[threadIdx.x] = -1.f;
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(256) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place), "l"(in), "r"(256),
                 "r"(at) : "memory");
  } else {
    unsigned long long state;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(at) : "memory");
  }
  if (threadIdx.x == 0) out[64] = tile[0];
  if (waits) {
    unsigned over;
    do {
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                   : "=r"(over) : "r"(at), "r"(0) : "memory");
    } while (!over);
  }
  tile[threadIdx.x] *= 2.f;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out), "r"(place), "r"(256) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    out[65] = out[0];
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    out[66] = out[0];
  }
}
void bulk_copies(torch::Tensor in, torch::Tensor out, int64_t waits) { bulk<<<1, 64>>>(in.data_ptr<float>(), out.data_ptr<float>(), (int)waits); }

__global__ void add(float* x, float by) { x[threadIdx.x] += by; }
// Captured once, launched `times`; what the first element is before anything runs, after the launches, and when they are joined.
std::vector<double> graphs(torch::Tensor x, int64_t times) {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  float* p = x.data_ptr<float>();
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  add<<<1, 32, 0, stream>>>(p, 1.f);
  cudaMemcpyAsync(p + 1, p, 4, cudaMemcpyDeviceToDevice, stream);
  add<<<1, 32, 0, stream>>>(p, 10.f);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&ready, graph, 0);
  const double before = p[0];
  for (int64_t i = 0; i < times; ++i) cudaGraphLaunch(ready, stream);
  const double launched = p[0];
  cudaStreamSynchronize(stream);
  (void)clock();
  return {before, launched, p[0], p[1]};
}
void product(torch::Tensor a, torch::Tensor b, torch::Tensor c) {  // of rows, by cuBLAS's columns, with the older name of a type
  const float one = 1.f, zero = 0.f;
  const int m = (int)a.size(0), k = (int)a.size(1), n = (int)b.size(1);
  cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();
  cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, b.data_ptr(), CUDA_R_16BF, n, a.data_ptr(), CUDA_R_16BF, k, &zero, c.data_ptr(),
               CUDA_R_32F, n, CUDA_R_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
}

// A lock, counters and a message by libcu++'s atomics: 64 threads add up under the lock, the last to arrive passes the sum on.
struct Board { cuda::atomic<int, cuda::thread_scope_device> lock, arrived, ready; };
__global__ void atomics(Board* board, int* sum, int* out, float* total, bool releases) {
  static_assert(cuda::std::is_same_v<cuda::std::int32_t, int>);
  int free = 0;
  while (!board->lock.compare_exchange_weak(free, 1, cuda::memory_order_acquire, cuda::memory_order_relaxed)) free = 0;
  *sum += threadIdx.x;
  board->lock.store(0, releases ? cuda::memory_order_release : cuda::memory_order_relaxed);
  cuda::atomic_ref<float, cuda::thread_scope_device>(*total).fetch_add(0.5f, cuda::std::memory_order_relaxed);
  cuda::atomic_ref<int> most(out[1]);
  most.fetch_max((int)threadIdx.x, cuda::memory_order_relaxed);
  if (board->arrived.fetch_add(1, cuda::memory_order_acq_rel) == (int)(gridDim.x * blockDim.x) - 1) {
    out[2] = *sum;
    cuda::atomic_thread_fence(cuda::memory_order_release, cuda::thread_scope_device);
    board->ready.store(1, cuda::memory_order_relaxed);
  }
  board->ready.wait(0, cuda::memory_order_acquire);
  if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = out[2], out[3] = most.exchange(-1), out[4] = (int)board->ready;
}
void atomic_types(torch::Tensor board, torch::Tensor sum, torch::Tensor out, torch::Tensor total, bool releases) {
  atomics<<<2, 32>>>((Board*)board.data_ptr<int>(), sum.data_ptr<int>(), out.data_ptr<int>(), total.data_ptr<float>(), releases);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("block_functions", &block_functions);
  m.def("sorts", &sorts);
  m.def("selects", &selects);
  m.def("shared_limit", &shared_limit);
  m.def("meetings", &meetings);
  m.def("bulk_copies", &bulk_copies);
  m.def("graphs", &graphs);
  m.def("product", &product);
  m.def("atomic_types", &atomic_types);
}
