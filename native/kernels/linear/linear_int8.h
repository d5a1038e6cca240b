// out[M, N] = float(q(x) . q(weight)) * x_scale * weight_scale + bias, whole numbers inside.
// Twin: src/headway/ops/reference/linear_int8.py.
//
// A row of x, or of the weight, is scaled so that its largest magnitude is 127. Products are summed
// in 32 bits, exactly, so every order gives one result; the scales are then applied in one order:
// sum * x_scale, * weight_scale, + bias, and, if accumulating, out + that. All instruction sets
// give the same bits.
//
// Panel of 32 columns: [1 + steps][32] words. The first row holds what each sum starts from, then
// come the weights, a word being four int8 along K, filled up with zeros to whole AMX tiles of 16
// words. x travels as q + 128, since the instructions want one unsigned factor; the start,
// -128 * (sum of the column), takes the 128 out again.
#pragma once

#include "kernels/linear/linear.h"

namespace headway {

inline constexpr const char* kLayoutInt8 = "cpu/int8/panel32/v1";
inline constexpr size_t kMaxInt8Features = 131072;  // 127 * 127 * this stays below 2^31
inline constexpr size_t kPerInt8Word = 4;

struct Int8LinearArgs {
  const uint32_t* x;  // [rows][steps] words of four bytes, each q + 128
  const float* x_scales;
  const uint32_t* weight;
  const float* weight_scales;  // [out_features]
  const float* bias;           // or null
  float* out;                  // [rows][out_features]
  size_t rows;
  size_t steps;  // of a packed column, padding included
  size_t out_features;
  bool accumulate;
};

inline constexpr size_t int8_steps_of(size_t in_features) {
  const size_t words = (in_features + kPerInt8Word - 1) / kPerInt8Word;
  return (words + kTileSteps - 1) / kTileSteps * kTileSteps;
}
inline constexpr size_t int8_panel_words(size_t steps) { return (1 + steps) * kPanelColumns; }

// The panel's `num_columns` columns as bytes q + 128, [num_columns][in_features]; the rest are zeros.
void pack_int8_panel(const uint8_t* columns, size_t num_columns, size_t in_features, uint32_t* panel);

}  // namespace headway
