#include "bind/paged.h"

namespace headway {
namespace {

void check_chunk(std::span<const int32_t> positions, std::span<const int32_t> table, size_t block_size,
                 size_t num_blocks) {
  const int64_t first = positions.front();
  need(first >= 0, "positions must be at least 0, got ", first);
  for (size_t i = 0; i < positions.size(); ++i) {
    need(positions[i] == first + extent(i), "positions in a chunk must rise by one");
  }
  const size_t last = static_cast<size_t>(positions.back()), needed = last / block_size + 1;
  need(needed <= table.size(), "position ", last, " needs ", needed, " blocks, the block table has ", table.size());
  for (const int32_t block : table.first(needed)) {
    need(0 <= block && block < extent(num_blocks), "block ids must lie in [0, ", num_blocks, "), got ", block);
  }
}

}  // namespace

CacheView::CacheView(nb::handle key_array, nb::handle value_array, int64_t block_size, Access access)
    : keys("cache.keys", key_array, access), values("cache.values", value_array, access) {
  keys.need_float();
  const bool is_bf16 = keys.is_bf16();
  values.need_kind(is_bf16 ? Kind::kUint16 : Kind::kFloat32);
  need(values.rank() == (is_bf16 ? 6u : 5u), "cache.values is not in the layout of a KV cache");
  num_layers = values.size(0);
  num_tiles = values.size(1);
  num_kv_heads = values.size(2);
  head_dim = values.size(4);
  need(num_kv_heads > 0 && head_dim >= 2 && head_dim % 2 == 0 && head_dim <= kMaxHeadDim,
       "the cpu kernels take an even head_dim up to ", kMaxHeadDim, ", got ", head_dim);
  need_layout(is_bf16);
  need(block_size > 0 && block_size % extent(kTileTokens) == 0, "block_size must be a multiple of ", kTileTokens,
       ", got ", block_size);
  tiles_per_block = static_cast<size_t>(block_size) / kTileTokens;
  layer_bytes = num_tiles * num_kv_heads * kTileTokens * head_dim * (is_bf16 ? 2 : 4);
}

void CacheView::need_layout(bool is_bf16) const {
  if (is_bf16) {
    keys.need_shape({kAny, extent(num_tiles), extent(num_kv_heads), extent(head_dim / 2), kTileTokens, 2});
    values.need_shape({extent(keys.size(0)), kAny, kAny, kTileTokens / 2, kAny, 2});
  } else {
    keys.need_shape({kAny, extent(num_tiles), extent(num_kv_heads), extent(head_dim), kTileTokens});
    values.need_shape({extent(keys.size(0)), kAny, kAny, kTileTokens, kAny});
  }
}

void check_chunks(const ArrayView& starts, const ArrayView& positions, const ArrayView& tables, size_t block_size,
                  size_t num_blocks) {
  const int32_t* start = starts.as<const int32_t>();
  const size_t num_chunks = starts.count() - 1, width = tables.size(1), num_tokens = positions.count();
  need(start[0] == 0 && start[num_chunks] == extent(num_tokens),
       "chunk_starts must run from 0 to the number of tokens, ", num_tokens);
  for (size_t i = 0; i < num_chunks; ++i) {
    need(start[i] <= start[i + 1], "chunk_starts must not fall, chunk ", i, " runs from ", start[i], " to ",
         start[i + 1]);
  }
  for (size_t i = 0; i < num_chunks; ++i) {
    const size_t count = static_cast<size_t>(start[i + 1] - start[i]);
    if (count == 0) continue;
    check_chunk({positions.as<const int32_t>() + start[i], count},
                {tables.as<const int32_t>() + i * width, width}, block_size, num_blocks);
  }
}

}  // namespace headway
