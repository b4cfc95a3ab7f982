"""Peer memory over CUDA IPC, in a struct of pointers passed by value."""
# expect: sm_load_store

SRC = r"""
struct RankData { const void* ptrs[8]; };
__global__ void cross_reduce(RankData data, float* out, int n, int world) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0;
  for (int r = 0; r < world; ++r) s += ((const float*)data.ptrs[r])[i];  // <- sm_load_store
  out[i] = s;
}
void open(cudaIpcMemHandle_t* handles, RankData* data, int world) {
  void* p;
  for (int r = 0; r < world; ++r) { cudaIpcOpenMemHandle(&p, handles[r], cudaIpcMemLazyEnablePeerAccess); data->ptrs[r] = p; }
}
"""
