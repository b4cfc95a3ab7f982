// Stands in for torch's header of this name; see docs/builds.md.
#pragma once
#include <pkb_slim/standard.h>
#include <pkb_slim/dispatch.h>
#include <pkb_slim/tensor.h>
