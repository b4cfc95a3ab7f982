// Stands in for a header that a CPU build of torch or a small CUDA toolkit lacks: enough to compile a torch extension, not to run it.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
