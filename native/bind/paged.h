// A KV cache and the block tables of a batch, checked.
#pragma once

#include <span>

#include "bind/array_view.h"
#include "kernels/attention/attention.h"
#include "runtime/program.h"

namespace headway {

// The sizes that its shape tells.
struct CacheView {
  CacheView(nb::handle keys, nb::handle values, int64_t block_size, Access access);

  size_t num_blocks() const { return num_tiles / tiles_per_block; }
  CachePlace place() const {
    return {keys.as<char>(), values.as<char>(), keys.bytes() / num_layers, values.bytes() / num_layers, kv_type,
            tiles_per_block};
  }

  ArrayView keys, values;
  KvType kv_type;
  size_t num_layers, num_tiles, num_kv_heads, head_dim, tiles_per_block;

 private:
  void need_layout() const;
};

// One layer of it.
struct CacheLayer : CacheView {
  CacheLayer(nb::handle keys, nb::handle values, int64_t block_size, int64_t layer, Access access)
      : CacheView(keys, values, block_size, access) {
    need(0 <= layer && layer < extent(num_layers), "layer must lie in [0, ", num_layers, "), got ", layer);
    index = static_cast<size_t>(layer);
  }

  void* layer_keys() const { return place().layer_keys(index); }
  void* layer_values() const { return place().layer_values(index); }

  size_t index;
};

inline constexpr int64_t kMaxHeads = 1 << 20;  // so that no product of sizes overflows

inline size_t qkv_width(const CacheView& cache, int64_t num_heads) {
  const bool fits = 0 < num_heads && num_heads <= kMaxHeads && num_heads % extent(cache.num_kv_heads) == 0;
  need(fits, "num_heads must be a positive multiple of kv_heads=", cache.num_kv_heads, ", got ", num_heads);
  return (static_cast<size_t>(num_heads) + 2 * cache.num_kv_heads) * cache.head_dim;
}

// Chunks that cover all tokens, positions that rise by one, a block of the cache for every position.
void check_chunks(const ArrayView& starts, const ArrayView& positions, const ArrayView& tables, size_t block_size,
                  size_t num_blocks);

}  // namespace headway
