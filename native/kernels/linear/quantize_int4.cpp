// float32 as numbers of 4 bits, each 32 neighbours of a row with a scale and a minimum of their own.
// Twin: src/headway/ops/reference/int4.py.
//
// Several widths of a group's range are tried; for each, scale and minimum are those of the least squared
// error. Sixteen rows side by side are the lanes, so that every sum runs along K, in one order.
#include <cstring>

#include "kernels/kernel_table.h"
#include "kernels/simd/lanes.h"

namespace headway::HEADWAY_ISA {
namespace {

constexpr GroupFormat kForm = kGroupFormats[kInt4MinimumFormat];
constexpr size_t kGroup = kForm.group;
constexpr float kWidths[] = {13.0f, 13.5f, 14.0f, 14.5f, 15.0f, 15.5f, 16.0f, 16.5f, 17.0f};
constexpr float kMost = 15.0f, kMiddle = 7.5f;
constexpr float kRound = 12582912.0f;   // 1.5 * 2^23: adding it rounds to integer, ties to even
constexpr float kFlat = 0x1p-40f;       // a range below this, of rows scaled to [1, 2), is none
constexpr uint32_t kExponent = 0x7F800000u, kSmallest = 0x0D800000u, kLargestPower = 0x7E800000u;

struct Tile {
  alignas(64) float values[kGroup][kLanes];
  size_t count;
};

struct Fit {
  f32x16 scale, minimum;
};

HEADWAY_INLINE f32x16 rounded(f32x16 v) { return v + broadcast(kRound) - broadcast(kRound); }

HEADWAY_INLINE f32x16 smaller(f32x16 a, f32x16 b) { return select(a < b, a, b); }

HEADWAY_INLINE f32x16 to_number(f32x16 v) {
  return smaller(larger(rounded(v), broadcast(0.0f)), broadcast(kMost));
}

// 1 / v, and 0 where v is no more than `least`.
HEADWAY_INLINE f32x16 inverse(f32x16 numerator, f32x16 v, float least) {
  const u32x16 is_some = v > broadcast(least);
  return select(is_some, numerator / select(is_some, v, broadcast(1.0f)), broadcast(0.0f));
}

// The best line through (number, value) for one way to choose the numbers, and how much it explains.
HEADWAY_INLINE f32x16 fit(const Tile& tile, f32x16 inverse_step, Fit& line) {
  f32x16 numbers = broadcast(0.0f), squares = numbers, products = numbers, values = numbers;
  for (size_t k = 0; k < tile.count; ++k) {
    const f32x16 value = load_f32(tile.values[k]);
    const f32x16 number = to_number(value * inverse_step + broadcast(kMiddle));
    numbers = numbers + number;
    squares = squares + number * number;
    products = products + value * number;
    values = values + value;
  }
  const f32x16 count = broadcast(static_cast<float>(tile.count));
  const f32x16 spread = count * squares - numbers * numbers;
  line.scale = (count * products - values * numbers) * inverse(broadcast(1.0f), spread, 0.0f);
  line.minimum = (values - line.scale * numbers) / count;
  return line.scale * products + line.minimum * values;
}

// Scale and minimum of a tile whose values lie around 0; `range` is from the least to the largest.
Fit best_fit(const Tile& tile, f32x16 range) {
  Fit best{broadcast(0.0f), broadcast(0.0f)};
  f32x16 most = broadcast(-1.0f);
  for (const float width : kWidths) {
    Fit line;
    const f32x16 explained = fit(tile, inverse(broadcast(width), range, kFlat), line);
    const u32x16 is_better = explained > most;
    most = select(is_better, explained, most);
    best.scale = select(is_better, line.scale, best.scale);
    best.minimum = select(is_better, line.minimum, best.minimum);
  }
  return best;
}

// To float16, ties to even; |value| < 65504.
uint16_t to_f16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
  if (size < 0x38800000u) {  // subnormal: in units of 2^-24
    const float units = __builtin_bit_cast(float, size) * 0x1p24f + kRound;
    return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, units) & 0xFFF));
  }
  return static_cast<uint16_t>(sign | (((size + 0xFFF + (size >> 13 & 1)) >> 13) - (112u << 10)));
}

