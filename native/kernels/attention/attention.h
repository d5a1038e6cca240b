// softmax(q k^T * scale) v over a paged cache. Twin: src/headway/ops/reference/attention.py.
//
// Layout of the cache: `KVCache` in src/headway/ops/interface.py. In words (float32, or a bfloat16
// pair), a tile of one head is [steps][16 tokens] for keys, and [16 tokens or 8 pairs][head_dim] for
// values.
//
// Order: a row (one token, one head) walks spans of kSpanTiles tiles in order of position, at fixed
// absolute places, with one step of an online softmax for each. What of a span is visible, and whether
// a tile is whole or cut by the row's own position or window, depends on the position alone, so its
// bits do not depend on the chunk.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headway {

inline constexpr size_t kTileTokens = 16;
inline constexpr size_t kSpanTiles = 4;
inline constexpr size_t kMaxHeadDim = 256;
inline constexpr size_t kMaxItemRows = 16;

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
};

// Rows that share their keys: `num_tokens` tokens of one sequence times `num_heads` heads of one
// group, kMaxItemRows at most.
struct AttentionItem {
  size_t sequence, first_token, num_tokens, first_head, num_heads;
};

}  // namespace headway
