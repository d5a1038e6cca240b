// out[M, N] = x[M, K] @ weight[N, K].T + bias. Twin: src/headway/ops/reference/linear.py.
//
// Weights are packed in panels of 32 columns: [N/32][steps][32] words, N filled up with zeros. A word
// is one float32, or a pair of bfloat16 along K (even k in the low half); bfloat16 steps are filled
// up with zeros to whole AMX tiles of 16. Both instruction families read this one layout.
//
// Order of the sum: each output is one accumulator that runs over the steps from 0 up, whatever M
// and wherever the row lies; then + bias; then, if accumulating, out + that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace headway {

inline constexpr size_t kPanelColumns = 32;
inline constexpr size_t kTileSteps = 16;
inline constexpr size_t kPanelsSideBySide = 4;  // of few rows, where memory is the wall
inline constexpr const char* kLayoutF32 = "cpu/f32/panel32/v1";
inline constexpr const char* kLayoutBf16 = "cpu/bf16/panel32/v1";

struct Range {
  size_t begin, end;
};

struct LinearArgs {
  const uint32_t* x;  // rows of [steps][parts] words, rounded to the weight's dtype (simd/words.h)
  const uint32_t* weight;
  const float* bias;  // or null
  float* out;         // [rows][out_features]
  size_t steps;  // of a packed column, padding included
  size_t out_features;
  bool accumulate;
  size_t x_stride;  // words from one row of x to the next
  uint32_t* widened;  // of bfloat16: room for widened_words
};

// Rows of x a line further apart than they are long: at a multiple of 4 KiB they would share the
// few places that a cache has for such addresses.
inline constexpr size_t padded_stride(size_t words) { return words + kTileSteps; }

inline constexpr size_t panels_of(size_t out_features) {
  return (out_features + kPanelColumns - 1) / kPanelColumns;
}
inline constexpr size_t steps_of(size_t in_features, bool is_bf16) {
  if (!is_bf16) return in_features;
  const size_t pairs = (in_features + 1) / 2;
  return (pairs + kTileSteps - 1) / kTileSteps * kTileSteps;
}

// Very many rows share bfloat16 weights that the first block of them widened, two words for one: so many bytes
// of weights at a time, or one panel if that is more.
inline constexpr size_t kWidenedBytes = 192 * 1024;
inline constexpr size_t widened_words(size_t steps) {
  return 2 * std::max(kWidenedBytes / sizeof(uint32_t), steps * kPanelColumns);
}

struct PackArgs {
  const void* weight;  // [out_features][in_features] float32 or bfloat16
  bool from_bf16, to_bf16;
  size_t out_features, in_features;
  uint32_t* packed;
};
void pack_panel(const PackArgs& args, size_t panel);

}  // namespace headway
