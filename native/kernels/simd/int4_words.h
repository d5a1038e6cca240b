// Numbers of 4 bits to bytes: minimum + floor(number * scale / 16), in lanes of four bytes.
#pragma once

#include "kernels/simd/lanes.h"

namespace headway::HEADWAY_ISA {

typedef uint16_t u16_part __attribute__((vector_size(kPartLanes * 4)));
typedef uint8_t u8_part __attribute__((vector_size(kPartLanes * 4)));

// For each lane: the scale in both halves, the minimum in all four bytes.
struct Int4Scale {
  u32x16 scale, minimum;
};

// From the two bytes at `shift` of each lane.
HEADWAY_INLINE Int4Scale int4_scale(u32x16 pairs, int shift) {
  const u32x16 byte = broadcast(0xFFu);
  const u32x16 scale = shift_right(pairs, shift) & byte, minimum = shift_right(pairs, shift + 8) & byte;
  const u32x16 twice = minimum | shift_left(minimum, 8);
  return {scale | shift_left(scale, 16), twice | shift_left(twice, 16)};
}

// The bytes of one word: the first four neighbours, or the next four.
struct Int4Bytes {
  u32x16 first, next;
};

// `low` and `high`: numbers in 16 bits, the high ones times 16, so that their products end in the high byte.
HEADWAY_INLINE u32_part int4_bytes(u16_part low, u16_part high, u16_part scale, u8_part minimum) {
  const u16_part bytes = (low * scale >> 4) | ((high * scale) & 0xFF00);
  return (u32_part)((u8_part)bytes + minimum);
}

// Sixteen bits hold, from the low ones up: neighbour 4, 1, 5 and 0 in the lower half; 6, 3, 7 and 2 in the upper.
HEADWAY_INLINE Int4Bytes widen_int4(u32x16 words, const Int4Scale& by) {
  Int4Bytes bytes;
  HEADWAY_EACH_PART(const u16_part w = (u16_part)words.part[i]; const u16_part s = (u16_part)by.scale.part[i];
                    const u8_part m = (u8_part)by.minimum.part[i];
                    bytes.first.part[i] = int4_bytes(w >> 12, w & 0x00F0, s, m);
                    bytes.next.part[i] = int4_bytes(w & 0x000F, (w >> 4) & 0x00F0, s, m))
  return bytes;
}

}  // namespace headway::HEADWAY_ISA
