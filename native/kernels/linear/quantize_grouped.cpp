// Rows of x for weights with a scale for each group: as for int8, and a sum for each group.
#include <cstring>

#include "kernels/kernel_table.h"

namespace headway::HEADWAY_ISA {
namespace {

template <size_t kGroup>
void put_sums(const GroupFormat& format, const int8_t* bytes, float scale, const GroupedRows& rows, size_t group,
              size_t row) {
  int32_t sum = 0;
  for (size_t i = 0; i < kGroup; ++i) sum += bytes[i];
  const size_t at = group * rows.rows + row;
  if (format.has_minimum) {
    rows.sums[at] = static_cast<float>(sum) * scale;
  } else {
    rows.starts[at] = -format.zero() * sum;
  }
}

}  // namespace

void quantize_grouped_row(const float* x, size_t count, const GroupFormat& format, const GroupedRows& rows,
                          size_t row) {
  const size_t groups = format.groups_of(count), per_x = kInt8Group / format.group;
  for (size_t part = 0; part * kInt8Group < count; ++part) {
    const size_t first = part * kInt8Group, left = count - first, index = part * rows.rows + row;
    const size_t size = left < kInt8Group ? left : kInt8Group;
    int8_t* bytes = rows.bytes + index * kInt8Group;
    rows.scales[index] = quantize(x + first, size, bytes);
    std::memset(bytes + size, 0, kInt8Group - size);
    for (size_t i = 0; i < per_x && part * per_x + i < groups; ++i) {
      const int8_t* start = bytes + i * format.group;
      const auto put = format.group == 32 ? put_sums<32> : put_sums<16>;
      put(format, start, rows.scales[index], rows, part * per_x + i, row);
    }
  }
}

}  // namespace headway::HEADWAY_ISA