float from_f16(uint16_t half) {
  const float size = __builtin_bit_cast(float, static_cast<uint32_t>(half & 0x7FFF) << 13) * 0x1p112f;
  return half & 0x8000 ? -size : size;
}

// To float16, and what that stands for.
HEADWAY_INLINE f32x16 narrowed(f32x16 v, uint16_t* halves) {
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  for (size_t i = 0; i < kLanes; ++i) {
    halves[i] = to_f16(lanes[i]);
    lanes[i] = from_f16(halves[i]);
  }
  return load_f32(lanes);
}

// The power of two that brings a row to [1, 2), or 0 or NaN for rows of nothing and of no numbers.
float factor_of(const float* row, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, row + i, sizeof bits);
    bits &= 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  if (largest < kSmallest) return 0.0f;
  if (largest >= kExponent) return __builtin_nanf("");
  const uint32_t power = largest & kExponent;
  return __builtin_bit_cast(float, power < kLargestPower ? power : kLargestPower);
}

// Subtracts the middle of the range; returns it.
HEADWAY_INLINE f32x16 center(Tile& tile, f32x16& range) {
  f32x16 least = load_f32(tile.values[0]), most = least;
  for (size_t k = 1; k < tile.count; ++k) {
    const f32x16 value = load_f32(tile.values[k]);
    least = smaller(value, least);
    most = larger(value, most);
  }
  const f32x16 middle = (least + most) * broadcast(0.5f);
  for (size_t k = 0; k < tile.count; ++k) store(tile.values[k], load_f32(tile.values[k]) - middle);
  range = most - least;
  return middle;
}

struct Numbers {
  uint16_t scales[kLanes], minimums[kLanes];
  uint8_t numbers[kGroup][kLanes];
};

void quantize_tile(Tile& tile, Numbers& to) {
  f32x16 range;
  const f32x16 middle = center(tile, range);
  const Fit best = best_fit(tile, range);
  const f32x16 scale = narrowed(best.scale, to.scales);
  const f32x16 minimum = narrowed(best.minimum + middle, to.minimums) - middle;
  const f32x16 inverse_scale = inverse(broadcast(1.0f), scale, 0.0f);
  for (size_t k = 0; k < tile.count; ++k) {
    alignas(64) uint32_t lanes[kLanes];
    store(lanes, to_int(to_number((load_f32(tile.values[k]) - minimum) * inverse_scale)));
    for (size_t i = 0; i < kLanes; ++i) to.numbers[k][i] = static_cast<uint8_t>(lanes[i]);
  }
}

}  // namespace

void quantize_int4(const float* rows, size_t num_rows, const Int4Rows& to) {
  float inverses[kLanes] = {};
  for (size_t i = 0; i < num_rows; ++i) {
    to.factors[i] = factor_of(rows + i * to.width, to.width);
    inverses[i] = to.factors[i] > 0 ? 1 / to.factors[i] : 0;
  }
  const size_t groups = kForm.groups_of(to.width);
  for (size_t group = 0; group < groups; ++group) {
    const size_t start = group * kGroup;
    Tile tile{{}, to.width - start < kGroup ? to.width - start : kGroup};
    for (size_t i = 0; i < num_rows; ++i) {
      if (inverses[i] == 0) continue;
      for (size_t k = 0; k < tile.count; ++k) tile.values[k][i] = rows[i * to.width + start + k] * inverses[i];
    }
    Numbers found;
    quantize_tile(tile, found);
    for (size_t i = 0; i < num_rows; ++i) {
      to.scales[i * groups + group] = found.scales[i];
      to.minimums[i * groups + group] = found.minimums[i];
      for (size_t k = 0; k < tile.count; ++k) to.numbers[i * to.width + start + k] = found.numbers[k][i];
    }
  }
}

}  // namespace headway::HEADWAY_ISA
