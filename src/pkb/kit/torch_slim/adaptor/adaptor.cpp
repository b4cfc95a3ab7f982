// The one source of the adaptor, compiled once per torch against torch's own headers; see docs/builds.md.
#include <pkb_slim/adaptor.h>

#include "tensors.h"
#include "objects.h"
#include "modules.h"
#ifdef PKB_SLIM_CUDA
#include "cuda.h"
#endif
