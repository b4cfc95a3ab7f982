// The host's side of CUDA: what candidates call. What is not here does not compile, and is then named as not emulated.
#pragma once
#include <stdlib.h>

#include "emu.h"

enum cudaError { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInvalidConfiguration = 9,
                 cudaErrorNotReady = 600, cudaErrorCooperativeLaunchTooLarge = 720, cudaErrorInvalidClusterSize = 912, cudaErrorPeerAccessAlreadyEnabled = 704, cudaErrorStreamCaptureUnsupported = 900, cudaErrorUnknown = 999 };
typedef enum cudaError cudaError_t;
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9,
                         cudaFuncAttributeNonPortableClusterSizeAllowed = 13 };
enum cudaSharedCarveout { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxShared = 100, cudaSharedmemCarveoutMaxL1 = 0 };
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaDeviceAttr { cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxSharedMemoryPerBlock = 8, cudaDevAttrWarpSize = 10,
                      cudaDevAttrMultiProcessorCount = 16, cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76,
                      cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81, cudaDevAttrCooperativeLaunch = 95,
                      cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
  int regsPerBlock, warpSize, maxThreadsPerBlock, multiProcessorCount, major, minor, l2CacheSize, maxThreadsPerMultiProcessor,
      cooperativeLaunch, maxThreadsDim[3], maxGridSize[3];
};
#define cudaStreamDefault 0
#define cudaStreamNonBlocking 1
#define cudaEventDefault 0
#define cudaEventBlockingSync 1
#define cudaEventDisableTiming 2
#define cudaHostAllocDefault 0
#define cudaHostAllocMapped 2
#define cudaStreamLegacy ((cudaStream_t)1)
#define cudaStreamPerThread ((cudaStream_t)2)

extern "C" {
void emu_copy(void* to, const void* from, size_t bytes, void* stream);
void emu_fill(void* to, int value, size_t bytes, void* stream);
void emu_call(void (*function)(void*), void* argument, void* stream);
uint64_t emu_stream_create(int blocking);
void emu_stream_synchronize(uint64_t);
int emu_stream_idle(uint64_t);
void emu_synchronize();
uint64_t emu_event_create();
void emu_event_record(uint64_t, uint64_t);
void emu_event_wait(uint64_t, uint64_t);
void emu_event_synchronize(uint64_t);
int emu_event_done(uint64_t);
int emu_capture_begin(uint64_t);
void* emu_capture_end(uint64_t);
int emu_capturing(uint64_t);
void emu_graph_launch(void* graph, uint64_t stream);
int emu_last_error(int clear);
void emu_set_error(int);
}

inline cudaError_t cudaGetLastError() { return (cudaError_t)emu_last_error(1); }
inline cudaError_t cudaPeekAtLastError() { return (cudaError_t)emu_last_error(0); }
inline const char* cudaGetErrorString(cudaError_t e) {
  return e == cudaSuccess ? "no error" : e == cudaErrorInvalidConfiguration ? "invalid configuration argument" : e == cudaErrorInvalidValue ? "invalid argument" : "CUDA error";
}
inline const char* cudaGetErrorName(cudaError_t e) { return e == cudaSuccess ? "cudaSuccess" : "cudaError"; }

inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream = nullptr) {
  return emu_copy(to, from, bytes, stream), cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return emu_copy(to, from, bytes, nullptr), emu_stream_synchronize(0), cudaSuccess;
}
inline cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream = nullptr) {
  return emu_copy(to, from, bytes, stream), cudaSuccess;
}
inline cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) { return emu_copy(to, from, bytes, nullptr), cudaSuccess; }
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                                     cudaMemcpyKind, cudaStream_t stream = nullptr) {
  for (size_t row = 0; row < height; ++row) emu_copy((char*)to + row * to_pitch, (const char*)from + row * from_pitch, width, stream);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy2D(void* to, size_t tp, const void* from, size_t fp, size_t w, size_t h, cudaMemcpyKind k) {
  return cudaMemcpy2DAsync(to, tp, from, fp, w, h, k, nullptr);
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream = nullptr) { return emu_fill(to, value, bytes, stream), cudaSuccess; }
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) { return emu_fill(to, value, bytes, nullptr), cudaSuccess; }
template <class T> inline cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t offset = 0,
                                                              cudaMemcpyKind = cudaMemcpyHostToDevice, cudaStream_t stream = nullptr) {
  return emu_copy((char*)&symbol + offset, from, bytes, stream), cudaSuccess;
}
template <class T> inline cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice) {
  return emu_copy((char*)&symbol + offset, from, bytes, nullptr), cudaSuccess;
}
template <class T> inline cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  return emu_copy(to, (const char*)&symbol + offset, bytes, nullptr), cudaSuccess;
}
template <class T> inline cudaError_t cudaGetSymbolAddress(void** p, const T& symbol) { return *p = (void*)&symbol, cudaSuccess; }

