#include "kernels/dequantize/dequantize.h"

#include "kernels/kernel_table.h"
#include "kernels/simd/float16.h"

namespace headway::HEADWAY_ISA {
namespace {

float half_at(const uint8_t* bytes) { return widen_f16(static_cast<uint16_t>(bytes[0] | bytes[1] << 8)); }

void q4_0(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  for (size_t i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>((block[2 + i] & 15) - 8);
    out[16 + i] = scale * static_cast<float>((block[2 + i] >> 4) - 8);
  }
}

void q4_1(const uint8_t* block, float* out) {
  const float scale = half_at(block), minimum = half_at(block + 2);
  for (size_t i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(block[4 + i] & 15) + minimum;
    out[16 + i] = scale * static_cast<float>(block[4 + i] >> 4) + minimum;
  }
}

void q8_0(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  for (size_t i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

struct Affine {
  float scale, minimum;
};

// Of the eighth `i` of a super-block, from 12 bytes with numbers of 6 bits: the last four of the
// scales and of the minimums lie in pieces.
Affine affine_of(const uint8_t* block, size_t i) {
  const uint8_t* packed = block + 4;
  const uint32_t scale = i < 4 ? packed[i] & 63 : (packed[4 + i] & 15) | packed[i - 4] >> 6 << 4;
  const uint32_t minimum = i < 4 ? packed[4 + i] & 63 : packed[4 + i] >> 4 | packed[i] >> 6 << 4;
  return {half_at(block) * static_cast<float>(scale), half_at(block + 2) * static_cast<float>(minimum)};
}

void q4_k(const uint8_t* block, float* out) {
  for (size_t pair = 0; pair < 4; ++pair) {
    const Affine low = affine_of(block, 2 * pair), high = affine_of(block, 2 * pair + 1);
    const uint8_t* packed = block + 16 + 32 * pair;
    for (size_t i = 0; i < 32; ++i) {
      out[64 * pair + i] = low.scale * static_cast<float>(packed[i] & 15) - low.minimum;
      out[64 * pair + 32 + i] = high.scale * static_cast<float>(packed[i] >> 4) - high.minimum;
    }
  }
}

void q5_k(const uint8_t* block, float* out) {
  for (size_t pair = 0; pair < 4; ++pair) {
    const Affine low = affine_of(block, 2 * pair), high = affine_of(block, 2 * pair + 1);
    const uint8_t *fifths = block + 16, *packed = block + 48 + 32 * pair;
    for (size_t i = 0; i < 32; ++i) {
      const int fifth = fifths[i] >> (2 * pair);
      out[64 * pair + i] = low.scale * static_cast<float>((packed[i] & 15) | (fifth & 1) << 4) - low.minimum;
      out[64 * pair + 32 + i] =
          high.scale * static_cast<float>(packed[i] >> 4 | (fifth & 2) << 3) - high.minimum;
    }
  }
}

void q6_k(const uint8_t* block, float* out) {
  const float scale = half_at(block + 208);
  for (size_t group = 0; group < 16; ++group) {
    const size_t half = group / 8, quarter = group % 8 / 2, first = group % 2 * 16;
    const uint8_t* low = block + 64 * half + 32 * (quarter % 2) + first;
    const uint8_t* high = block + 128 + 32 * half + first;
    const float factor = scale * static_cast<float>(static_cast<int8_t>(block[192 + group]));
    for (size_t i = 0; i < 16; ++i) {
      const int number = (low[i] >> (4 * (quarter / 2)) & 15) | (high[i] >> (2 * quarter) & 3) << 4;
      out[16 * group + i] = factor * static_cast<float>(number - 32);
    }
  }
}

template <void (*kDecode)(const uint8_t*, float*)>
void each(const BlockType& type, const uint8_t* blocks, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) kDecode(blocks + i * type.num_bytes, out + i * type.num_values);
}

}  // namespace

void dequantize(const BlockType& type, const uint8_t* blocks, size_t count, float* out) {
  switch (type.kind) {
    case BlockKind::kQ4_0: return each<q4_0>(type, blocks, count, out);
    case BlockKind::kQ4_1: return each<q4_1>(type, blocks, count, out);
    case BlockKind::kQ8_0: return each<q8_0>(type, blocks, count, out);
    case BlockKind::kQ4_K: return each<q4_k>(type, blocks, count, out);
    case BlockKind::kQ5_K: return each<q5_k>(type, blocks, count, out);
    case BlockKind::kQ6_K: return each<q6_k>(type, blocks, count, out);
  }
}

}  // namespace headway::HEADWAY_ISA
