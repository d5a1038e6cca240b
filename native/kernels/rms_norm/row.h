// One row of rms_norm, shared with the per-head norms of rope. Twin: reference/rms_norm.py.
#pragma once

#include "kernels/simd/lanes.h"

namespace headway::HEADWAY_ISA {

// Order of the sum of squares: lane i mod 16, then the fixed tree of sum_lanes. `out` may be `x`.
HEADWAY_INLINE void rms_norm_row(const float* x, const float* weight, float eps, size_t width, float* out) {
  f32x16 squares = broadcast(0.0f);
  for (size_t i = 0; i < width; i += kLanes) {
    const f32x16 v = load_f32(x + i, width - i, 0.0f);
    squares = fma(v, v, squares);
  }
  const float mean = sum_lanes(squares) / static_cast<float>(width);
  const f32x16 inverse = broadcast(1.0f / __builtin_sqrtf(mean + eps));
  for (size_t i = 0; i < width; i += kLanes) {
    const f32x16 v = load_f32(x + i, width - i, 0.0f) * inverse;
    store(out + i, v * load_f32(weight + i, width - i, 0.0f), width - i);
  }
}

}  // namespace headway::HEADWAY_ISA
