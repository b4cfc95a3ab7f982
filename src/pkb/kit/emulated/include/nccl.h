// NCCL's host header, of which kernels need these types. Host functions are not emulated: the kit sets windows up.
#pragma once
#include "emu.h"

#define NCCL_MAJOR 2
#define NCCL_MINOR 32
#define NCCL_PATCH 3
#define NCCL_VERSION_CODE 23203
typedef struct ncclWindow_vidmem* ncclWindow_t;
typedef enum { ncclSuccess = 0, ncclTimeout = 8 } ncclResult_t;
