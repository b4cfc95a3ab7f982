// fp16. Conversions and operators are there unless the macros of CUDA's own header forbid them, which torch's builds define.
#pragma once
#include "emu.h"

#define EMU_T __half
#define EMU_T2 __half2
#define EMU_RAW __half_raw
#define EMU_RAW2 __half2_raw
#define EMU_WORD half
#define EMU_WORD2 half2
#define EMU_FORMAT F16
#ifdef __CUDA_NO_HALF_CONVERSIONS__
#define EMU_CONVERSIONS 0
#else
#define EMU_CONVERSIONS 1
#endif
#ifdef __CUDA_NO_HALF_OPERATORS__
#define EMU_OPERATORS 0
#else
#define EMU_OPERATORS 1
#endif
#ifdef __CUDA_NO_HALF2_OPERATORS__
#define EMU_OPERATORS2 0
#else
#define EMU_OPERATORS2 1
#endif
#include "emu_16bit.h"
typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;
