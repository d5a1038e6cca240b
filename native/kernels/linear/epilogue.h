// What happens to finished sums: bias, accumulation, and the columns that are padding.
#pragma once

#include "kernels/linear/linear.h"
#include "kernels/simd/lanes.h"

namespace headway::HEADWAY_ISA {

// Sixteen columns from `column` of one row. Args: LinearArgs, or another that has its outputs. A function
// of its own: in line, once for each sum of each block, it was most of the kernels' code.
template <class Args>
HEADWAY_APART void finish(const Args& args, size_t row, size_t column, f32x16 sum) {
  if (column >= args.out_features) return;
  const size_t count = args.out_features - column < kLanes ? args.out_features - column : kLanes;
  float* out = args.out + row * args.out_features + column;
  if (args.bias != nullptr) sum = sum + load_f32(args.bias + column, count, 0.0f);
  if (args.accumulate) sum = load_f32(out, count, 0.0f) + sum;
  store(out, sum, count);
}

// Rows of `vectors` vectors, one after the other.
template <class Args>
HEADWAY_APART void finish_rows(const Args& args, Range rows, size_t column, size_t vectors, const float* sums) {
  for (size_t row = rows.begin; row < rows.end; ++row) {
    for (size_t v = 0; v < vectors; ++v, sums += kLanes) finish(args, row, column + v * kLanes, load_f32(sums));
  }
}

// R rows of V vectors, which are used up. In line where all are whole and there is no bias: two dozen calls
// were up to a tenth of a block's time.
template <size_t R, size_t V, class Args>
HEADWAY_INLINE void finish_block(const Args& args, size_t row, size_t vector, f32x16 (&sums)[R][V]) {
  const size_t column = vector * kLanes;
  if (args.bias != nullptr || column + V * kLanes > args.out_features) {
    alignas(64) float lanes[R * V * kLanes];
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t v = 0; v < V; ++v) store(lanes + (r * V + v) * kLanes, sums[r][v]);
    }
    return finish_rows(args, {row, row + R}, column, V, lanes);
  }
  float* out = args.out + row * args.out_features + column;
  if (args.accumulate) {
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t v = 0; v < V; ++v) sums[r][v] = load_f32(out + r * args.out_features + v * kLanes) + sums[r][v];
    }
  }
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) store(out + r * args.out_features + v * kLanes, sums[r][v]);
  }
}

// Asks for the output of a block of R rows by V vectors: written without that, each line of a large
// output would be waited for at the end.
template <size_t R, size_t V, class Args>
HEADWAY_INLINE void fetch_out(const Args& args, size_t row, size_t vector) {
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    const float* out = args.out + (row + r) * args.out_features + vector * kLanes;
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) prefetch(out + v * kLanes);
  }
}

}  // namespace headway::HEADWAY_ISA
