// The products that candidates ask of cuBLAS, as plain loops with sums in float (double for double).
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime_api.h"

struct cublasContext { cudaStream_t stream; };
typedef struct cublasContext* cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_NOT_SUPPORTED = 15 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
typedef cudaDataType_t cudaDataType;
enum cublasComputeType_t { CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_16F = 74, CUBLAS_COMPUTE_32F_FAST_16BF = 75,
                           CUBLAS_COMPUTE_32F_FAST_TF32 = 77, CUBLAS_COMPUTE_64F = 70 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };

inline cublasStatus_t cublasCreate(cublasHandle_t* h) { return *h = new cublasContext{}, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasDestroy(cublasHandle_t h) { return delete h, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s) { return h->stream = s, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetPointerMode(cublasHandle_t, cublasPointerMode_t m) {
  return m == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

namespace emu::blas {
inline double at(const void* p, cudaDataType_t type, size_t i) {
  switch (type) {
    case CUDA_R_32F: return ((const float*)p)[i];
    case CUDA_R_64F: return ((const double*)p)[i];
    case CUDA_R_16F: return ptx::F16::widen(((const uint16_t*)p)[i]);
    default: return ptx::Bf16::widen(((const uint16_t*)p)[i]);
  }
}
inline void put(void* p, cudaDataType_t type, size_t i, double x) {
  switch (type) {
    case CUDA_R_32F: ((float*)p)[i] = (float)x; break;
    case CUDA_R_64F: ((double*)p)[i] = x; break;
    case CUDA_R_16F: ((uint16_t*)p)[i] = ptx::F16::narrow((float)x); break;
    default: ((uint16_t*)p)[i] = ptx::Bf16::narrow((float)x);
  }
}
struct Product {
  bool ta, tb;
  int m, n, k, lda, ldb, ldc, batch;
  long long sa, sb, sc;
  double alpha, beta;
  const void *a, *b;
  void* c;
  cudaDataType_t at_, bt, ct;
  void record(const void* p, cudaDataType_t type, int rows, int columns, int leading, long long stride, bool write) const {
    const size_t size = type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
    for (int g = 0; g < batch; ++g)
      for (int j = 0; j < columns; ++j) emu_record_access((uint64_t)p + size * (g * stride + (size_t)j * leading), size * rows, write, 0);
  }
  void run() const {
    if (emu_recording_now) {
      record(a, at_, ta ? k : m, ta ? m : k, lda, sa, false), record(b, bt, tb ? n : k, tb ? k : n, ldb, sb, false);
      if (beta) record(c, ct, m, n, ldc, sc, false);
      record(c, ct, m, n, ldc, sc, true);
    }
    for (int g = 0; g < batch; ++g)
      for (int j = 0; j < n; ++j)
        for (int i = 0; i < m; ++i) {
          float sum = 0;
          double wide = 0;
          for (int l = 0; l < k; ++l) {
            const double p = at(a, at_, g * sa + (ta ? l + (size_t)i * lda : i + (size_t)l * lda)) *
                             at(b, bt, g * sb + (tb ? j + (size_t)l * ldb : l + (size_t)j * ldb));
            if (ct == CUDA_R_64F) wide += p;
            else sum += (float)p;
          }
          const size_t place = g * sc + i + (size_t)j * ldc;
          put(c, ct, place, alpha * (ct == CUDA_R_64F ? wide : sum) + (beta ? beta * at(c, ct, place) : 0.));
        }
  }
};
inline double scalar(const void* p, cublasComputeType_t type) {
  return type == CUBLAS_COMPUTE_64F ? *(const double*)p : type == CUBLAS_COMPUTE_16F ? ptx::F16::widen(*(const uint16_t*)p) : *(const float*)p;
}
}  // namespace emu::blas

inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                                 const void* alpha, const void* a, cudaDataType_t at, int lda, long long sa, const void* b,
                                                 cudaDataType_t bt, int ldb, long long sb, const void* beta, void* c, cudaDataType_t ct,
                                                 int ldc, long long sc, int batch, cublasComputeType_t type, cublasGemmAlgo_t) {
  using emu::blas::Product;
  if (m < 0 || n < 0 || k < 0) return CUBLAS_STATUS_INVALID_VALUE;
  auto* p = new Product{ta != CUBLAS_OP_N, tb != CUBLAS_OP_N, m, n, k, lda, ldb, ldc, batch, sa, sb, sc,
                        emu::blas::scalar(alpha, type), emu::blas::scalar(beta, type), a, b, c, at, bt, ct};
  emu_call([](void* q) { static_cast<Product*>(q)->run(); delete static_cast<Product*>(q); }, p, h->stream);
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha,
                                   const void* a, cudaDataType_t at, int lda, const void* b, cudaDataType_t bt, int ldb, const void* beta,
                                   void* c, cudaDataType_t ct, int ldc, cublasComputeType_t type, cublasGemmAlgo_t algo) {
  return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, at, lda, 0, b, bt, ldb, 0, beta, c, ct, ldc, 0, 1, type, algo);
}
// The type of the sums as older versions of cuBLAS had it.
inline cublasComputeType_t emu_compute_type(cudaDataType_t type) {
  return type == CUDA_R_64F ? CUBLAS_COMPUTE_64F : type == CUDA_R_16F ? CUBLAS_COMPUTE_16F : CUBLAS_COMPUTE_32F;
}
inline cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha,
                                   const void* a, cudaDataType_t at, int lda, const void* b, cudaDataType_t bt, int ldb, const void* beta,
                                   void* c, cudaDataType_t ct, int ldc, cudaDataType_t type, cublasGemmAlgo_t algo) {
  if (type == CUDA_R_16BF) return CUBLAS_STATUS_NOT_SUPPORTED;
  return cublasGemmEx(h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, emu_compute_type(type), algo);
}
inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                                 const void* alpha, const void* a, cudaDataType_t at, int lda, long long sa, const void* b,
                                                 cudaDataType_t bt, int ldb, long long sb, const void* beta, void* c, cudaDataType_t ct,
                                                 int ldc, long long sc, int batch, cudaDataType_t type, cublasGemmAlgo_t algo) {
  if (type == CUDA_R_16BF) return CUBLAS_STATUS_NOT_SUPPORTED;
  return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, at, lda, sa, b, bt, ldb, sb, beta, c, ct, ldc, sc, batch,
                                    emu_compute_type(type), algo);
}
inline cublasStatus_t cublasSgemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float* alpha,
                                  const float* a, int lda, const float* b, int ldb, const float* beta, float* c, int ldc) {
  return cublasGemmEx(h, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta, c, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
inline cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float* alpha,
                                                const float* a, int lda, long long sa, const float* b, int ldb, long long sb, const float* beta,
                                                float* c, int ldc, long long sc, int batch) {
  return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, sa, b, CUDA_R_32F, ldb, sb, beta, c, CUDA_R_32F, ldc, sc, batch,
                                    CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
