// Four products of bytes per 32-bit lane, summed exactly: unsigned weights times signed x.
//
// With VNNI one instruction does it. Elsewhere both are widened to 16 bits first, because the
// shorter way (maddubs) saturates. `widen` is apart, so that a block widens a weight once for all rows.
#pragma once

#include "kernels/simd/lanes.h"

#if !defined(__AVX2__) && defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace headway::HEADWAY_ISA {

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)

typedef u32x16 Int8Weights;

HEADWAY_INLINE Int8Weights widen_int8(u32x16 w) { return w; }

HEADWAY_INLINE u32x16 multiply_add_int8(u32x16 sum, uint32_t x, Int8Weights w) {
  const u32x16 bytes = broadcast(x);
#if defined(__AVX512VNNI__)
  sum.part[0] = (u32_part)_mm512_dpbusd_epi32((__m512i)sum.part[0], (__m512i)w.part[0], (__m512i)bytes.part[0]);
#else
  HEADWAY_EACH_PART(sum.part[i] = (u32_part)_mm256_dpbusd_avx_epi32((__m256i)sum.part[i], (__m256i)w.part[i],
                                                                    (__m256i)bytes.part[i]))
#endif
  return sum;
}

#else

typedef int16_t i16_part __attribute__((vector_size(kPartLanes * 4)));

struct Int8Weights {
  u32x16 even, odd;  // bytes 0 and 2, and bytes 1 and 3, each in 16 bits
};

HEADWAY_INLINE Int8Weights widen_int8(u32x16 w) {
  const u32x16 low_bytes = broadcast(0x00FF00FFu);
  Int8Weights wide;
  wide.even = w & low_bytes;
  HEADWAY_EACH_PART(wide.odd.part[i] = w.part[i] >> 8)
  wide.odd = wide.odd & low_bytes;
  return wide;
}

// Per lane the product of the low int16 plus that of the high.
HEADWAY_INLINE u32_part dot_int16(u32_part a, u32_part b) {
#if defined(__AVX512BW__)
  return (u32_part)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (u32_part)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (u32_part)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  const i32_part low = ((i32_part)(a << 16) >> 16) * ((i32_part)(b << 16) >> 16);
  return (u32_part)(low + ((i32_part)a >> 16) * ((i32_part)b >> 16));
#endif
}

HEADWAY_INLINE u32x16 multiply_add_int8(u32x16 sum, uint32_t x, Int8Weights w) {
  const u32x16 bytes = broadcast(x);
  const u32_part even = (u32_part)((i16_part)bytes.part[0] << 8 >> 8), odd = (u32_part)((i16_part)bytes.part[0] >> 8);
  HEADWAY_EACH_PART(sum.part[i] = sum.part[i] + dot_int16(w.even.part[i], even))
  HEADWAY_EACH_PART(sum.part[i] = sum.part[i] + dot_int16(w.odd.part[i], odd))
  return sum;
}

#endif

}  // namespace headway::HEADWAY_ISA
