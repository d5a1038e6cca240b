// From whole-number sums to the output, for sixteen columns of one row.
#pragma once

#include "kernels/linear/epilogue.h"
#include "kernels/linear/linear_int8.h"

namespace headway::HEADWAY_ISA {

// The total with one group more. Not a fused multiply-add: not every instruction set has one.
HEADWAY_INLINE f32x16 add_scaled(f32x16 total, u32x16 sum, float x_scale) {
  return total + from_int(sum) * broadcast(x_scale);
}

// Of sixteen columns; 0 where they are padding.
HEADWAY_INLINE f32x16 weight_scales(const Int8LinearArgs& args, size_t column) {
  if (column >= args.out_features) return broadcast(0.0f);
  return load_f32(args.weight_scales + column, args.out_features - column, 0.0f);
}

// Sixteen columns from `column` of one row.
HEADWAY_APART void finish_int8(const Int8LinearArgs& args, size_t row, size_t column, f32x16 total) {
  finish(args, row, column, total * weight_scales(args, column));
}

// R rows of V vectors; the totals are used up.
template <size_t R, size_t V>
HEADWAY_INLINE void finish_int8_block(const Int8LinearArgs& args, size_t row, size_t vector, f32x16 (&totals)[R][V]) {
  HEADWAY_UNROLL
  for (size_t v = 0; v < V; ++v) {
    const f32x16 scales = weight_scales(args, (vector + v) * kLanes);
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) totals[r][v] = totals[r][v] * scales;
  }
  finish_block<R, V>(args, row, vector, totals);
}

}  // namespace headway::HEADWAY_ISA
