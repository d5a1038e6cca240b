// Twin: src/headway/ops/reference/rope.py. One token at a time: norm, rotate, store.
#include "kernels/kernel_table.h"
#include "kernels/rms_norm/row.h"
#include "kernels/simd/words.h"

namespace headway::HEADWAY_ISA {
namespace {

void rotate_interleaved(const float* cos, const float* sin, size_t half, float* head) {
  for (size_t i = 0; i < half; ++i) {
    const float first = head[2 * i], second = head[2 * i + 1];
    head[2 * i] = first * cos[i] - second * sin[i];
    head[2 * i + 1] = second * cos[i] + first * sin[i];
  }
}

void rotate_halves(const float* cos, const float* sin, size_t half, float* head) {
  for (size_t i = 0; i < half; i += kLanes) {
    const size_t left = half - i;
    const f32x16 first = load_f32(head + i, left, 0.0f), second = load_f32(head + half + i, left, 0.0f);
    const f32x16 c = load_f32(cos + i, left, 0.0f), s = load_f32(sin + i, left, 0.0f);
    store(head + i, first * c - second * s, left);
    store(head + half + i, second * c + first * s, left);
  }
}

void store_f32(const RopeArgs& args, const float* key, const float* value, size_t tile_head, size_t place) {
  const size_t start = tile_head * kTileTokens * args.head_dim;
  float* keys = static_cast<float*>(args.keys) + start + place;
  float* values = static_cast<float*>(args.values) + start + place * args.head_dim;
  for (size_t d = 0; d < args.head_dim; ++d) keys[d * kTileTokens] = key[d];
  for (size_t d = 0; d < args.head_dim; ++d) values[d] = value[d];
}

// One element of each word, at `place`, from as many lanes; the other elements may be written by
// another thread meanwhile.
template <class Element>
HEADWAY_INLINE void put_in_words(u32x16 v, size_t count, size_t place, Element* words) {
  constexpr size_t kPerWord = sizeof(uint32_t) / sizeof(Element);
#if defined(__AVX512BW__)
  const __m512i lanes = (__m512i)shift_left(v, static_cast<int>(place * sizeof(Element) * 8)).part[0];
  const uint64_t all = count < kLanes ? (uint64_t{1} << count * kPerWord) - 1 : ~uint64_t{0};
  if constexpr (kPerWord == 2) {
    _mm512_mask_storeu_epi16(words, static_cast<uint32_t>(all & 0x55555555u << place), lanes);
  } else {
    _mm512_mask_storeu_epi8(words, all & 0x1111111111111111u << place, lanes);
  }
#else
  alignas(64) uint32_t lanes[kLanes];
  store(lanes, v);
  for (size_t i = 0; i < count && i < kLanes; ++i) words[i * kPerWord + place] = static_cast<Element>(lanes[i]);
#endif
}

void store_bf16(const RopeArgs& args, const float* key, const float* value, size_t tile_head, size_t place) {
  const size_t start = tile_head * kTileTokens * args.head_dim;
  uint32_t* keys = static_cast<uint32_t*>(args.keys) + start / 2 + place;
  uint16_t* values = static_cast<uint16_t*>(args.values) + start + place / 2 * 2 * args.head_dim;
  for (size_t d = 0; d < args.head_dim; d += kLanes) {
    const size_t left = args.head_dim - d;
    alignas(64) uint32_t rounded[kLanes];
    store(rounded, as_u32(round_to_bf16(load_f32(key + d, left, 0.0f))));
    for (size_t i = 0; i + 1 < kLanes && i < left; i += 2) {
      keys[(d + i) / 2 * kTileTokens] = rounded[i] >> 16 | rounded[i + 1];
    }
    const u32x16 bits = shift_right(as_u32(round_to_bf16(load_f32(value + d, left, 0.0f))), 16);
    put_in_words(bits, left, place % 2, values + 2 * d);
  }
}

// The scales of all keys of a tile lie behind its keys, those of its values behind them.
void store_int8(const RopeArgs& args, const float* key, const float* value, size_t tile_head, size_t place) {
  constexpr uint32_t kZeroPoints = 0x80808080u;  // + 128 each
  const size_t head_dim = args.head_dim, key_words = kTileTokens * head_dim / 4;
  uint32_t* keys = static_cast<uint32_t*>(args.keys) + tile_head * (key_words + 2 * kTileTokens) + place;
  uint8_t* values = static_cast<uint8_t*>(args.values) + tile_head * key_words * 4 + place / 4 * 4 * head_dim;
  float* scales = reinterpret_cast<float*>(keys + key_words);
  alignas(64) int8_t bytes[kMaxHeadDim] = {};
  scales[0] = quantize(key, head_dim, bytes);
  for (size_t step = 0; step < head_dim / 4; ++step) {
    uint32_t four;
    __builtin_memcpy(&four, bytes + 4 * step, sizeof four);
    keys[step * kTileTokens] = four ^ kZeroPoints;
  }
  scales[kTileTokens] = quantize(value, head_dim, bytes);
  for (size_t d = 0; d < head_dim; d += kLanes) {
    alignas(64) uint32_t lanes[kLanes];
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = static_cast<uint8_t>(bytes[d + i]) ^ 0x80u;
    put_in_words(load_u32(lanes), head_dim - d, place % 4, values + 4 * d);
  }
}

void store(const RopeArgs& args, const float* key, const float* value, size_t tile_head, size_t place) {
  switch (args.kv_type) {
    case KvType::kFloat32: return store_f32(args, key, value, tile_head, place);
    case KvType::kBfloat16: return store_bf16(args, key, value, tile_head, place);
    case KvType::kInt8: return store_int8(args, key, value, tile_head, place);
  }
}

void token(const RopeArgs& args, size_t row) {
  const size_t half = args.rotary_dim / 2, position = static_cast<size_t>(args.positions[row]);
  const float *cos = args.cos + position * half, *sin = args.sin + position * half;
  const size_t num_turned = args.num_heads + args.num_kv_heads;
  float* heads = args.qkv + row * (num_turned + args.num_kv_heads) * args.head_dim;
  for (size_t h = 0; h < num_turned; ++h) {
    float* head = heads + h * args.head_dim;
    const float* weight = h < args.num_heads ? args.q_norm : args.k_norm;
    if (weight != nullptr) rms_norm_row(head, weight, args.eps, args.head_dim, head);
    (args.interleaved ? rotate_interleaved : rotate_halves)(cos, sin, half, head);
  }
  const size_t kv_row = static_cast<size_t>(args.kv_rows[row]);
  for (size_t h = 0; h < args.num_kv_heads; ++h) {
    const float* key = heads + (args.num_heads + h) * args.head_dim;
    const float* value = key + args.num_kv_heads * args.head_dim;
    const size_t tile_head = kv_row / kTileTokens * args.num_kv_heads + h;
    store(args, key, value, tile_head, kv_row % kTileTokens);
  }
}

}  // namespace

void rope_and_store(const RopeArgs& args, Range rows) {
  for (size_t row = rows.begin; row < rows.end; ++row) token(args, row);
}

}  // namespace headway::HEADWAY_ISA
