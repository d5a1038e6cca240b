// out[M, N] = (sum over groups of float(q(x) . q(weight)) * x_scale) * weight_scale + bias.
// Twin: src/headway/ops/reference/linear_int8.py.
//
// A row of the weight has one scale, each 64 elements of a row of x have one: activations have
// outliers, which should cost their neighbours alone their precision. 64 is the depth of an AMX tile.
// Inside a group whole numbers are summed in 32 bits, exactly, so every order gives one result. In
// float32 there is one order: group by group from 0 up, total + sum * x_scale; then * weight_scale,
// + bias, and, if accumulating, out + that. All instruction sets give the same bits.
//
// Weights are packed in panels of 32 columns: [N/32][steps][32] words, N filled up. A word is four
// bytes along K, each q + 128, since the instructions want one unsigned factor; steps are filled up
// to whole groups of 16 words. x is signed, and filled up with zeros; a sum starts from
// -128 * (sum of the group's x), which takes the 128 out again.
#pragma once

#include "kernels/linear/linear.h"

namespace headway {

inline constexpr const char* kLayoutInt8 = "cpu/int8/panel32/v1";
inline constexpr size_t kPerInt8Word = 4;
inline constexpr size_t kInt8Group = kPerInt8Word * kTileSteps;
inline constexpr int kInt8ZeroPoint = 128;

// Rows of x as int8, group by group, so that rows of a group lie at constant distances: bytes
// [groups][rows][64], and for each group of each row its scale and its start, [groups][rows]; `rows`
// is int8_row_places of those that there are.
struct Int8Rows {
  int8_t* bytes;
  float* scales;
  int32_t* starts;
  size_t rows;
};

struct Int8LinearArgs {
  const uint32_t* x;  // the bytes of Int8Rows as words, [groups][rows][16]
  const float* x_scales;
  const int32_t* x_starts;
  const uint32_t* weight;
  const float* weight_scales;  // [out_features]
  const float* bias;           // or null
  float* out;                  // [rows][out_features]
  size_t rows, groups, out_features;  // rows: places for them, as above
  bool accumulate;
};

// An odd number of lines, and not near a multiple of 64, from one group of many rows to the next: at
// a multiple of 4 KiB a block's groups would share the few places that a cache has for such addresses.
inline constexpr size_t int8_row_places(size_t rows) { return rows < 16 ? rows : (rows + 2) / 16 * 16 + 13; }

inline constexpr size_t int8_groups_of(size_t in_features) { return (in_features + kInt8Group - 1) / kInt8Group; }
inline constexpr size_t int8_panel_words(size_t groups) { return groups * kTileSteps * kPanelColumns; }

// A panel of the rows `columns` of a quantised weight, [num_columns][in_features].
void pack_int8_panel(const int8_t* columns, size_t num_columns, size_t in_features, uint32_t* panel);

}  // namespace headway
