// Sums of runs of rows, each in the same order whatever the chip does first: out[s] = sum of rows first[s] ... first[s + 1].
// A block adds up 32 columns of a run with 8 warps, which take the rows in turn. -DD is not used.
extern "C" __global__ void __launch_bounds__(256)
sum_runs(const double* __restrict__ rows, const int* __restrict__ first, const int* __restrict__ target,
         double* __restrict__ out, int width, int n_runs) {
  __shared__ double part[8][33];
  const int column = blockIdx.x % ((width + 31) / 32) * 32 + threadIdx.x % 32, warp = threadIdx.x / 32;
  const int run = blockIdx.x / ((width + 31) / 32);
  if (run >= n_runs) return;
  double sum = 0;
  if (column < width)
#pragma unroll 8
    for (int row = first[run] + warp; row < first[run + 1]; row += 8) sum += rows[(size_t)row * width + column];
  part[warp][threadIdx.x % 32] = sum;
  __syncthreads();
  if (warp == 0 && column < width) {
    for (int k = 1; k < 8; k++) sum += part[k][threadIdx.x];
    out[(size_t)target[run] * width + column] = sum;
  }
}
