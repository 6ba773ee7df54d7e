// The best action of every context under every draw of the weights, none of which is stored.
//
// In units in which an action is N(q, I) before its rounds, it is N(U U' (q + b), U U') after them, U upper triangular.
// Draw s of action a is  theta = g_a + (q_s U_a + e_sa) U_a'  as a row, with g = U U' b, q_s the draw of what the kind of
// action a shares, and standard normal e_sa made from the numbers of the draw and the action alone. Here D = 16.
//
// `best_tiles` makes a tile of actions under 16 draws on the matrix units, in half precision, and scores 1,024 contexts
// against it, also on the matrix units. It keeps the best tile of each context and draw, split by split. `best_actions`
// makes the draws of the best of these again and scores them, in single precision.
#define DRAWS 16
#define TILE 64
#define STRIDE (TILE * 16 + 4)  // halves of one draw in shared memory: its rows then fall into different banks
#define EVERYONE 0xffffffffu
typedef unsigned int word;

struct Words { word x, y, z, w; };

// Philox 4x32 with ten rounds (Salmon et al., 2011).
__device__ __forceinline__ Words philox(word c0, word c1, word k0, word k1) {
  word c2 = 0, c3 = 0;
#pragma unroll
  for (int i = 0; i < 10; i++) {
    const word high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const word high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0, c1 = low1, c2 = high0 ^ c3 ^ k1, c3 = low0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// Four standard normal numbers, those of features 2t, 2t + 1, 2t + 8 and 2t + 9 (Box and Muller).
__device__ __forceinline__ float4 normals(int action, int t, word seed, int draw) {
  const Words p = philox((word)action, (word)t, seed, (word)draw);
  const float r0 = sqrtf(-2.f * __logf(((float)p.x + 0.5f) * 2.3283064e-10f));
  const float r1 = sqrtf(-2.f * __logf(((float)p.z + 0.5f) * 2.3283064e-10f));
  float s0, c0, s1, c1;
  __sincosf((float)(int)p.y * 1.4629181e-9f, &s0, &c0);
  __sincosf((float)(int)p.w * 1.4629181e-9f, &s1, &c1);
  return make_float4(r0 * c0, r0 * s0, r1 * c1, r1 * s1);
}

__device__ __forceinline__ word pack(float low, float high) {
  word out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

__device__ __forceinline__ word max_of_pairs(word a, word b) {
  word out;
  asm("max.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}

__device__ __forceinline__ float low_half(word a) {
  float out;
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(out) : "r"(a));
  return out;
}

// C (16 x 8) += A (16 x 16) B (16 x 8) with sums in single precision.
__device__ __forceinline__ void multiply(float (&c)[4], word a0, word a1, word a2, word a3, word b0, word b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// theta of one action under 16 draws, rounded to half precision; a warp.
__device__ __forceinline__ void make_draws(unsigned short* out, int action, const uint4* __restrict__ factors,
                                           const float* __restrict__ constant, const uint2* __restrict__ shared,
                                           int kind, word seed, int draw, float scale, int lane) {
  const int g = lane / 4, t = lane % 4;
  const uint4 right = __ldg(&factors[(size_t)action * 64 + lane]), left = __ldg(&factors[(size_t)action * 64 + 32 + lane]);
  const uint2 top = __ldg(&shared[(size_t)kind * 64 + g * 4 + t]), bottom = __ldg(&shared[(size_t)kind * 64 + (g + 8) * 4 + t]);
  const float4 first = normals(action, t, seed, draw + g), second = normals(action, t, seed, draw + g + 8);
  float z[2][4] = {{scale * first.x, scale * first.y, scale * second.x, scale * second.y},
                   {scale * first.z, scale * first.w, scale * second.z, scale * second.w}};
  multiply(z[0], top.x, bottom.x, top.y, bottom.y, right.x, right.y);
  multiply(z[1], top.x, bottom.x, top.y, bottom.y, right.z, right.w);
  const float2 g0 = __ldg((const float2*)&constant[(size_t)action * 16 + 2 * t]);
  const float2 g1 = __ldg((const float2*)&constant[(size_t)action * 16 + 8 + 2 * t]);
  float theta[2][4] = {{g0.x, g0.y, g0.x, g0.y}, {g1.x, g1.y, g1.x, g1.y}};
  const word a0 = pack(z[0][0], z[0][1]), a1 = pack(z[0][2], z[0][3]), a2 = pack(z[1][0], z[1][1]), a3 = pack(z[1][2], z[1][3]);
  multiply(theta[0], a0, a1, a2, a3, left.x, left.y);
  multiply(theta[1], a0, a1, a2, a3, left.z, left.w);
#pragma unroll
  for (int j = 0; j < 2; j++) {
    *(word*)&out[g * STRIDE + 8 * j + 2 * t] = pack(theta[j][0], theta[j][1]);
    *(word*)&out[(g + 8) * STRIDE + 8 * j + 2 * t] = pack(theta[j][2], theta[j][3]);
  }
}

// Blocks: (groups of 16 draws) x (splits of the actions). 8 warps hold 128 contexts each.
extern "C" __global__ void __launch_bounds__(256, 2)
best_tiles(const uint2* __restrict__ contexts, const uint4* __restrict__ factors, const float* __restrict__ constant,
           const uint2* __restrict__ shared, const int* __restrict__ kinds, unsigned short* __restrict__ tops,
           unsigned short* __restrict__ where, const float* __restrict__ settings, int seed, int n_kinds, int n_actions,
           int n_splits) {
  extern __shared__ uint4 memory[];
  const float scale = settings[0];
  uint4* states = memory;                                              // (draw, thread): two pairs of tops, four tiles
  unsigned short* theta = (unsigned short*)(memory + DRAWS * 256);
  const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
  // Blocks that run at the same time read the same actions.
  const int n_groups = gridDim.x / n_splits, split = blockIdx.x / n_groups, group = blockIdx.x % n_groups;
  const int n_tiles = (n_actions + TILE - 1) / TILE;
  const uint2* own = shared + (size_t)group * n_kinds * 64;
  word x[8][4];
#pragma unroll
  for (int i = 0; i < 8; i++) {
    // Features are permuted in the same way in both operands: a lane has four neighbours.
    const uint2 top = contexts[(warp * 128 + 16 * i + g) * 4 + t], bottom = contexts[(warp * 128 + 16 * i + 8 + g) * 4 + t];
    x[i][0] = top.x, x[i][1] = bottom.x, x[i][2] = top.y, x[i][3] = bottom.y;
  }
  for (int s = 0; s < DRAWS; s++) states[s * 256 + tid] = make_uint4(0xFC00FC00u, 0xFC00FC00u, 0, 0);
  // Neighbours, which share more, belong to different splits: of the best tiles of one split only one is kept.
  for (int tile = split; tile < n_tiles; tile += n_splits) {
    __syncthreads();
#pragma unroll 2
    for (int k = 0; k < TILE / 8; k++) {
      // Beyond the last action, that one again: it changes no maximum.
      const int action = min(tile * TILE + warp * (TILE / 8) + k, n_actions - 1);
      make_draws(theta + (warp * (TILE / 8) + k) * 16, action, factors, constant, own, __ldg(&kinds[action]), (word)seed,
                 group * DRAWS, scale, lane);
    }
    __syncthreads();
    const word number = (word)(tile / n_splits) * 0x10001u;
    for (int s = 0; s < DRAWS; s++) {
      word top[8][2];
#pragma unroll
      for (int i = 0; i < 8; i++) top[i][0] = top[i][1] = 0xFC00FC00u;
#pragma unroll 4
      for (int k = 0; k < TILE / 8; k++) {
        const uint2 b = *(const uint2*)&theta[s * STRIDE + (8 * k + g) * 16 + 4 * t];
#pragma unroll
        for (int i = 0; i < 8; i++) {
          word d0, d1;
          asm volatile(
              "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%8};"
              : "=r"(d0), "=r"(d1)
              : "r"(x[i][0]), "r"(x[i][1]), "r"(x[i][2]), "r"(x[i][3]), "r"(b.x), "r"(b.y), "r"(0));
          top[i][0] = max_of_pairs(top[i][0], d0), top[i][1] = max_of_pairs(top[i][1], d1);
        }
      }
      // Pairs of rows g and g + 8; the four lanes of a row split the eight i between them.
      word pair[8], half[4], two[2];
#pragma unroll
      for (int i = 0; i < 8; i++)
        pair[i] = max_of_pairs(__byte_perm(top[i][0], top[i][1], 0x5410), __byte_perm(top[i][0], top[i][1], 0x7632));
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const word give = t & 1 ? pair[i] : pair[i + 4], keep = t & 1 ? pair[i + 4] : pair[i];
        half[i] = max_of_pairs(keep, __shfl_xor_sync(EVERYONE, give, 1));
      }
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const word give = t & 2 ? half[i] : half[i + 2], keep = t & 2 ? half[i + 2] : half[i];
        two[i] = max_of_pairs(keep, __shfl_xor_sync(EVERYONE, give, 2));
      }
      uint4 state = states[s * 256 + tid];
      const word old0 = state.x, old1 = state.y;
      state.x = max_of_pairs(old0, two[0]), state.y = max_of_pairs(old1, two[1]);
      // 0xFFFF in each half that has grown.
      const word grown0 = __vcmpne2(state.x, old0), grown1 = __vcmpne2(state.y, old1);
      if (grown0 | grown1) {
        state.z = (state.z & ~grown0) | (number & grown0), state.w = (state.w & ~grown1) | (number & grown1);
        states[s * 256 + tid] = state;
      }
    }
  }
  for (int s = 0; s < DRAWS; s++) {
    const uint4 state = states[s * 256 + tid];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int i = (t & 1) * 4 + (t & 2) + k / 2, row = warp * 128 + 16 * i + 8 * (k % 2) + g;
      const size_t at = ((size_t)(group * DRAWS + s) * n_splits + split) * 1024 + row;
      const word value = k / 2 ? state.y : state.x, tile = k / 2 ? state.w : state.z;
      tops[at] = (unsigned short)(k % 2 ? value >> 16 : value), where[at] = (unsigned short)(k % 2 ? tile >> 16 : tile);
    }
  }
}

// The tiles of each context and draw whose top is within reach of the best: their number in `count`, and as many as fit.
extern "C" __global__ void __launch_bounds__(256)
hopeful_tiles(const unsigned short* __restrict__ tops, const unsigned short* __restrict__ where,
              const float* __restrict__ settings, int* __restrict__ count, int* __restrict__ tiles, int* __restrict__ pairs,
              int n_splits, int n_rows, int n_draws, int capacity) {
  const int pair = blockIdx.x * 256 + threadIdx.x, draw = pair / n_rows, row = pair % n_rows;
  if (draw >= n_draws) return;
  const size_t first = (size_t)draw * n_splits * 1024 + row;
  float most = -1e30f;
  for (int k = 0; k < n_splits; k++) most = fmaxf(most, low_half(tops[first + (size_t)k * 1024]));
  const float floor = most - settings[1] * fmaxf(fabsf(most), settings[0]);
  for (int k = 0; k < n_splits; k++)
    if (low_half(tops[first + (size_t)k * 1024]) >= floor) {
      const int place = atomicAdd(count, 1);
      if (place < capacity) tiles[place] = where[first + (size_t)k * 1024] * n_splits + k, pairs[place] = pair;
    }
}

// The best action of a tile for two pairs of a context and a draw, by one warp: half a warp computes an action, and a lane
// one column of U, which is read once for both pairs.
__device__ __forceinline__ void score_tile(const float* __restrict__ contexts, const float* __restrict__ uppers,
                                           const float* __restrict__ constant, const float* __restrict__ shared,
                                           const int* __restrict__ kinds, int tile, const int (&pair)[2], float (&top)[2],
                                           int (&winner)[2], float scale, word seed, int n_kinds, int n_actions, int n_rows,
                                           int lane) {
  const int column = lane % 16, t = column % 8 / 2;
  float x[2][16], q[2][16];
#pragma unroll
  for (int p = 0; p < 2; p++) {
    top[p] = -1e30f, winner[p] = n_actions;
#pragma unroll
    for (int f = 0; f < 16; f++) x[p][f] = __ldg(&contexts[pair[p] % n_rows * 16 + f]);
  }
  const float own_x[2] = {__ldg(&contexts[pair[0] % n_rows * 16 + column]), __ldg(&contexts[pair[1] % n_rows * 16 + column])};
  const int draw[2] = {pair[0] / n_rows, pair[1] / n_rows};
  int last = -1;
  for (int e = 0; e < TILE; e += 8) {
    // Each lane makes four of the normal numbers of the next four actions of its half.
    const int begin = tile * TILE + e + lane / 16 * 4, mine = min(begin + column / 4, n_actions - 1);
    const float4 made[2] = {normals(mine, column % 4, seed, draw[0]), normals(mine, column % 4, seed, draw[1])};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int action = min(begin + j, n_actions - 1), source = lane / 16 * 16 + j * 4 + t, kind = __ldg(&kinds[action]);
      float u[16];
#pragma unroll
      for (int f = 0; f < 16; f++) u[f] = f <= column ? __ldg(&uppers[(size_t)action * 256 + f * 16 + column]) : 0.f;
      const float g = __ldg(&constant[(size_t)action * 16 + column]);
      if (kind != last) {
        last = kind;
#pragma unroll
        for (int p = 0; p < 2; p++)
#pragma unroll
          for (int f = 0; f < 16; f++) q[p][f] = __ldg(&shared[((size_t)draw[p] * n_kinds + kind) * 16 + f]);
      }
#pragma unroll
      for (int p = 0; p < 2; p++) {
        const float n0 = __shfl_sync(EVERYONE, made[p].x, source), n1 = __shfl_sync(EVERYONE, made[p].y, source);
        const float n2 = __shfl_sync(EVERYONE, made[p].z, source), n3 = __shfl_sync(EVERYONE, made[p].w, source);
        const float low = column & 1 ? n1 : n0, high = column & 1 ? n3 : n2;
        float own = scale * (column < 8 ? low : high), pull = 0;
#pragma unroll
        for (int f = 0; f < 16; f++) own += q[p][f] * u[f], pull += x[p][f] * u[f];
        float score = pull * own + own_x[p] * g;
#pragma unroll
        for (int step = 8; step; step /= 2) score += __shfl_xor_sync(EVERYONE, score, step);
        if (score > top[p] || (score == top[p] && action < winner[p])) top[p] = score, winner[p] = action;
      }
    }
  }
#pragma unroll
  for (int p = 0; p < 2; p++) {
    const float other = __shfl_xor_sync(EVERYONE, top[p], 16);
    const int action = __shfl_xor_sync(EVERYONE, winner[p], 16);
    if (other > top[p] || (other == top[p] && action < winner[p])) top[p] = other, winner[p] = action;
  }
}

// The best actions of some tiles, each for one context and draw. Tiles come in order, so that most neighbours share one.
extern "C" __global__ void __launch_bounds__(256, 2)
best_actions(const float* __restrict__ contexts, const float* __restrict__ uppers, const float* __restrict__ constant,
             const float* __restrict__ shared, const int* __restrict__ kinds, const int* __restrict__ tiles,
             const int* __restrict__ pairs, float* __restrict__ scores, int* __restrict__ best,
             const float* __restrict__ settings, int seed, int n_kinds, int n_actions, int n_rows, int n_pairs) {
  const int number = (blockIdx.x * 256 + threadIdx.x) / 32 * 2, lane = threadIdx.x % 32;
  if (number >= n_pairs) return;
  const int next = min(number + 1, n_pairs - 1);
  const bool alike = tiles[number] == tiles[next];
  for (int turn = 0; turn < (alike ? 1 : 2); turn++) {
    const int first = turn ? next : number, second = alike ? next : first;
    const int pair[2] = {pairs[first], pairs[second]};
    float top[2];
    int winner[2];
    score_tile(contexts, uppers, constant, shared, kinds, tiles[first], pair, top, winner, settings[0], (word)seed, n_kinds,
               n_actions, n_rows, lane);
    if (lane == 0) {
      scores[first] = top[0], best[first] = winner[0];
      scores[second] = top[1], best[second] = winner[1];
    }
  }
}
