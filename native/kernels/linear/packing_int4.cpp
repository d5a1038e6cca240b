#include <cstring>

#include "kernels/linear/linear_int4.h"

namespace headway {
namespace {

// Where the bits of eight neighbours start in their word, as simd/int4_words.h has it.
constexpr size_t kStarts[kPerInt4Word] = {12, 4, 28, 20, 0, 8, 16, 24};

}  // namespace

void pack_int4_panel(const Int4Rows& rows, size_t num_rows, uint32_t* panel) {
  std::memset(panel, 0, int4_panel_words(rows.width) * sizeof *panel);
  const size_t groups = int4_groups_of(rows.width);
  for (size_t row = 0; row < num_rows; ++row) {
    const uint8_t* numbers = rows.numbers + row * rows.width;
    for (size_t k = 0; k < rows.width; ++k) {
      const size_t step = k % kInt8Group / kPerInt4Word;
      uint32_t* word = panel + k / kInt8Group * kInt4GroupWords + step * kPanelColumns + row;
      *word |= static_cast<uint32_t>(numbers[k]) << kStarts[k % kPerInt4Word];
    }
    for (size_t group = 0; group < groups; ++group) {
      uint32_t* word = panel + group / 2 * kInt4GroupWords + kInt4Steps * kPanelColumns + row;
      const uint32_t scale = rows.scales[row * groups + group], minimum = rows.minimums[row * groups + group];
      *word |= (scale | minimum << 8) << group % 2 * 16;
    }
  }
}

}  // namespace headway
