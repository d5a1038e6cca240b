// From whole-number sums to the output, for sixteen columns of one row.
#pragma once

#include "kernels/linear/epilogue.h"
#include "kernels/linear/linear_int8.h"

namespace headway::HEADWAY_ISA {

// The total with one group more. Not a fused multiply-add: not every instruction set has one.
HEADWAY_INLINE f32x16 add_scaled(f32x16 total, u32x16 sum, float x_scale) {
  return total + from_int(sum) * broadcast(x_scale);
}

HEADWAY_APART void finish_int8(const Int8LinearArgs& args, size_t row, size_t column, f32x16 total) {
  if (column >= args.out_features) return;
  const size_t left = args.out_features - column, count = left < kLanes ? left : kLanes;
  finish(args, row, column, total * load_f32(args.weight_scales + column, count, 0.0f));
}

}  // namespace headway::HEADWAY_ISA
