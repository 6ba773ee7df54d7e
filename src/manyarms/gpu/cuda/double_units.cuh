// Building blocks: products of double-precision tiles on the matrix units, and copies that bypass the registers.

// C (8 x 8) += A (8 x 4) B (4 x 8): lane 4 g + t holds A at row g and column t, B at row t and column g,
// and C at columns 2 t, 2 t + 1 of row g.
__device__ __forceinline__ void multiply_add_small(double (&c)[2], double a, double b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
               : "+d"(c[0]), "+d"(c[1])
               : "d"(a), "d"(b));
}

// C (16 x 8) += A (16 x 8) B (8 x 8). Lane 4 g + t holds A at rows g, g + 8 and columns t, t + 4 (a0, a1: column t; a2, a3:
// column t + 4), B at rows t, t + 4 of column g, and C at columns 2 t, 2 t + 1 of rows g (top) and g + 8 (bottom).
__device__ __forceinline__ void multiply_add(double (&top)[2], double (&bottom)[2], double a0, double a1, double a2,
                                             double a3, double b0, double b1) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+d"(top[0]), "+d"(top[1]), "+d"(bottom[0]), "+d"(bottom[1])
      : "d"(a0), "d"(a1), "d"(a2), "d"(a3), "d"(b0), "d"(b1));
#else
  // Older chips multiply 8 x 4 by 4 x 8.
  multiply_add_small(top, a0, b0);
  multiply_add_small(top, a2, b1);
  multiply_add_small(bottom, a1, b0);
  multiply_add_small(bottom, a3, b1);
#endif
}

// 1 / sqrt(x) for normal x: the chip's estimate, and one step of third order.
__device__ __forceinline__ double inverse_root(double x) {
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  const double gap = fma(-x * y, y, 1.0);
  return fma(y * gap, fma(gap, 0.375, 0.5), y);
}

// 1 / x for normal x: the chip's estimate, and two steps of Newton's method, the first doubled.
__device__ __forceinline__ double inverse(double x) {
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  double gap = fma(-x, y, 1.0);
  y = fma(y, fma(gap, gap, gap), y);
  gap = fma(-x, y, 1.0);
  return fma(y, gap, y);
}

__device__ __forceinline__ void copy_16_bytes(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(shared)), "l"(global));
}
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;"); }
template <int LEFT>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
