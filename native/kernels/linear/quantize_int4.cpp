// float32 as numbers of 4 bits, each 32 neighbours of a row with a scale and a minimum of their own.
// Twin: src/headway/ops/reference/int4.py.
//
// Rows are brought to [-127, 127] first. Several widths of a group's range are tried; for each, scale and
// minimum are those of the least squared error. Of the whole scales next to the best line's, that with the
// least error of what the numbers will stand for. Sixteen rows side by side are the lanes, so that every sum
// runs along K, in one order.
#include <cstring>

#include "kernels/kernel_table.h"
#include "kernels/simd/lanes.h"

namespace headway::HEADWAY_ISA {
namespace {

constexpr size_t kGroup = kInt4Group;
constexpr float kWidths[] = {13.0f, 13.5f, 14.0f, 14.5f, 15.0f, 15.5f, 16.0f, 16.5f, 17.0f};
constexpr float kMost = 15.0f, kMiddle = 7.5f;
constexpr float kRound = 12582912.0f;   // 1.5 * 2^23: adding it rounds to integer, ties to even
constexpr float kFlat = 0x1p-30f;       // a range below this, of rows brought to [-127, 127], is none
constexpr float kLargest = 127.0f, kFractions = kInt4Fraction;
constexpr float kLost = 15.0f / 32;     // about what rounding down costs; and less than 1 / 2 by enough
constexpr float kMostScale = 255.0f;
constexpr uint32_t kExponent = 0x7F800000u, kSmallest = 0x0D800000u;

struct Tile {
  alignas(64) float values[kGroup][kLanes];
  size_t count;
};

struct Fit {
  f32x16 scale, minimum;
};

// A whole scale and minimum, and the squared error of what they give.
struct WholeFit {
  f32x16 scale, minimum, error;
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

// Of multiples of 1 / 16.
HEADWAY_INLINE f32x16 rounded_down(f32x16 v) { return rounded(v - broadcast(kLost)); }

// Numbers as they are chosen and as they count, for a whole scale: in units of the row's factor.
struct Scale {
  f32x16 step, inverse_step;

  HEADWAY_MEMBER explicit Scale(f32x16 scale)
      : step(scale * broadcast(1 / kFractions)), inverse_step(inverse(broadcast(kFractions), scale, 0.0f)) {}
  HEADWAY_MEMBER f32x16 number(f32x16 value) const { return to_number(value * inverse_step); }
  HEADWAY_MEMBER f32x16 value(f32x16 number) const { return rounded_down(number * step); }
};

// The whole minimum that suits the numbers which the line gives, turned to this scale in the middle.
HEADWAY_INLINE f32x16 whole_minimum(const Tile& tile, f32x16 middle, const Fit& line, const Scale& scale) {
  const f32x16 start = line.minimum - (scale.step - line.scale) * broadcast(kMiddle);
  f32x16 rest = broadcast(0.0f);
  for (size_t k = 0; k < tile.count; ++k) {
    const f32x16 value = load_f32(tile.values[k]);
    rest = rest + (value - scale.value(scale.number(value - start)));
  }
  const f32x16 best = rounded(rest / broadcast(static_cast<float>(tile.count)) + middle);
  const f32x16 most = broadcast(kLargest) - scale.value(broadcast(kMost));
  return smaller(larger(best, broadcast(-kLargest - 1)), most);
}

HEADWAY_INLINE f32x16 number_of(f32x16 value, f32x16 minimum, const Scale& scale) {
  return scale.number(value - (minimum - broadcast(kLost)));
}

HEADWAY_INLINE WholeFit whole_fit(const Tile& tile, f32x16 middle, const Fit& line, f32x16 whole_scale) {
  const Scale scale(whole_scale);
  WholeFit found{whole_scale, whole_minimum(tile, middle, line, scale), broadcast(0.0f)};
  const f32x16 minimum = found.minimum - middle;
  for (size_t k = 0; k < tile.count; ++k) {
    const f32x16 value = load_f32(tile.values[k]);
    const f32x16 wrong = minimum + scale.value(number_of(value, minimum, scale)) - value;
    found.error = found.error + wrong * wrong;
  }
  return found;
}

WholeFit best_whole_fit(const Tile& tile, f32x16 middle, const Fit& line) {
  const f32x16 nearest = rounded(line.scale * broadcast(kFractions));
  WholeFit best = whole_fit(tile, middle, line, smaller(nearest, broadcast(kMostScale)));
  for (const float step : {-1.0f, 1.0f}) {
    const f32x16 scale = smaller(larger(nearest + broadcast(step), broadcast(0.0f)), broadcast(kMostScale));
    const WholeFit found = whole_fit(tile, middle, line, scale);
    const u32x16 is_better = best.error > found.error;
    best.scale = select(is_better, found.scale, best.scale);
    best.minimum = select(is_better, found.minimum, best.minimum);
    best.error = select(is_better, found.error, best.error);
  }
  return best;
}

// What a row's 127 stands for, divided by 127: 0 or NaN for rows of nothing and of no numbers.
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
  return __builtin_bit_cast(float, largest) / kLargest;
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
  uint8_t scales[kLanes], minimums[kLanes], numbers[kGroup][kLanes];
};

// Of whole numbers in [0, 255].
HEADWAY_INLINE void put_bytes(f32x16 whole, uint8_t (&to)[kLanes]) {
  alignas(64) uint32_t lanes[kLanes];
  store(lanes, to_int(whole));
  for (size_t i = 0; i < kLanes; ++i) to[i] = static_cast<uint8_t>(lanes[i]);
}

void quantize_tile(Tile& tile, Numbers& to) {
  f32x16 range;
  const f32x16 middle = center(tile, range);
  const WholeFit best = best_whole_fit(tile, middle, best_fit(tile, range));
  put_bytes(best.scale, to.scales);
  put_bytes(best.minimum + broadcast(static_cast<float>(kInt8ZeroPoint)), to.minimums);
  const Scale scale(best.scale);
  for (size_t k = 0; k < tile.count; ++k) {
    put_bytes(number_of(load_f32(tile.values[k]), best.minimum - middle, scale), to.numbers[k]);
  }
}

}  // namespace

void quantize_int4(const float* rows, size_t num_rows, const Int4Rows& to) {
  float inverses[kLanes] = {};
  for (size_t i = 0; i < num_rows; ++i) {
    to.factors[i] = factor_of(rows + i * to.width, to.width);
    inverses[i] = to.factors[i] > 0 ? 1 / to.factors[i] : 0;
  }
  const size_t groups = int4_groups_of(to.width);
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
