// Random numbers of a GPU are not emulated: a source that uses them does not compile. One that only names the header does.
#pragma once
#include "emu.h"
