// float32 as whole numbers and a scale: x is about q * scale, q in [-127, 127].
// Twin: src/headway/ops/reference/linear_int8.py.
#include "kernels/kernel_table.h"

#include <cstring>

namespace headway::HEADWAY_ISA {
namespace {

constexpr uint32_t kInfinity = 0x7F800000u;
constexpr uint32_t kSmallest = 0x0D800000u;  // 2^-100: below it 127 / largest could overflow
constexpr float kLargestByte = 127.0f;
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integer, ties to even

// As raw bits, whose order is that of the magnitudes, NaN above infinity: the same in any order.
uint32_t largest_magnitude(const float* x, size_t count) {
  int32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    int32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  return static_cast<uint32_t>(largest);
}

int32_t sum_of(const int8_t* values, size_t count) {
  int32_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += values[i];
  return sum;
}

}  // namespace

float quantize(const float* x, size_t count, int8_t* to) {
  const uint32_t bits = largest_magnitude(x, count);
  if (bits < kSmallest || bits >= kInfinity) {
    std::memset(to, 0, count);
    return bits < kSmallest ? 0.0f : __builtin_nanf("");
  }
  const float largest = __builtin_bit_cast(float, bits);
  const float per_unit = kLargestByte / largest;
  for (size_t i = 0; i < count; ++i) {
    // The low byte of the shifted float is that of the rounded integer.
    to[i] = static_cast<int8_t>(__builtin_bit_cast(uint32_t, x[i] * per_unit + kRound));
  }
  return largest / kLargestByte;
}

void quantize_row(const float* x, size_t count, const Int8Rows& rows, size_t row) {
  const size_t groups = int8_groups_of(count);
  for (size_t group = 0; group < groups; ++group) {
    const size_t first = group * kInt8Group, left = count - first, index = group * rows.rows + row;
    const size_t size = left < kInt8Group ? left : kInt8Group;
    int8_t* bytes = rows.bytes + index * kInt8Group;
    // Whole groups with a constant size: the compiler unrolls them.
    rows.scales[index] = size == kInt8Group ? quantize(x + first, kInt8Group, bytes) : quantize(x + first, size, bytes);
    std::memset(bytes + size, 0, kInt8Group - size);
    rows.starts[index] = -kInt8ZeroPoint * sum_of(bytes, kInt8Group);
  }
}

}  // namespace headway::HEADWAY_ISA
