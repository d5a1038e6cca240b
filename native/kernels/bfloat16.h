// bfloat16 is the upper half of a float32. Twin: src/headway/ops/bfloat16.py.
#pragma once

#include <cstdint>

namespace headway {
namespace {  // one copy per file: a shared one could be built for another instruction set

// To nearest, ties to even; NaN stays NaN. Written without branches, so that loops vectorise.
[[maybe_unused]] inline uint16_t to_bf16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x0040u;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : rounded);
}

[[maybe_unused]] inline float from_bf16(uint16_t value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value) << 16);
}

}  // namespace
}  // namespace headway
