"""Trap: the only copies bring a table from the host; nothing goes between GPUs."""
# expect: none

SRC = r"""
__global__ void f(const int* t, float* x) { x[threadIdx.x] *= t[threadIdx.x]; }
void run(const int* host, int* table, float* x, cudaStream_t s) {
  cudaMemcpyAsync(table, host, 64 * sizeof(int),
                  cudaMemcpyHostToDevice, s);
  f<<<1, 64, 0, s>>>(table, x);
  cudaMemcpy((void*)host, table, 4, cudaMemcpyDeviceToHost);
}
"""
