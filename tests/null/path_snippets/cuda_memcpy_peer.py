"""Copy engine by name: cudaMemcpyPeerAsync."""
# expect: copy_engine

SRC = r"""
void push(void* dst, int dst_dev, const void* src, int src_dev, size_t n, cudaStream_t s) {
  cudaMemcpyPeerAsync(dst, dst_dev, src, src_dev, n, s);  // <- copy_engine
}
"""
