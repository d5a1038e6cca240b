// Twin: src/headway/ops/reference/rope.py. One token at a time: norm, rotate, store.
#include "kernels/bfloat16.h"
#include "kernels/kernel_table.h"
#include "kernels/rms_norm/row.h"

namespace headway::HEADWAY_ISA {
namespace {

void rotate(const RopeArgs& args, const float* cos, const float* sin, float* head) {
  const size_t half = args.rotary_dim / 2;
  const size_t stride = args.interleaved ? 2 : 1, distance = args.interleaved ? 1 : half;
  for (size_t i = 0; i < half; ++i) {
    float *a = head + i * stride, *b = a + distance;
    const float first = *a, second = *b;
    *a = first * cos[i] - second * sin[i];
    *b = second * cos[i] + first * sin[i];
  }
}

void store_f32(const RopeArgs& args, const float* key, const float* value, size_t tile_head, size_t place) {
  const size_t start = tile_head * kTileTokens * args.head_dim;
  float* keys = static_cast<float*>(args.keys) + start + place;
  float* values = static_cast<float*>(args.values) + start + place * args.head_dim;
  for (size_t d = 0; d < args.head_dim; ++d) keys[d * kTileTokens] = key[d];
  for (size_t d = 0; d < args.head_dim; ++d) values[d] = value[d];
}

void store_bf16(const RopeArgs& args, const float* key, const float* value, size_t tile_head, size_t place) {
  const size_t start = tile_head * kTileTokens * args.head_dim;
  uint16_t* keys = static_cast<uint16_t*>(args.keys) + start + 2 * place;
  uint16_t* values = static_cast<uint16_t*>(args.values) + start + place / 2 * 2 * args.head_dim + place % 2;
  for (size_t d = 0; d < args.head_dim; ++d) keys[d / 2 * 2 * kTileTokens + d % 2] = to_bf16(key[d]);
  for (size_t d = 0; d < args.head_dim; ++d) values[2 * d] = to_bf16(value[d]);
}

// The scales of all keys of a tile lie behind its keys, those of its values behind them.
void store_int8(const RopeArgs& args, const float* key, const float* value, size_t tile_head, size_t place) {
  const size_t head_dim = args.head_dim, steps = head_dim / 4, key_bytes = kTileTokens * head_dim;
  uint8_t* keys = static_cast<uint8_t*>(args.keys) + tile_head * (key_bytes + 2 * kTileTokens * sizeof(float));
  uint8_t* values = static_cast<uint8_t*>(args.values) + tile_head * key_bytes + place / 4 * 4 * head_dim + place % 4;
  float* scales = reinterpret_cast<float*>(keys + key_bytes) + place;
  int8_t bytes[kMaxHeadDim];
  scales[0] = quantize(key, head_dim, bytes);
  for (size_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < 4; ++i) keys[(step * kTileTokens + place) * 4 + i] = static_cast<uint8_t>(bytes[4 * step + i] + 128);
  }
  scales[kTileTokens] = quantize(value, head_dim, bytes);
  for (size_t d = 0; d < head_dim; ++d) values[4 * d] = static_cast<uint8_t>(bytes[d] + 128);
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
    rotate(args, cos, sin, head);
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
