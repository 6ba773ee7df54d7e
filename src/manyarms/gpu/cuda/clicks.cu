// One step of the variational loop for clicks, in double precision: one warp per run of rounds of one action.
//
// The predictor of a round is N(x' m, x' C x), with mean m and covariance C of its action. From it follow the weight w and
// the linear term l of the round's Gaussian factor, and the expected log likelihood. Their sums are
//   S = sum of w x x',  V = sum of l x,  Q = sum of l^2 / w,  the expected log likelihood, its absolute terms and the sum
// of w; w and l of every round are kept too.
// Compile with -DD=16 or -DD=32, the number of features.
#define TILES (D / 8)
#define STRIDE (D + 4)
#define NODES 10
#define ORDERS 8
#define LOGS 64
#define EVERYONE 0xffffffffu
#define NARROW 1.5
#define SHARP 1e-3
#define LEAST_WEIGHT 1e-10
#define FAR 30.0

struct Factor {
  double expected, slope, log_density;  // E g(eta), E g'(eta) and E log g(+-eta)
};

// log x for normal x > 0, to a few units of 1e-16: the six leading bits of its mantissa name a point c of `logs`, which holds
// (1 / c, log c), and x / c is so close to one that a short series is enough.
__device__ __forceinline__ double quick_log(double x, const double2* logs) {
  const int high = __double2hiint(x);
  const double mantissa = __hiloint2double((high & 0xfffff) | 0x3ff00000, __double2loint(x));
  const double2 point = logs[(high >> 14) & (LOGS - 1)];
  const double u = fma(mantissa, point.x, -1.0);
  double series = fma(u, 1.0 / 7, -1.0 / 6);
  series = fma(u, series, 1.0 / 5), series = fma(u, series, -1.0 / 4), series = fma(u, series, 1.0 / 3);
  series = fma(u * u, fma(u, series, -0.5), u);
  return fma((double)((high >> 20) - 1023), 0.69314718055994530942, point.y + series);
}

// E[e^(k eta); eta < 0] for eta ~ N(mean, spread^2), so that no factor overflows.
__device__ double partial_exponential(double mean, double spread, double k) {
  const double z = mean / spread, near = fmin(fmax(z, -FAR), FAR);
  if (fabs(z) <= FAR) return 0.5 * exp(-0.5 * near * near) * erfcx((near + k * spread) * 0.70710678118654752440);
  const double x = z + k * spread, exponent = fmin(k * mean + 0.5 * k * spread * k * spread, 0.0);
  return x < 0 ? exp(exponent) * normcdf(-x) : 0.0;
}

// Wide predictors: g and log g as short sums of exponentials on either side of zero (likelihoods/bernoulli.py).
__device__ __noinline__ Factor wide_factor(double mean, double spread, bool click, const double* coefficients) {
  const double low = -fabs(mean), towards = click ? mean : -mean, z = towards / spread, near = fmin(fmax(z, -FAR), FAR);
  Factor out = {normcdf(low / spread), 0.0,
                towards * normcdf(-z) - spread * exp(-0.5 * near * near) * 0.39894228040143267794};
  for (int k = 1; k <= ORDERS; k++) {
    const double c = coefficients[k - 1], under = partial_exponential(low, spread, k),
                 over = partial_exponential(-low, spread, k);
    out.expected += c * (under - over);
    out.slope += k * c * (under + over);
    out.log_density -= c / k * (under + over);
  }
  if (mean > 0) out.expected = 1.0 - out.expected;
  out.log_density = fmin(out.log_density, 0.0);
  return out;
}

// Narrow predictors: quadrature at |mean| +- spread node. With E = e^-|mean| and F = e^-(spread node), both values of g come
// from one reciprocal, 1 / ((1 + E F) (E + F)), and both logarithms from that of the same product.
__device__ __forceinline__ Factor narrow_factor(double mean, double spread, bool click, const double* nodes,
                                                const double* shares, const double2* points) {
  const double size = fabs(mean), E = exp(-size);
  double expected = 0, tilt = 0, bend = 0, logs = 0;
#pragma unroll 2
  for (int k = 0; k < NODES; k++) {
    const double z = spread * nodes[k], F = exp(-z), share = shares[k];
    const double sum = E + F, one = fma(E, F, 1.0), both = sum * one, inverse_both = inverse(both);
    expected += share * (sum + F * one) * inverse_both;
    tilt += share * nodes[k] * (E * (1.0 - F * F)) * inverse_both;
    logs += share * (quick_log(both, points) + z);
  }
  if (spread <= SHARP)
    for (int k = 0; k < NODES; k++) {
      const double F = exp(-spread * nodes[k]), high = fma(E, F, 1.0), low = E + F;
      bend += shares[k] * E * F * (1.0 / (high * high) + 1.0 / (low * low));
    }
  Factor out;
  out.expected = mean < 0 ? 1.0 - expected : expected;
  out.slope = spread > SHARP ? tilt * inverse(spread) : bend;
  out.log_density = -logs - ((mean < 0) == click ? size : 0.0);
  return out;
}

