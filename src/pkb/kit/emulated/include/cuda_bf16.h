// bfloat16. Conversions and operators are there unless the macros of CUDA's own header forbid them, which torch's builds define.
#pragma once
#include "emu.h"

#define EMU_T __nv_bfloat16
#define EMU_T2 __nv_bfloat162
#define EMU_RAW __nv_bfloat16_raw
#define EMU_RAW2 __nv_bfloat162_raw
#define EMU_WORD bfloat16
#define EMU_WORD2 bfloat162
#define EMU_FORMAT Bf16
#ifdef __CUDA_NO_BFLOAT16_CONVERSIONS__
#define EMU_CONVERSIONS 0
#else
#define EMU_CONVERSIONS 1
#endif
#ifdef __CUDA_NO_BFLOAT16_OPERATORS__
#define EMU_OPERATORS 0
#else
#define EMU_OPERATORS 1
#endif
#ifdef __CUDA_NO_BFLOAT162_OPERATORS__
#define EMU_OPERATORS2 0
#else
#define EMU_OPERATORS2 1
#endif
#include "emu_16bit.h"
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
