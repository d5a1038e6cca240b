#include <algorithm>
#include <cstring>

#include "kernels/linear/linear_grouped.h"

namespace headway {
namespace {

// Numbers of one group of one column; `words` is the column's first word of the group.
void put_numbers(const GroupFormat& format, const uint8_t* numbers, size_t count, uint32_t* words) {
  const size_t per_word = 32 / format.bits;
  for (size_t k = 0; k < count; ++k) {
    const size_t place = k % per_word;
    const size_t shift = 8 * (place % kPerInt8Word) + (place < kPerInt8Word ? 0 : 4);
    words[k / per_word * kPanelColumns] |= static_cast<uint32_t>(numbers[k]) << shift;
  }
}

}  // namespace

void pack_grouped_panel(const GroupedPackArgs& args, size_t panel) {
  const GroupFormat& format = kGroupFormats[args.format];
  const size_t groups = format.groups_of(args.in_features), words = format.panel_words(args.in_features);
  uint32_t* to = args.packed + panel * words;
  std::memset(to, 0, words * sizeof *to);
  const size_t first = panel * kPanelColumns, columns = std::min(kPanelColumns, args.out_features - first);
  for (size_t column = 0; column < columns; ++column) {
    const size_t row = first + column;
    for (size_t group = 0; group < groups; ++group) {
      const size_t start = group * format.group, count = std::min(format.group, args.in_features - start);
      uint32_t* at = to + group * format.group_words();
      put_numbers(format, args.numbers + row * args.in_features + start, count, at + column);
      auto* scales = reinterpret_cast<uint16_t*>(at + format.steps() * kPanelColumns);
      scales[column] = args.scales[row * groups + group];
      if (format.has_minimum) scales[kPanelColumns + column] = args.minimums[row * groups + group];
    }
  }
}

}  // namespace headway
