// cudaLaunchKernelEx and its attributes. Those that change no result (priorities, policies of caches) are taken and forgotten.
#pragma once

enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0, cudaLaunchAttributeAccessPolicyWindow = 1, cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeSynchronizationPolicy = 3, cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeClusterSchedulingPolicyPreference = 5, cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributePriority = 8, cudaLaunchAttributeMemSyncDomain = 10, cudaLaunchAttributePreferredClusterDimension = 11,
  cudaLaunchAttributePreferredSharedMemoryCarveout = 14
};
enum cudaClusterSchedulingPolicy { cudaClusterSchedulingPolicyDefault, cudaClusterSchedulingPolicySpread, cudaClusterSchedulingPolicyLoadBalancing };
enum cudaLaunchMemSyncDomain { cudaLaunchMemSyncDomainDefault, cudaLaunchMemSyncDomainRemote };
union cudaLaunchAttributeValue {
  char pad[64];
  int cooperative, priority, programmaticStreamSerializationAllowed;
  unsigned sharedMemCarveout;
  cudaClusterSchedulingPolicy clusterSchedulingPolicyPreference;
  cudaLaunchMemSyncDomain memSyncDomain;
  struct { unsigned x, y, z; } clusterDim, preferredClusterDim;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

namespace emu {
struct Attributes {
  int how = 0;
  dim3 cluster = 0;
  explicit Attributes(const cudaLaunchConfig_t& c) {
    for (unsigned i = 0; i < c.numAttrs; ++i) {
      const cudaLaunchAttributeValue& v = c.attrs[i].val;
      if (c.attrs[i].id == cudaLaunchAttributeCooperative && v.cooperative) how |= COOPERATIVE;
      if (c.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization && v.programmaticStreamSerializationAllowed) how |= EARLY;
      if (c.attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = dim3(v.clusterDim.x, v.clusterDim.y, v.clusterDim.z);
    }
  }
};
}  // namespace emu
template <class... P, class... A>  // see rewrite.py for the first parameter
inline cudaError_t emu_launch_ex(const char* function, const cudaLaunchConfig_t* c, void (*kernel)(P...), A&&... arguments) {
  if (emu::too_much_shared(function, c->dynamicSmemBytes)) return cudaErrorInvalidValue;
  const emu::Attributes a(*c);
  auto bound = std::bind([kernel](std::remove_const_t<P>... p) { kernel(p...); }, static_cast<std::remove_const_t<P>>(std::forward<A>(arguments))...);
  emu::enqueue(*function ? function : "kernel", function, c->gridDim, c->blockDim, a.cluster, c->dynamicSmemBytes, c->stream, a.how, bound);
  return (cudaError_t)emu_last_error(0);
}
inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* function, void** arguments) {
  const emu::Attributes a(*c);
  return emu_launch_known(function, c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes, c->stream, a.how, a.cluster);
}
template <class F> inline cudaError_t cudaOccupancyMaxActiveClusters(int* n, F, const cudaLaunchConfig_t* c) {
  const dim3 d = emu::Attributes(*c).cluster;
  int blocks = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, 0, (int)(c->blockDim.x * c->blockDim.y * c->blockDim.z), c->dynamicSmemBytes);
  return *n = blocks * 16 / (int)(d.x ? d.x * d.y * d.z : 1), cudaSuccess;
}
