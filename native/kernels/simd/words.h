// What a multiplication multiplies: 32-bit words, each one float32 or a pair of bfloat16 along K.
//
// The right operand is a vector of such words. The left one is broadcast from memory, where `round`
// (or `put`, for sixteen that are rounded already) leaves `kParts` words for each word of the right.
// Without a dot product of pairs a bfloat16 is widened in registers: its even element (low half) is
// part 0 and is added first. A word of the right lies in `kVectors` vectors.
#pragma once

#include "kernels/bfloat16.h"
#include "kernels/simd/lanes.h"

namespace headway::HEADWAY_ISA {

// Each lane to the nearest bfloat16, ties to even, as to_bf16 does; still float32.
HEADWAY_INLINE f32x16 round_to_bf16(f32x16 v) {
  const u32x16 bits = as_u32(v), high = broadcast(0xFFFF0000u);
  const u32x16 odd = shift_right(bits, 16) & broadcast(1u);
  const u32x16 rounded = (bits + broadcast(0x7FFFu) + odd) & high;
  const u32x16 quiet_nan = (bits & high) | broadcast(0x00400000u);
  return select(v != v, as_f32(quiet_nan), as_f32(rounded));
}

struct F32Words {
  static constexpr size_t kPerWord = 1, kParts = 1, kVectors = 1;

  HEADWAY_INLINE f32x16 multiply_add(f32x16 sum, const uint32_t* x, u32x16 w, size_t) {
    return fma(as_f32(broadcast(*x)), as_f32(w), sum);
  }
  HEADWAY_INLINE f32x16 rounded(f32x16 v) { return v; }
  HEADWAY_INLINE void round(const float* from, size_t count, uint32_t* to) {
    __builtin_memcpy(to, from, count * sizeof(float));
  }
  HEADWAY_INLINE void put(f32x16 rounded, uint32_t* to) { store(to, rounded); }
};

struct Bf16Parts {
  static constexpr size_t kPerWord = 2, kParts = 2, kVectors = 1;

  HEADWAY_INLINE u32x16 widened(u32x16 w, size_t part) {
    return part == 0 ? shift_left(w, 16) : w & broadcast(0xFFFF0000u);
  }
  HEADWAY_INLINE f32x16 multiply_add(f32x16 sum, const uint32_t* x, u32x16 w, size_t part) {
    return fma(as_f32(broadcast(x[part])), as_f32(widened(w, part)), sum);
  }
  HEADWAY_INLINE f32x16 rounded(f32x16 v) { return round_to_bf16(v); }
  HEADWAY_INLINE void round(const float* from, size_t count, uint32_t* to) {
    for (size_t i = 0; i < count; i += kLanes) {
      store(to + i, as_u32(round_to_bf16(load_f32(from + i, count - i, 0.0f))), count - i);
    }
  }
  HEADWAY_INLINE void put(f32x16 rounded, uint32_t* to) { store(to, rounded); }
};

// Weights that have been widened before, a vector for each part.
struct Bf16Widened {
  static constexpr size_t kPerWord = 2, kParts = 2, kVectors = 2;

  HEADWAY_INLINE f32x16 multiply_add(f32x16 sum, const uint32_t* x, u32x16 w, size_t part) {
    return fma(as_f32(broadcast(x[part])), as_f32(w), sum);
  }
};

// Pairs on the left too: what one instruction for both products takes, and what AMX tiles take.
struct Bf16Pairs {
  static constexpr size_t kPerWord = 2, kParts = 1, kVectors = 1;

#if defined(HEADWAY_BF16_DOT)
  HEADWAY_INLINE f32x16 multiply_add(f32x16 sum, const uint32_t* x, u32x16 w, size_t) {
    const u32x16 pair = broadcast(*x);
    sum.part[0] = (f32_part)_mm512_dpbf16_ps((__m512)sum.part[0], (__m512bh)w.part[0],
                                             (__m512bh)pair.part[0]);
    return sum;
  }
#endif
  HEADWAY_INLINE f32x16 rounded(f32x16 v) { return round_to_bf16(v); }
  HEADWAY_INLINE void round(const float* from, size_t count, uint32_t* to) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) put(round_to_bf16(load_f32(from + i)), to + i / 2);
    for (; i + 1 < count; i += 2) {
      to[i / 2] = to_bf16(from[i]) | static_cast<uint32_t>(to_bf16(from[i + 1])) << 16;
    }
    if (i < count) to[i / 2] = to_bf16(from[i]);
  }
  HEADWAY_INLINE void put(f32x16 rounded, uint32_t* to) { store_high_halves(to, as_u32(rounded)); }
};

#if defined(HEADWAY_BF16_DOT)
using Bf16Words = Bf16Pairs;
#else
using Bf16Words = Bf16Parts;
#endif

}  // namespace headway::HEADWAY_ISA
