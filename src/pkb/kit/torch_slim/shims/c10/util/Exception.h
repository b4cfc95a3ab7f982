// Stands in for torch's header of this name; see docs/builds.md.
#pragma once
#include <pkb_slim/message.h>
