// The posterior of many actions at once, in double precision: one warp per action.
//
// In units in which the prior of an action is N(W z, I), its rounds enter as G (their Gram matrix) and b. Then
//   U upper triangular with U U' = (I + G)^-1,
//   evidence on z:  P += W' G U U' W  and  h += W' U U' b,
//   mean:           U U' (b + W z).
// Compile with -DD=16 or -DD=32, the number of features.
#define TILES (D / 8)
#define STRIDE (D + 4)  // in doubles: 4 modulo 16, so that fragments are read from shared memory without conflicts
#define EVERYONE 0xffffffffu
#define BUFFERS (D == 16 ? 2 : 1)  // small matrices leave room to fetch those of the next action

__device__ __forceinline__ void fetch(double* shared, const double* global, int lane) {
#pragma unroll
  for (int e = lane; e < D * D / 2; e += 32) copy_16_bytes(&shared[e / (D / 2) * STRIDE + e % (D / 2) * 2], global + 2 * e);
}

// Tile (i, j) of a matrix in shared memory.
#define TILE(matrix, i, j) (&(matrix)[8 * (i) * STRIDE + 8 * (j)])

// I + G = L L', a panel of 8 columns at a time: its update by the columns to the left is a product on the matrix units, then
// every lane holds 8 numbers of a row and the panel is factored by shuffles. L replaces G on and below the diagonal.
__device__ __forceinline__ void factor(double* matrix, double* root, int lane) {
  const int g = lane / 4, t = lane % 4, row = lane % D;
#pragma unroll
  for (int j = 0; j < TILES; j++) {
#pragma unroll
    for (int i = j; i < TILES && j > 0; i++) {
      double2* at = (double2*)&TILE(matrix, i, j)[g * STRIDE + 2 * t];
      double sum[2] = {-at->x, -at->y};
#pragma unroll
      for (int k = 0; k < 8 * j; k += 4)
        multiply_add_small(sum, matrix[(8 * i + g) * STRIDE + k + t], matrix[(8 * j + g) * STRIDE + k + t]);
      at->x = -sum[0], at->y = -sum[1];
    }
    __syncwarp();
    double x[8], scale = 1.0;
    // Rows four apart share banks, so the odd ones of them read and write each two pairs in the other order.
    const int turn = row / 4 % 2;
    double2* own = (double2*)&matrix[row * STRIDE + 8 * j];
#pragma unroll
    for (int c = 0; c < 4; c += 2) {
      const double2 first = own[c + turn], second = own[c + 1 - turn];
      x[2 * c] = turn ? second.x : first.x, x[2 * c + 1] = turn ? second.y : first.y;
      x[2 * c + 2] = turn ? first.x : second.x, x[2 * c + 3] = turn ? first.y : second.y;
    }
#pragma unroll
    for (int c = 0; c < 8; c++) x[c] += row == 8 * j + c;
#pragma unroll
    for (int c = 0; c < 8; c++) {
      const double inverse = inverse_root(__shfl_sync(EVERYONE, x[c], 8 * j + c));
      x[c] *= inverse;
      if (row == 8 * j + c) scale = inverse;
#pragma unroll
      for (int k = c + 1; k < 8; k++) x[k] -= x[c] * __shfl_sync(EVERYONE, x[c], 8 * j + k);
    }
    if (lane < D && row >= 8 * j) {
      if (row < 8 * j + 8) root[row] = scale;
#pragma unroll
      for (int c = 0; c < 4; c += 2) {
        double2 first, second;
        first.x = turn ? x[2 * c + 2] : x[2 * c], first.y = turn ? x[2 * c + 3] : x[2 * c + 1];
        second.x = turn ? x[2 * c] : x[2 * c + 2], second.y = turn ? x[2 * c + 1] : x[2 * c + 3];
        own[c + turn] = first, own[c + 1 - turn] = second;
      }
    }
    __syncwarp();
  }
}

// X = L^-1, whose transpose U goes above the diagonal of `matrix`, and over L on its diagonal tiles. `diagonal` holds the
// inverses of the diagonal tiles of L; the tiles below follow one diagonal after another, X_ij = -X_ii (sum of L_ik X_kj).
#define DIAGONAL(i, r, c) diagonal[(i) * 100 + (r) * 12 + (c)]
__device__ __forceinline__ void invert(double* matrix, double* diagonal, const double* root, int lane) {
  const int g = lane / 4, t = lane % 4;
  {
    const int tile = lane / 8 % TILES, column = lane % 8;
    const double* L = TILE(matrix, tile, tile);
    double x[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      double sum = i == column ? 1.0 : 0.0;
#pragma unroll
      for (int k = 0; k < i; k++) sum -= L[i * STRIDE + k] * x[k];
      x[i] = sum * root[8 * tile + i];
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; i++) DIAGONAL(tile, i, column) = x[i];
  }
  __syncwarp();
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    double2 pair;
    pair.x = DIAGONAL(tile, 2 * t, g), pair.y = DIAGONAL(tile, 2 * t + 1, g);
    *(double2*)&TILE(matrix, tile, tile)[g * STRIDE + 2 * t] = pair;
  }
  __syncwarp();
