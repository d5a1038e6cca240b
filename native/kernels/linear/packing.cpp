#include "kernels/linear/linear.h"

#include <cstring>

#include "kernels/bfloat16.h"

namespace headway {
namespace {

float element(const PackArgs& args, size_t row, size_t k) {
  const size_t index = row * args.in_features + k;
  if (args.from_bf16) return from_bf16(static_cast<const uint16_t*>(args.weight)[index]);
  return static_cast<const float*>(args.weight)[index];
}

void pack_column_f32(const PackArgs& args, size_t row, uint32_t* column) {
  for (size_t k = 0; k < args.in_features; ++k) {
    column[k * kPanelColumns] = __builtin_bit_cast(uint32_t, element(args, row, k));
  }
}

void pack_column_bf16(const PackArgs& args, size_t row, uint32_t* column) {
  for (size_t k = 0; k < args.in_features; k += 2) {
    const uint32_t even = to_bf16(element(args, row, k));
    const uint32_t odd = k + 1 < args.in_features ? to_bf16(element(args, row, k + 1)) : 0;
    column[k / 2 * kPanelColumns] = even | odd << 16;
  }
}

}  // namespace

void pack_panel(const PackArgs& args, size_t panel) {
  const size_t panel_words = steps_of(args.in_features, args.to_bf16) * kPanelColumns;
  uint32_t* words = args.packed + panel * panel_words;
  std::memset(words, 0, panel_words * sizeof *words);
  for (size_t column = 0; column < kPanelColumns; ++column) {
    const size_t row = panel * kPanelColumns + column;
    if (row >= args.out_features) return;
    (args.to_bf16 ? pack_column_bf16 : pack_column_f32)(args, row, words + column);
  }
}

}  // namespace headway
