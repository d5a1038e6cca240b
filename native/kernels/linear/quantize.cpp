// float32 as whole numbers and a scale: x is about q * scale, q in [-127, 127].
// Twin: src/headway/ops/reference/linear_int8.py.
#include "kernels/kernel_table.h"

#include <cstring>

#include "kernels/simd/lanes.h"

namespace headway::HEADWAY_ISA {
namespace {

constexpr uint32_t kInfinity = 0x7F800000u;
constexpr uint32_t kSmallest = 0x0D800000u;  // 2^-100: below it 127 / largest could overflow
constexpr float kLargestByte = 127.0f;
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integer, ties to even
constexpr uint32_t kRoundBits = __builtin_bit_cast(uint32_t, kRound);

struct Quantized {
  float scale;
  int32_t sum;
};

// As raw bits, whose order is that of the magnitudes, NaN above infinity: the same in any order.
HEADWAY_INLINE uint32_t largest_magnitude(const float* x, size_t count) {
  u32x16 largest = broadcast(0u);
  HEADWAY_UNROLL
  for (size_t i = 0; i < count; i += kLanes) {
    largest = larger(as_u32(load_f32(x + i, count - i, 0.0f)) & broadcast(0x7FFFFFFFu), largest);
  }
  return max_lane(largest);
}

HEADWAY_INLINE void store_bytes(int8_t* to, u32x16 v, size_t count) {
  if (count >= kLanes) return store_low_bytes(to, v);
  alignas(16) int8_t bytes[kLanes];
  store_low_bytes(bytes, v);
  std::memcpy(to, bytes, count);
}

// In line, so that a constant count is unrolled.
HEADWAY_INLINE Quantized quantize_vectors(const float* x, size_t count, int8_t* to) {
  const uint32_t bits = largest_magnitude(x, count);
  if (bits < kSmallest || bits >= kInfinity) {
    std::memset(to, 0, count);
    return {bits < kSmallest ? 0.0f : __builtin_nanf(""), 0};
  }
  const float largest = __builtin_bit_cast(float, bits);
  const f32x16 per_unit = broadcast(kLargestByte / largest);
  u32x16 sums = broadcast(0u);
  HEADWAY_UNROLL
  for (size_t i = 0; i < count; i += kLanes) {
    // The low byte of the shifted float is that of the rounded integer.
    const u32x16 shifted = as_u32(load_f32(x + i, count - i, 0.0f) * per_unit + broadcast(kRound));
    store_bytes(to + i, shifted, count - i);
    sums = sums + (shifted - broadcast(kRoundBits));
  }
  return {largest / kLargestByte, static_cast<int32_t>(sum_lanes(sums))};
}

}  // namespace

float quantize(const float* x, size_t count, int8_t* to) { return quantize_vectors(x, count, to).scale; }

void quantize_row(const float* x, size_t count, const Int8Rows& rows, size_t row) {
  const size_t groups = int8_groups_of(count);
  for (size_t group = 0; group < groups; ++group) {
    const size_t first = group * kInt8Group, left = count - first, index = group * rows.rows + row;
    const size_t size = left < kInt8Group ? left : kInt8Group;
    int8_t* bytes = rows.bytes + index * kInt8Group;
    const Quantized made = size == kInt8Group ? quantize_vectors(x + first, kInt8Group, bytes)
                                              : quantize_vectors(x + first, size, bytes);
    std::memset(bytes + size, 0, kInt8Group - size);
    rows.scales[index] = made.scale;
    rows.starts[index] = -kInt8ZeroPoint * made.sum;
  }
}

}  // namespace headway::HEADWAY_ISA
