// Stands in for torch's header of this name; see docs/builds.md.
#pragma once
#include <cublas_v2.h>
#include <pkb_slim/cuda.h>
