#include <algorithm>
#include <cstring>

#include "kernels/linear/linear_int8.h"

namespace headway {
namespace {

constexpr size_t kBlockWords = 16;  // of each column before the next: see packing.cpp

uint32_t byte_at(const int8_t* from, size_t index) {
  return static_cast<uint32_t>(static_cast<uint8_t>(from[index] + kInt8ZeroPoint)) << (8 * index);
}

void pack_words(const int8_t* from, size_t count, uint32_t* words) {
  for (size_t word = 0; word < count; ++word, from += kPerInt8Word) {
    words[word * kPanelColumns] = byte_at(from, 0) | byte_at(from, 1) | byte_at(from, 2) | byte_at(from, 3);
  }
}

}  // namespace

void pack_int8_panel(const int8_t* columns, size_t num_columns, size_t in_features, uint32_t* panel) {
  const size_t words = in_features / kPerInt8Word, past = words * kPerInt8Word;
  const size_t panel_words = int8_panel_words(int8_groups_of(in_features));
  const size_t filled = num_columns == kPanelColumns ? words * kPanelColumns : 0;
  std::memset(panel + filled, 0, (panel_words - filled) * sizeof *panel);
  for (size_t first = 0; first < words; first += kBlockWords) {
    for (size_t column = 0; column < num_columns; ++column) {
      pack_words(columns + column * in_features + first * kPerInt8Word, std::min(kBlockWords, words - first),
                 panel + first * kPanelColumns + column);
    }
  }
  for (size_t column = 0; column < num_columns && past < in_features; ++column) {
    for (size_t k = past; k < in_features; ++k) {
      panel[words * kPanelColumns + column] |= byte_at(columns + column * in_features + past, k - past);
    }
  }
}

}  // namespace headway