template <class T> inline cudaError_t cudaMalloc(T** p, size_t bytes) {
  *p = (T*)aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
  if (!*p) return cudaErrorMemoryAllocation;
  memset((void*)*p, 0xff, bytes);  // nothing may rely on zeroed memory
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* p) { return emu_synchronize(), free(p), cudaSuccess; }
template <class T> inline cudaError_t cudaMallocAsync(T** p, size_t bytes, cudaStream_t) { return cudaMalloc(p, bytes); }
inline cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) { return emu_call(free, p, stream), cudaSuccess; }
template <class T> inline cudaError_t cudaMallocHost(T** p, size_t bytes) { return cudaMalloc(p, bytes); }
template <class T> inline cudaError_t cudaHostAlloc(T** p, size_t bytes, unsigned) { return cudaMalloc(p, bytes); }
template <class T> inline cudaError_t cudaMallocManaged(T** p, size_t bytes, unsigned = 1) { return cudaMalloc(p, bytes); }
inline cudaError_t cudaFreeHost(void* p) { return cudaFree(p); }

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) { return *s = (cudaStream_t)emu_stream_create(!(flags & 1)), cudaSuccess; }
inline cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, 0); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) { return cudaStreamCreateWithFlags(s, flags); }
inline cudaError_t cudaStreamDestroy(cudaStream_t s) { return emu_stream_synchronize((uint64_t)s), cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t s) { return emu_stream_synchronize((uint64_t)s), cudaSuccess; }
inline cudaError_t cudaStreamQuery(cudaStream_t s) { return emu_stream_idle((uint64_t)s) ? cudaSuccess : cudaErrorNotReady; }
inline cudaError_t cudaDeviceSynchronize() { return emu_synchronize(), cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return *e = (cudaEvent_t)emu_event_create(), cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s = nullptr) { return emu_event_record((uint64_t)e, (uint64_t)s), cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned = 0) { return emu_event_wait((uint64_t)e, (uint64_t)s), cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t e) { return emu_event_synchronize((uint64_t)e), cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t e) { return emu_event_done((uint64_t)e) ? cudaSuccess : cudaErrorNotReady; }

typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated };
inline cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  return emu_capture_begin((uint64_t)s) ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) {
  return *g = (cudaGraph_t)emu_capture_end((uint64_t)s), *g ? cudaSuccess : cudaErrorInvalidValue;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
  return *status = emu_capturing((uint64_t)s) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone, cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t g, unsigned long long = 0) { return *exec = (cudaGraphExec_t)g, cudaSuccess; }
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t g, unsigned long long = 0) { return cudaGraphInstantiate(exec, g); }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) { return emu_graph_launch(exec, (uint64_t)s), cudaSuccess; }
inline cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

inline cudaError_t cudaGetDevice(int* d) { return *d = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 1, cudaSuccess; }
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "emulated GPU");
  p->totalGlobalMem = (size_t)16 << 30, p->sharedMemPerBlock = 48 << 10, p->sharedMemPerBlockOptin = 227 << 10;
  p->sharedMemPerMultiprocessor = 228 << 10, p->regsPerBlock = 65536, p->warpSize = 32, p->maxThreadsPerBlock = 1024;
  p->multiProcessorCount = 16, p->major = 9, p->minor = 0, p->l2CacheSize = 50 << 20, p->maxThreadsPerMultiProcessor = 2048;
  p->cooperativeLaunch = 1;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int) {
  switch (what) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMultiProcessorCount: *value = 16; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 228 << 10; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
  }
  return cudaSuccess;
}
template <class F> inline cudaError_t emu_func_set_attribute(const char* kernel, F, int what, int value) {  // see rewrite.py
  if (what != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > 227 << 10) return emu_set_error(1), cudaErrorInvalidValue;
  return emu::allowed()[kernel] = value, cudaSuccess;
}
struct cudaFuncAttributes { size_t sharedSizeBytes, constSizeBytes, localSizeBytes; int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, maxDynamicSharedSizeBytes; };
template <class F> inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, F) {
  *a = {0, 0, 0, 1024, 32, 90, 90, 48 << 10};
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, cudaSuccess; }
template <class F> inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* blocks, int* threads, F, size_t = 0, int limit = 0) {
  return *threads = limit && limit < 1024 ? limit : 1024, *blocks = 16 * 2048 / *threads, cudaSuccess;
}
template <class F> inline cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) { return cudaSuccess; }
template <class F> inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, F, int threads, size_t shared) {
  const int by_shared = shared ? (int)((228u << 10) / (shared + 1024)) : 32, by_threads = 2048 / ((threads + 31) / 32 * 32);
  *n = by_shared < by_threads ? by_shared : by_threads;
  if (*n > 32) *n = 32;
  return cudaSuccess;
}
inline cudaError_t emu_launch_known(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared, void* stream, int how, dim3 cluster = 0) {
  const auto found = emu::known().find(function);
  if (found == emu::known().end()) return cudaErrorInvalidValue;
  found->second(grid, block, shared, stream, how, arguments, cluster);
  return (cudaError_t)emu_last_error(0);
}
template <class F> inline cudaError_t cudaLaunchKernel(F function, dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = nullptr) {
  return emu_launch_known((const void*)function, grid, block, arguments, shared, stream, 0);
}
template <class F> inline cudaError_t cudaLaunchCooperativeKernel(F function, dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = nullptr) {
  return emu_launch_known((const void*)function, grid, block, arguments, shared, stream, emu::COOPERATIVE);
}
#include "emu_launch.h"
