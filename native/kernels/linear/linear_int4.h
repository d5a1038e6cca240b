// Weights of 4 bits that stand for int8: out[M, N] as in linear_int8.h, the weight's bytes computed first.
// Twin: src/headway/ops/reference/int4.py.
//
// 32 neighbours along K share a scale and a minimum, whole numbers as the weights themselves: a byte is
// minimum + floor(number * scale / 16), 128 above the weight in units of its row's factor. So a product is that
// of int8 from there on, at any number of rows.
//
// Panels of 32 columns; in a panel, 64 along K after each other: eight steps of 32 words with the numbers of
// eight neighbours (simd/int4_words.h), then 32 words, each a scale and a minimum for the first half and the
// same for the second, from the low byte up.
#pragma once

#include "kernels/linear/linear_int8.h"

namespace headway {

inline constexpr const char* kLayoutInt4 = "cpu/int4/panel32/v1";
inline constexpr size_t kInt4Group = 32;      // numbers that share a scale and a minimum
inline constexpr size_t kPerInt4Word = 8;
inline constexpr size_t kInt4Fraction = 16;   // a scale is in units of 1 / 16
inline constexpr size_t kInt4Steps = kInt8Group / kPerInt4Word;  // of numbers, in a group of int8
inline constexpr size_t kInt4GroupWords = (kInt4Steps + 1) * kPanelColumns;

inline constexpr size_t int4_groups_of(size_t in_features) { return (in_features + kInt4Group - 1) / kInt4Group; }
inline constexpr size_t int4_panel_words(size_t in_features) { return int8_groups_of(in_features) * kInt4GroupWords; }

// How many panels' bytes are computed before they are multiplied: they stay in the L2 cache.
inline constexpr size_t int4_panels_at_once(size_t groups) {
  constexpr size_t kBytes = 256 * 1024;
  const size_t fitting = kBytes / (int8_panel_words(groups) * sizeof(uint32_t));
  return fitting > 0 ? fitting : 1;
}

// Where rows quantised to 4 bits go.
struct Int4Rows {
  size_t width;                // in_features
  uint8_t* numbers;            // [rows][width]
  uint8_t *scales, *minimums;  // [rows][groups]
  float* factors;              // [rows]
};

// A panel of `num_rows` such rows.
void pack_int4_panel(const Int4Rows& rows, size_t num_rows, uint32_t* panel);

}  // namespace headway
