// What a multiplication multiplies: 32-bit words, each one float32 or a pair of bfloat16.
//
// A kernel that walks words is the same for both dtypes; only `multiply_add` differs. For a pair the
// even element (low half) is added first, unless the instruction set has an instruction of its own.
#pragma once

#include "kernels/bfloat16.h"
#include "kernels/simd/lanes.h"

namespace headway::HEADWAY_ISA {

struct F32Words {
  static constexpr size_t kPerWord = 1;

  HEADWAY_INLINE f32x16 multiply_add(f32x16 sum, uint32_t x, u32x16 w) {
    return fma(broadcast(__builtin_bit_cast(float, x)), as_f32(w), sum);
  }
};

struct Bf16Words {
  static constexpr size_t kPerWord = 2;

  HEADWAY_INLINE f32x16 multiply_add(f32x16 sum, uint32_t x, u32x16 w) {
#if defined(__AVX512BF16__)
    const u32x16 pair = broadcast(x);
    sum.part[0] = (f32_part)_mm512_dpbf16_ps((__m512)sum.part[0], (__m512bh)w.part[0],
                                             (__m512bh)pair.part[0]);
    return sum;
#else
    const float even = __builtin_bit_cast(float, x << 16);
    const float odd = __builtin_bit_cast(float, x & 0xFFFF0000u);
    sum = fma(broadcast(even), as_f32(shift_left(w, 16)), sum);
    return fma(broadcast(odd), as_f32(w & broadcast(0xFFFF0000u)), sum);
#endif
  }
};

}  // namespace headway::HEADWAY_ISA
