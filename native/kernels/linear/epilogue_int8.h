// From a finished whole-number sum to the output, for sixteen columns of one row.
#pragma once

#include "kernels/linear/epilogue.h"
#include "kernels/linear/linear_int8.h"

namespace headway::HEADWAY_ISA {

HEADWAY_INLINE void finish_int8(const Int8LinearArgs& args, size_t row, size_t column, u32x16 sum) {
  if (column >= args.out_features) return;
  const size_t left = args.out_features - column, count = left < kLanes ? left : kLanes;
  const f32x16 scaled = from_int(sum) * broadcast(args.x_scales[row]);
  finish(args, row, column, scaled * load_f32(args.weight_scales + column, count, 0.0f));
}

}  // namespace headway::HEADWAY_ISA
