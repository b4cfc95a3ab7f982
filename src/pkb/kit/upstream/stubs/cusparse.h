// Stands in for a header that a CPU build of torch or a small CUDA toolkit lacks: enough to compile a torch extension, not to run it.
#pragma once
typedef struct cusparseContext* cusparseHandle_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
extern "C" const char* cusparseGetErrorString(cusparseStatus_t status);
