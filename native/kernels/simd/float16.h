// float16 widened to float32 without rounding.
#pragma once

#include "kernels/simd/lanes.h"

namespace headway::HEADWAY_ISA {

HEADWAY_INLINE float widen_f16(uint16_t half) {
  const uint32_t size = half & 0x7FFF;
  // Exponent and fraction in the places of float32's, whose exponents count from elsewhere.
  const float finite = __builtin_bit_cast(float, size << 13) * 0x1p112f;
  const uint32_t bits = size < 0x7C00 ? __builtin_bit_cast(uint32_t, finite) : size << 13 | 0x7F800000u;
  return __builtin_bit_cast(float, bits | static_cast<uint32_t>(half & 0x8000) << 16);
}

// Sixteen of them, in the same way. Infinities and NaN are not expected.
HEADWAY_INLINE f32x16 load_f16(const uint16_t* from) {
  f32x16 v;
#if defined(__AVX512F__)
  v.part[0] = (f32_part)_mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#else
  typedef uint16_t u16_memory __attribute__((vector_size(kPartLanes * 2), aligned(2), may_alias));
  const u16_memory* parts = reinterpret_cast<const u16_memory*>(from);
  HEADWAY_EACH_PART(const u32_part bits = __builtin_convertvector(parts[i], u32_part);
                    v.part[i] = (f32_part)((bits & 0x7FFF) << 13) * 0x1p112f;
                    v.part[i] = (f32_part)((u32_part)v.part[i] | (bits & 0x8000) << 16))
#endif
  return v;
}

}  // namespace headway::HEADWAY_ISA
