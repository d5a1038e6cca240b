// exp for sixteen lanes: no table, no libm, the same result in every lane position.
#pragma once

#include "kernels/simd/lanes.h"

namespace headway::HEADWAY_ISA {

// exp(x) with a relative error below 3e-7. Below -87.3 exactly 0, above 88.3 the value at 88.3,
// NaN stays NaN. x = n ln 2 + r with |r| <= ln 2 / 2; the polynomial is the Taylor series of exp(r)
// to degree 7, whose remainder there is below one unit in the last place.
HEADWAY_INLINE f32x16 exp(f32x16 x) {
  constexpr float kLowest = -87.3f, kHighest = 88.3f;
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding and taking it away rounds to integer
  constexpr float kFactors[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  const f32x16 high = select(x > broadcast(kHighest), broadcast(kHighest), x);
  const f32x16 clamped = larger(high, broadcast(kLowest));
  const f32x16 shifted = fma(clamped, broadcast(kLog2E), broadcast(kRound));
  const f32x16 n = shifted - broadcast(kRound);
  const f32x16 r = fma(n, broadcast(-kLn2Low), fma(n, broadcast(-kLn2High), clamped));
  f32x16 power = broadcast(kFactors[0]);
  HEADWAY_UNROLL
  for (size_t i = 1; i < 8; ++i) power = fma(power, r, broadcast(kFactors[i]));
  const u32x16 scaled = as_u32(power) + shift_left(to_int(n), 23);  // times 2^n
  const f32x16 in_range = select(x < broadcast(kLowest), broadcast(0.0f), as_f32(scaled));
  return select(x != x, x, in_range);
}

// 2^x for x up to 127 with a relative error below 2e-7. Below -100 the value there: next to a weight of
// one it is nothing, and products with it are not denormal. NaN stays NaN. x = n + r with |r| <= 1/2;
// the polynomial has the smallest largest relative error on that interval of those with 2^0 = 1.
HEADWAY_INLINE f32x16 exp2(f32x16 x) {
  constexpr float kLowest = -100.0f;
  constexpr float kRound = 12582912.0f + 127.0f;  // leaves n + 127, the exponent of 2^n, in the low bits
  constexpr float kFactors[] = {1.326472725e-03f, 9.671512688e-03f, 5.550733744e-02f,
                                2.402224208e-01f, 6.931469776e-01f, 1.0f};
  const f32x16 clamped = larger(broadcast(kLowest), x);
  const f32x16 shifted = clamped + broadcast(kRound);
  const f32x16 r = clamped - (shifted - broadcast(kRound));
  f32x16 power = broadcast(kFactors[0]);
  HEADWAY_UNROLL
  for (size_t i = 1; i < 6; ++i) power = fma(power, r, broadcast(kFactors[i]));
  return power * as_f32(shift_left(as_u32(shifted), 23));
}

}  // namespace headway::HEADWAY_ISA
