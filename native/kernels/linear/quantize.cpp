// A row of float32 as bytes q + 128 and a scale: x is about q * scale, q in [-127, 127].
// Twin: src/headway/ops/reference/linear_int8.py.
#include "kernels/kernel_table.h"

#include <cstring>

namespace headway::HEADWAY_ISA {
namespace {

constexpr uint32_t kInfinity = 0x7F800000u;
constexpr uint32_t kSmallest = 0x0D800000u;  // 2^-100: below it 127 / largest could overflow
constexpr float kLargestByte = 127.0f;
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integer, ties to even
constexpr int kZeroPoint = 128;

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

}  // namespace

float quantize_row(const float* x, size_t count, uint8_t* to) {
  const uint32_t bits = largest_magnitude(x, count);
  if (bits < kSmallest || bits >= kInfinity) {
    std::memset(to, kZeroPoint, count);
    return bits < kSmallest ? 0.0f : __builtin_nanf("");
  }
  const float largest = __builtin_bit_cast(float, bits);
  const float per_unit = kLargestByte / largest;
  for (size_t i = 0; i < count; ++i) {
    // The low byte of the shifted float is that of the rounded integer.
    to[i] = static_cast<uint8_t>(__builtin_bit_cast(uint32_t, x[i] * per_unit + kRound) + kZeroPoint);
  }
  return largest / kLargestByte;
}

}  // namespace headway::HEADWAY_ISA
