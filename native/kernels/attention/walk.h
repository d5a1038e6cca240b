// The way over a sequence's cache: which tiles in which order, and what to ask memory for meanwhile.
#pragma once

#include <type_traits>

#include "kernels/attention/rows.h"

namespace headway::HEADWAY_ISA {

// How many words of a tile belong to one head.
struct TileWords {
  size_t keys, values;
};

// The tiles of a span in the order they are read, keys first, and what is read after them.
struct Span {
  static constexpr size_t kLead = 8;  // tiles on their way while one is computed with

  const uint32_t* order[2 * kSpanTiles + kLead];
  size_t start;  // position of tile 0
  Range tiles;   // that some row sees
  TileWords words;

  const uint32_t* const* keys(size_t tile) const { return order + (tile - tiles.begin); }
  const uint32_t* const* values(size_t tile) const { return keys(tile) + (tiles.end - tiles.begin); }
};

// Where the keys and values of one item's head lie.
struct Place {
  const AttentionArgs& args;
  const int32_t* table;
  size_t kv_head;
  TileWords words;
  size_t first_tile, end_tile;

  Place(const AttentionArgs& args, const AttentionItem& item, TileWords words)
      : args(args), table(args.block_tables + item.sequence * args.table_width),
        kv_head(item.first_head / (args.num_heads / args.num_kv_heads)), words(words) {
    first_tile = first_visible(args, item.first_token) / kTileTokens;
    end_tile = static_cast<size_t>(args.positions[item.first_token + item.num_tokens - 1]) / kTileTokens + 1;
  }

  Range tiles_of(size_t span) const {
    const size_t start = span * kSpanTiles, end = start + kSpanTiles;
    return {first_tile > start ? first_tile : start, end_tile < end ? end_tile : end};
  }

  // Pointers to the first `limit` tiles of the span in the order they are read; how many that is.
  size_t put_order(size_t span, size_t limit, const uint32_t** to) const {
    const Range tiles = tiles_of(span);
    const size_t count = tiles.end - tiles.begin;
    size_t block = tiles.begin / args.tiles_per_block, within = tiles.begin % args.tiles_per_block;
    for (size_t i = 0; i < count; ++i) {
      const size_t tile = static_cast<size_t>(table[block]) * args.tiles_per_block + within;
      const size_t index = tile * args.num_kv_heads + kv_head;
      if (i < limit) to[i] = args.keys + index * words.keys;
      if (count + i < limit) to[count + i] = args.values + index * words.values;
      if (++within == args.tiles_per_block) within = 0, ++block;
    }
    return 2 * count < limit ? 2 * count : limit;
  }
};

// `next` is where this thread will probably read after the last span.
inline Span span_at(const Place& place, size_t index, size_t end_span, const Place* next, size_t next_span) {
  Span span;
  span.start = index * kSpanTokens;
  span.words = place.words;
  const Range tiles = place.tiles_of(index);
  span.tiles = {tiles.begin - index * kSpanTiles, tiles.end - index * kSpanTiles};
  size_t filled = place.put_order(index, 2 * kSpanTiles, span.order);
  const size_t wanted = filled + Span::kLead;
  if (index + 1 < end_span) {
    filled += place.put_order(index + 1, Span::kLead, span.order + filled);
  } else if (next != nullptr) {
    filled += next->put_order(next_span, Span::kLead, span.order + filled);
  }
  for (; filled < wanted; ++filled) span.order[filled] = span.order[filled - 1];
  return span;
}

// Tiles to read from, and whether to ask for others on the way: tiles of the second-level cache far ahead,
// and words of the first-level one a little ahead. Of `group` tiles that are read at once, word by word,
// `tile` is the one whose `word` is read now.
struct Fetching {
  static constexpr size_t kNearWords = 8 * kLanes;

  const uint32_t* const* tiles;
  size_t tile_words;
  HEADWAY_MEMBER void ask(size_t tile, size_t group, size_t word) const {
    prefetch_to_l2(tiles[tile + Span::kLead] + word);
    const size_t near = word + kNearWords;
    prefetch(near < tile_words ? tiles[tile] + near : tiles[tile + group] + (near - tile_words));
  }
};
struct Cached {
  const uint32_t* const* tiles;
  size_t tile_words = 0;
  HEADWAY_MEMBER void ask(size_t, size_t, size_t) const {}
};

// function(integral_constant<size_t, count>) for a count from 1 to Max.
template <size_t Max, class Function>
HEADWAY_INLINE void with_count(size_t count, const Function& function) {
  if (count == Max) return function(std::integral_constant<size_t, Max>{});
  if constexpr (Max > 1) with_count<Max - 1>(count, function);
}

// function(rows) for blocks of nearly equal size.
template <size_t Max, class Function>
void for_row_blocks(Range rows, const Function& function) {
  const size_t count = rows.end - rows.begin, blocks = (count + Max - 1) / Max;
  for (size_t i = 0; i < blocks; ++i) {
    function(Range{rows.begin + count * i / blocks, rows.begin + count * (i + 1) / blocks});
  }
}

// Result of one span for one row.
inline void leave(const AttentionItem& item, ItemRows& rows, size_t row, const RowSums& result) {
  if (item.parts == nullptr) return rows.add(row, result);
  float* part = item.parts + row * part_floats(rows.head_dim);
  part[0] = result.largest, part[1] = result.total;
  __builtin_memcpy(part + 2, result.sums, rows.head_dim * sizeof(float));
}

inline const float* query_of(const AttentionArgs& args, const AttentionItem& item, size_t row) {
  const size_t token = item.first_token + row / item.num_heads, head = item.first_head + row % item.num_heads;
  return args.qkv + token * args.qkv_width + head * args.head_dim;
}

// The heads of a token are neighbours.
inline void ask_for_queries(const AttentionArgs& args, const AttentionItem& item) {
  for (size_t token = 0; token < item.num_tokens; ++token) {
    const float* queries = query_of(args, item, token * item.num_heads);
    for (size_t i = 0; i < item.num_heads * args.head_dim; i += kLanes) prefetch_to_l2(queries + i);
  }
}

// visit(rows, which of them see something, span, results by row) for each span of the item.
template <class Visit>
void walk(const AttentionArgs& args, const AttentionItem& item, const AttentionItem* next_item, TileWords words,
          const Visit& visit) {
  ItemRows rows(args, item);
  const Place place(args, item, words), next(args, next_item != nullptr ? *next_item : item, words);
  RowSums results[kMaxItemRows];
  if (next_item != nullptr) ask_for_queries(args, *next_item);
  for (size_t index = item.first_span; index < item.end_span; ++index) {
    const Span span = span_at(place, index, item.end_span, next_item != nullptr ? &next : nullptr,
                              next_item != nullptr ? next_item->first_span : 0);
    const Range seeing = rows_that_see(rows, span.start);
    visit(rows, seeing, span, results);
    for (size_t row = seeing.begin; row < seeing.end; ++row) leave(item, rows, row, results[row]);
  }
  if (item.parts == nullptr) rows.finish();
}

}  // namespace headway::HEADWAY_ISA