#pragma unroll
  for (int gap = 1; gap < TILES; gap++) {
    double sum[TILES][2] = {}, x[TILES][2] = {};
#pragma unroll
    for (int j = 0; j + gap < TILES; j++)
#pragma unroll
      for (int k = j; k < j + gap; k++)
#pragma unroll
        for (int h = 0; h < 8; h += 4)
          multiply_add_small(sum[j], TILE(matrix, j + gap, k)[g * STRIDE + h + t],
                             k == j ? DIAGONAL(j, h + t, g) : TILE(matrix, j, k)[g * STRIDE + h + t]);
#pragma unroll
    for (int j = 0; j + gap < TILES; j++) {
      double* out = TILE(matrix, j, j + gap);
      out[2 * t * STRIDE + g] = sum[j][0], out[(2 * t + 1) * STRIDE + g] = sum[j][1];
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j + gap < TILES; j++)
#pragma unroll
      for (int h = 0; h < 8; h += 4)
        multiply_add_small(x[j], -DIAGONAL(j + gap, g, h + t), TILE(matrix, j, j + gap)[g * STRIDE + h + t]);
    __syncwarp();
#pragma unroll
    for (int j = 0; j + gap < TILES; j++) {
      double* out = TILE(matrix, j, j + gap);
      out[2 * t * STRIDE + g] = x[j][0], out[(2 * t + 1) * STRIDE + g] = x[j][1];
    }
    __syncwarp();
  }
}

extern "C" __global__ void __launch_bounds__(32, D == 32 ? 8 : 16)
absorb_actions(const double* __restrict__ gram, const double* __restrict__ mixing, const int* __restrict__ mixing_of,
               const double* __restrict__ moment, const int* __restrict__ first, double* __restrict__ factor_out,
               double* __restrict__ precision, double* __restrict__ score, double* __restrict__ log_pivots, int n_items) {
  __shared__ __align__(16) double grams[BUFFERS][D * STRIDE], mixings[BUFFERS][D * STRIDE], moments[BUFFERS][D];
  __shared__ __align__(16) double diagonal[TILES * 100], root[D], z_[D];
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  auto fetch_action = [&](int a, int side) {
    fetch(grams[side], gram + (size_t)a * D * D, lane);
    fetch(mixings[side], mixing + (size_t)mixing_of[a] * D * D, lane);
    if (lane < D / 2) copy_16_bytes(&moments[side][2 * lane], moment + (size_t)a * D + 2 * lane);
    end_copies();
  };
  for (int item = blockIdx.x; item < n_items; item += gridDim.x) {
    double P[TILES][TILES][2] = {}, h[TILES] = {}, log_pivot = 0;
    const int begin = first[item], end = first[item + 1];
    if (BUFFERS == 2) fetch_action(begin, 0);
    for (int a = begin; a < end; a++) {
      const int side = BUFFERS == 2 ? (a - begin) & 1 : 0;
      double *g_ = grams[side], *w_ = mixings[side], *b_ = moments[side];
      if (BUFFERS == 1) fetch_action(a, 0);
      if (BUFFERS == 2 && a + 1 < end) {
        fetch_action(a + 1, side ^ 1);
        wait_for_copies<1>();
      } else {
        wait_for_copies<0>();
      }
      __syncwarp();

      double R[TILES][TILES][2] = {};  // R = W' G; its accumulators serve as the left operand of Q below
#pragma unroll
      for (int k = 0; k < D; k += 8) {
        double w[TILES][2];
#pragma unroll
        for (int m = 0; m < TILES; m++)
          w[m][0] = w_[(k + t) * STRIDE + 8 * m + g], w[m][1] = w_[(k + t + 4) * STRIDE + 8 * m + g];
#pragma unroll
        for (int n = 0; n < TILES; n++) {
          const double b0 = g_[(k + t) * STRIDE + 8 * n + g], b1 = g_[(k + t + 4) * STRIDE + 8 * n + g];
#pragma unroll
          for (int m = 0; m < TILES; m += 2)
            multiply_add(R[m][n], R[m + 1][n], w[m][0], w[m + 1][0], w[m][1], w[m + 1][1], b0, b1);
        }
      }
      __syncwarp();
      factor(g_, root, lane);
      if (lane < D) log_pivot += log(root[lane]);
      invert(g_, diagonal, root, lane);

      double* U = factor_out + (size_t)a * D * D;
#pragma unroll
      for (int e = lane; e < D * D / 2; e += 32) {
        const int row = e / (D / 2), column = e % (D / 2) * 2;
        double2 pair = *(const double2*)&g_[row * STRIDE + column];
        if (column / 8 < row / 8) pair.x = 0, pair.y = 0;  // L is still there
        *(double2*)&U[2 * e] = pair;
      }
      if (lane < D) {
        double z = 0;
#pragma unroll
        for (int k = 0; k < D; k++)
          if (k / 8 <= lane / 8) z += g_[k * STRIDE + lane] * b_[k];
        z_[lane] = z;  // U' b
      }
      __syncwarp();
      // Q = R U, 8 columns at a time, with T = W' U beside it; then P += Q T' and h += T z. The accumulators of a product
      // hold columns 2 t and 2 t + 1 where an operand holds t and t + 4, so both operands take k in that order.
#pragma unroll
      for (int n = 0; n < TILES; n++) {
        double Q[TILES][2] = {}, T[TILES][2] = {};
#pragma unroll
        for (int k = 0; k <= n; k++) {
          const double *u = &g_[(8 * k + 2 * t) * STRIDE + 8 * n + g], *w = &w_[(8 * k + 2 * t) * STRIDE + g];
          const double b0 = u[0], b1 = u[STRIDE];
#pragma unroll
          for (int m = 0; m < TILES; m += 2) {
            multiply_add(Q[m], Q[m + 1], R[m][k][0], R[m + 1][k][0], R[m][k][1], R[m + 1][k][1], b0, b1);
            multiply_add(T[m], T[m + 1], w[8 * m], w[8 * m + 8], w[STRIDE + 8 * m], w[STRIDE + 8 * m + 8], b0, b1);
          }
        }
        const double z0 = z_[8 * n + 2 * t], z1 = z_[8 * n + 2 * t + 1];
#pragma unroll
        for (int j = 0; j < TILES; j++) {
          h[j] += T[j][0] * z0 + T[j][1] * z1;
#pragma unroll
          for (int i = 0; i < TILES; i += 2)
            multiply_add(P[i][j], P[i + 1][j], Q[i][0], Q[i + 1][0], Q[i][1], Q[i + 1][1], T[j][0], T[j][1]);
        }
      }
      __syncwarp();
    }
    double* P_out = precision + (size_t)item * D * D;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
      for (int j = 0; j < TILES; j++) {
        double2 pair;
        pair.x = P[i][j][0], pair.y = P[i][j][1];
        *(double2*)&P_out[(8 * i + g) * D + 8 * j + 2 * t] = pair;
      }
#pragma unroll
    for (int j = 0; j < TILES; j++) {
      h[j] += __shfl_xor_sync(EVERYONE, h[j], 1);
      h[j] += __shfl_xor_sync(EVERYONE, h[j], 2);
      if (t == 0) score[(size_t)item * D + 8 * j + g] = h[j];
    }
#pragma unroll
    for (int step = 16; step; step /= 2) log_pivot += __shfl_xor_sync(EVERYONE, log_pivot, step);
    if (lane == 0) log_pivots[item] = -2 * log_pivot;  // log |I + G|, summed over the actions of the item
  }
}

