// out[M, N] = x[M, K] @ weight[N, K].T + bias, weights in 4 or 8 bits with a scale for each group along K.
// Twin: src/headway/ops/reference/linear_grouped.py.
//
// A weight is factor[n] * scale[n][g] * (q - zero), or factor[n] * (scale[n][g] * q + minimum[n][g]) with
// q >= 0 as stored. Panels of 32 columns; in a panel the groups follow each other, each with its numbers
// as words [steps][32], its scales as float16 [32] and, where the format has them, its minimums as float16
// [32]: one stream of memory. A word has four neighbours along K in 8 bits, or eight in 4 bits: the first
// four in the lower halves of the bytes, the next four in the upper.
//
// Order of a sum: per group the whole-number sum, exactly; total + (sum * scale) * x_scale; then
// + minimum * x_sum; after the groups total * factor, and the rest as in linear.h. Nothing is fused.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear/linear_int8.h"

namespace headway {

struct GroupFormat {
  const char* layout;
  size_t bits, group;  // bits of a number, numbers that share a scale
  bool has_minimum;

  constexpr int zero() const { return has_minimum ? 0 : 1 << (bits - 1); }
  constexpr size_t steps() const { return group * bits / 32; }
  constexpr size_t scale_words() const { return kPanelColumns / 2; }  // two float16 to a word
  constexpr size_t group_words() const { return steps() * kPanelColumns + (has_minimum ? 2 : 1) * scale_words(); }
  constexpr size_t groups_of(size_t in_features) const { return (in_features + group - 1) / group; }
  constexpr size_t panel_words(size_t in_features) const { return groups_of(in_features) * group_words(); }
};

// Q4_0; Q4_1 and Q4_K; Q8_0 and Q5_0; Q5_1 and Q5_K; Q6_K; matrices of which a part is Q6_K.
inline constexpr GroupFormat kGroupFormats[] = {{"cpu/int4/group32/v1", 4, 32, false},
                                                {"cpu/int4/group32-minimum/v1", 4, 32, true},
                                                {"cpu/int8/group32/v1", 8, 32, false},
                                                {"cpu/int8/group32-minimum/v1", 8, 32, true},
                                                {"cpu/int8/group16/v1", 8, 16, false},
                                                {"cpu/int8/group16-minimum/v1", 8, 16, true}};
inline constexpr size_t kNumGroupFormats = sizeof kGroupFormats / sizeof *kGroupFormats;
inline constexpr size_t kInt4Format = 0, kInt4MinimumFormat = 1;
inline constexpr size_t kInt8Format = 2, kInt8MinimumFormat = 3;
inline constexpr size_t kInt8Group16Format = 4, kInt8Group16MinimumFormat = 5;

// Rows of x as int8: bytes, scales and places as in Int8Rows; for each group of the weight's format either what
// its sum starts from (- zero * the sum of x), or, for minimums, the sum of x times its scale.
struct GroupedRows {
  int8_t* bytes;    // [groups of 64][rows][64]
  float* scales;    // [groups of 64][rows]
  int32_t* starts;  // [groups][rows], or
  float* sums;      // [groups][rows]
  size_t rows;
};

struct GroupedLinearArgs {
  size_t format;      // index into kGroupFormats
  const uint32_t* x;  // the bytes of GroupedRows as words, [groups of 64][rows][16]
  const float* x_scales;
  const int32_t* x_starts;
  const float* x_sums;
  const uint32_t* weight;
  const float* factors;  // [out_features]
  const float* bias;     // or null
  float* out;            // [rows][out_features]
  size_t rows, groups, out_features;  // rows: places for them
  bool accumulate;
};

// Numbers, scales and minimums of a weight, row by row: what is packed.
struct GroupedPackArgs {
  size_t format;
  const uint8_t* numbers;            // [out_features][in_features]
  const uint16_t *scales, *minimums;  // [out_features][groups] float16; no minimums: null
  size_t out_features, in_features;
  uint32_t* packed;
};
void pack_grouped_panel(const GroupedPackArgs& args, size_t panel);

}  // namespace headway
