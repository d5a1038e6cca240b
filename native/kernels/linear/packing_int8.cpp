#include <cstring>

#include "kernels/linear/linear_int8.h"

namespace headway {
namespace {

constexpr int kZeroPoint = 128;

// One column of a panel; returns the sum of its weights.
int32_t place_column(const uint8_t* column, size_t in_features, uint32_t* words) {
  int32_t sum = 0;
  for (size_t k = 0; k < in_features; ++k) {
    const int weight = column[k] - kZeroPoint;
    const uint32_t byte = static_cast<uint8_t>(weight);
    words[k / kPerInt8Word * kPanelColumns] |= byte << (8 * (k % kPerInt8Word));
    sum += weight;
  }
  return sum;
}

}  // namespace

void pack_int8_panel(const uint8_t* columns, size_t num_columns, size_t in_features, uint32_t* panel) {
  const size_t words = int8_panel_words(int8_steps_of(in_features));
  std::memset(panel, 0, words * sizeof *panel);
  for (size_t column = 0; column < num_columns; ++column) {
    uint32_t* first = panel + kPanelColumns + column;
    const int32_t sum = place_column(columns + column * in_features, in_features, first);
    panel[column] = static_cast<uint32_t>(-kZeroPoint * sum);
  }
}

}  // namespace headway