// U U' (b + W z), with z of the action's effect.
extern "C" __global__ void __launch_bounds__(32, D == 32 ? 12 : 24)
action_means(const double* __restrict__ factor_in, const double* __restrict__ mixing, const int* __restrict__ mixing_of,
             const int* __restrict__ effect, const double* __restrict__ moment, const double* __restrict__ latent,
             double* __restrict__ out, int n_actions) {
  __shared__ __align__(16) double u_[D * STRIDE], w_[D * STRIDE], z_[D], y_[D];
  const int lane = threadIdx.x, own = lane % D;
  for (int a = blockIdx.x; a < n_actions; a += gridDim.x) {
    fetch(w_, mixing + (size_t)mixing_of[a] * D * D, lane);
    end_copies();
    fetch(u_, factor_in + (size_t)a * D * D, lane);
    end_copies();
    if (lane < D) z_[lane] = latent[(size_t)effect[a] * D + lane];
    double y = moment[(size_t)a * D + own];
    wait_for_copies<1>();
    __syncwarp();
#pragma unroll
    for (int k = 0; k < D; k += 2) {
      const double2 pair = *(const double2*)&w_[own * STRIDE + k];
      y += pair.x * z_[k] + pair.y * z_[k + 1];
    }
    if (lane < D) y_[lane] = y;
    wait_for_copies<0>();
    __syncwarp();
    double v = 0;
#pragma unroll
    for (int k = 0; k < D; k++) v += u_[k * STRIDE + own] * y_[k];
    __syncwarp();
    if (lane < D) y_[lane] = v;
    __syncwarp();
    double mean = 0;
#pragma unroll
    for (int k = 0; k < D; k += 2) {
      const double2 pair = *(const double2*)&u_[own * STRIDE + k];
      mean += pair.x * y_[k] + pair.y * y_[k + 1];
    }
    if (lane < D) out[(size_t)a * D + lane] = mean;
    __syncwarp();
  }
}
