// Stands in for a header that a CPU build of torch or a small CUDA toolkit lacks: enough to compile a torch extension, not to run it.
#pragma once
typedef enum { CUSOLVER_STATUS_SUCCESS = 0, CUSOLVER_STATUS_EXECUTION_FAILED = 6, CUSOLVER_STATUS_INVALID_VALUE = 3 } cusolverStatus_t;
