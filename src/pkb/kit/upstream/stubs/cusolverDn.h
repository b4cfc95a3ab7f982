// Stands in for a header that a CPU build of torch or a small CUDA toolkit lacks: enough to compile a torch extension, not to run it.
#pragma once
#include "cusolver_common.h"
typedef struct cusolverDnContext* cusolverDnHandle_t;