extern "C" __global__ void __launch_bounds__(32, D == 32 ? 8 : 14)
click_sums(const double* __restrict__ contexts, const unsigned char* __restrict__ clicks, const double* __restrict__ counts,
           const double* __restrict__ means, const double* __restrict__ covariances, const int* __restrict__ item_action,
           const int* __restrict__ item_begin, const int* __restrict__ item_end, const int* __restrict__ item_target,
           const double* __restrict__ rules, double* __restrict__ S, double* __restrict__ V, double* __restrict__ Q,
           double* __restrict__ weights, double* __restrict__ linears, double* __restrict__ fit, int n_items, int counted) {
  __shared__ __align__(16) double tile[2][32 * STRIDE], cov[D * D], mean_[D], weight_[32], linear_[32];
  __shared__ double rule[2 * NODES + ORDERS];
  __shared__ double2 points[LOGS];
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  if (lane < 2 * NODES + ORDERS) rule[lane] = rules[lane];
  for (int k = lane; k < LOGS; k += 32) points[k] = ((const double2*)(rules + 2 * NODES + ORDERS))[k];
  for (int item = blockIdx.x; item < n_items; item += gridDim.x) {
    const int a = item_action[item], begin = item_begin[item], end = item_end[item];
    auto fetch = [&](int start, double* rows) {
#pragma unroll
      for (int e = lane; e < 16 * D; e += 32) {
        const int row = e / (D / 2), at = row * STRIDE + e % (D / 2) * 2;
        if (start + row < end) {
          copy_16_bytes(&rows[at], contexts + (size_t)(start + row) * D + e % (D / 2) * 2);
        } else {
          rows[at] = 0, rows[at + 1] = 0;
        }
      }
      end_copies();
    };
#pragma unroll
    for (int e = lane; e < D * D / 2; e += 32) copy_16_bytes(&cov[2 * e], covariances + (size_t)a * D * D + 2 * e);
    if (lane < D / 2) copy_16_bytes(&mean_[2 * lane], means + (size_t)a * D + 2 * lane);
    fetch(begin, tile[0]);
    double s[TILES][TILES][2] = {}, v[TILES] = {}, total = 0, square = 0, known = 0;
    int side = 0;
    for (int start = begin; start < end; start += 32, side ^= 1) {
      if (start + 32 < end) {
        fetch(start + 32, tile[side ^ 1]);
        wait_for_copies<1>();
      } else {
        wait_for_copies<0>();
      }
      __syncwarp();
      const double* x = tile[side];
      const int round = start + lane;
      const bool inside = round < end, click = inside && clicks[round];
      double mean = 0, variance = 0;
      {
        double own[D];
#pragma unroll
        for (int i = 0; i < D; i += 2) {
          const double2 pair = *(const double2*)&x[lane * STRIDE + i];
          own[i] = pair.x, own[i + 1] = pair.y;
        }
#pragma unroll
        for (int i = 0; i < D; i++) {
          double self = 0, others = 0;
#pragma unroll
          for (int j = i / 2 * 2; j < D; j += 2) {
            const double2 pair = *(const double2*)&cov[i * D + j];
            if (j > i) others += pair.x * own[j];
            if (j == i) self = pair.x * own[j];
            if (j + 1 > i) others += pair.y * own[j + 1];
            if (j + 1 == i) self = pair.y * own[j + 1];
          }
          variance += own[i] * (self + 2 * others);
          mean += mean_[i] * own[i];
        }
      }
      const double spread = variance > 1e-280 ? variance * inverse_root(variance) : 0.0;
      const Factor factor = spread > NARROW ? wide_factor(mean, spread, click, rule + 2 * NODES)
                                            : narrow_factor(mean, spread, click, rule, rule + NODES, points);
      const double count = !inside ? 0.0 : counted ? counts[round] : 1.0, weight = fmax(factor.slope, LEAST_WEIGHT);
      total += count * factor.log_density;
      const double linear = weight * mean + (click ? 1.0 : 0.0) - factor.expected;
      square += count * linear * linear * inverse(weight), known += count * weight;
      weight_[lane] = count * weight, linear_[lane] = count * linear;
      if (inside) weights[round] = weight, linears[round] = linear;
      __syncwarp();
#pragma unroll
      for (int k = 0; k < 32; k += 8) {
        double low[TILES], high[TILES];
        const double w0 = weight_[k + t], w1 = weight_[k + t + 4], l0 = linear_[k + t], l1 = linear_[k + t + 4];
#pragma unroll
        for (int m = 0; m < TILES; m++) {
          low[m] = x[(k + t) * STRIDE + 8 * m + g], high[m] = x[(k + t + 4) * STRIDE + 8 * m + g];
          v[m] += l0 * low[m] + l1 * high[m];
        }
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
          for (int m = 0; m < TILES; m += 2)
            multiply_add(s[m][n], s[m + 1][n], low[m], low[m + 1], high[m], high[m + 1], w0 * low[n], w1 * high[n]);
      }
      __syncwarp();
    }
    const size_t target = item_target[item];
#pragma unroll
    for (int m = 0; m < TILES; m++) {
#pragma unroll
      for (int n = 0; n < TILES; n++) {
        double2 pair;
        pair.x = s[m][n][0], pair.y = s[m][n][1];
        *(double2*)&S[target * D * D + (8 * m + g) * D + 8 * n + 2 * t] = pair;
      }
      v[m] += __shfl_xor_sync(EVERYONE, v[m], 1);
      v[m] += __shfl_xor_sync(EVERYONE, v[m], 2);
      if (t == 0) V[target * D + 8 * m + g] = v[m];
    }
#pragma unroll
    for (int step = 16; step; step /= 2) {
      total += __shfl_xor_sync(EVERYONE, total, step);
      square += __shfl_xor_sync(EVERYONE, square, step);
      known += __shfl_xor_sync(EVERYONE, known, step);
    }
    if (lane == 0) {
      double* out = fit + 3 * (size_t)item;
      Q[target] = square, out[0] = total, out[1] = -total, out[2] = known;  // no log likelihood of a click is positive
    }
  }
}
