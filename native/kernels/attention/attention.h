// softmax(q k^T * scale) v over a paged cache. Twin: src/headway/ops/reference/attention.py.
//
// Layout of the cache: `KVCache` in src/headway/ops/interface.py. In words (float32, or a bfloat16
// pair), a tile of one head is [steps][16 tokens] for keys, and [16 tokens or 8 pairs][head_dim] for
// values. int8: attention_int8.cpp.
//
// Order: a row (one token, one head) walks spans of kSpanTiles tiles at fixed absolute places. Each span
// has a softmax of its own, from nothing, whatever came before; the results are merged in order of
// position. What of a span is visible, and whether a tile is whole or cut by the row's own position or
// window, depends on the position alone. So a row's bits depend neither on the chunk nor on whether one
// task walks all spans or several share them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headway {

inline constexpr size_t kTileTokens = 16;
inline constexpr size_t kSpanTiles = 16;
inline constexpr size_t kSpanTokens = kSpanTiles * kTileTokens;
inline constexpr size_t kMaxHeadDim = 256;
inline constexpr size_t kMaxItemRows = 96;

enum class KvType { kFloat32, kBfloat16, kInt8 };

struct AttentionArgs {
  const float* qkv;
  const uint32_t *keys, *values;  // of one layer
  const int32_t* positions;
  const int32_t* block_tables;
  float* out;
  size_t qkv_width, table_width;
  size_t num_heads, num_kv_heads, head_dim;
  size_t tiles_per_block;
  size_t window;
  float scale;
  KvType kv_type;
};

// Rows that share their keys: `num_tokens` tokens of one sequence times `num_heads` heads of one
// group, kMaxItemRows at most; and the spans to walk. With `parts` the result of each span is left
// there, part_floats() a row, to be merged when all are done.
struct AttentionItem {
  size_t sequence, first_token, num_tokens, first_head, num_heads;
  size_t first_span, end_span;
  float* parts;

  size_t num_rows() const { return num_tokens * num_heads; }
};

// The first position that a token sees.
inline size_t first_visible(const AttentionArgs& args, size_t token) {
  const size_t position = static_cast<size_t>(args.positions[token]);
  return args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
}

// The largest score, the total of the weights, and the weighted values.
inline size_t part_floats(size_t head_dim) { return 2 + head_dim; }

}  // namespace headway
