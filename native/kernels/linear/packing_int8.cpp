#include <cstring>

#include "kernels/linear/linear_int8.h"

namespace headway {

void pack_int8_panel(const int8_t* columns, size_t num_columns, size_t in_features, uint32_t* panel) {
  std::memset(panel, 0, int8_panel_words(int8_groups_of(in_features)) * sizeof *panel);
  for (size_t column = 0; column < num_columns; ++column) {
    const int8_t* from = columns + column * in_features;
    for (size_t k = 0; k < in_features; ++k) {
      const uint32_t byte = static_cast<uint8_t>(from[k] + kInt8ZeroPoint);
      panel[k / kPerInt8Word * kPanelColumns + column] |= byte << (8 * (k % kPerInt8Word));
    }
  }
}

}  // namespace headway
