// Stands in for a header that a CPU build of torch or a small CUDA toolkit lacks: enough to compile a torch extension, not to run it.
#pragma once
typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
