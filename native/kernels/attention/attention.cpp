// Rows that share keys are computed together, so that a tile is read once for all of them. Of a tile
// that a row sees only in part, what it must not see is never added, as it may be anything, NaN
// included: its scores are masked, its values left out, or zero in a copy where they come in pairs.
//
// Few rows, a decode: memory is the wall. Words are widened in registers and asked for ahead of time.
// Many rows, a prefill: tiles are widened once into a buffer, and all blocks of rows multiply those.
// A score and a sum take the same products in the same order both ways.
#include "kernels/attention/attention.h"

#include <type_traits>

#include "kernels/attention/walk.h"
#include "kernels/simd/words.h"

namespace headway::HEADWAY_ISA {
namespace {

// How many rows, tiles and vectors of a value go through the registers at once.
#if defined(__AVX512F__)
constexpr size_t kRowsAtOnce = 6, kTilesAtOnce = 4, kValueVectors = 4;
#elif defined(__AVX2__)
constexpr size_t kRowsAtOnce = 2, kTilesAtOnce = 2, kValueVectors = 2;
#else
constexpr size_t kRowsAtOnce = 2, kTilesAtOnce = 1, kValueVectors = 1;
#endif
constexpr size_t kGroupTiles = 4;  // widened together: they stay in the nearest cache
constexpr size_t kMaxTileWords = kTileTokens * kMaxHeadDim;
// Of a row's scores; a power of two would crowd them into a few sets of the nearest cache.
constexpr size_t kScoreStride = kSpanTokens + kTileTokens;

// Widened words, where widening is what a product of them costs.
template <class Words>
constexpr bool kWidens = Words::kPerWord == 2 && Words::kParts == 2;
template <class Words>
using WideWords = std::conditional_t<kWidens<Words>, F32Words, Words>;

// Buffers of the rows of an item. A row has kSpanTokens scores, and then weights in their place.
struct Buffers {
  alignas(64) uint32_t queries[kMaxItemRows * kMaxHeadDim];
  alignas(64) float scores[kMaxItemRows * kScoreStride];
  alignas(64) float sums[kMaxItemRows * kMaxHeadDim];
  alignas(64) uint32_t wide[kGroupTiles * kMaxTileWords];
  alignas(64) uint32_t cut[kMaxTileWords];
  size_t query_words, sum_floats, head_dim;  // of a row
};

// Scores of R rows against the keys of T tiles.
template <class Words, size_t R, size_t T, class Tiles>
HEADWAY_INLINE void score(const Buffers& buffers, size_t row, Tiles tiles, f32x16 scale, float* scores) {
  const size_t steps = buffers.head_dim / Words::kPerWord, stride = buffers.query_words;
  const uint32_t* queries = buffers.queries + row * stride;
  const uint32_t* at[T];
  f32x16 sums[R][T];
  HEADWAY_UNROLL
  for (size_t t = 0; t < T; ++t) at[t] = tiles.tiles[t];
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t t = 0; t < T; ++t) sums[r][t] = broadcast(0.0f);
  }
  for (size_t step = 0; step < steps; ++step) {
    u32x16 keys[T];
    HEADWAY_UNROLL
    for (size_t t = 0; t < T; ++t) {
      keys[t] = load_u32(at[t] + step * kTileTokens);
      tiles.ask(t, T, step * kTileTokens);
    }
    HEADWAY_UNROLL
    for (size_t part = 0; part < Words::kParts; ++part) {
      HEADWAY_UNROLL
      for (size_t r = 0; r < R; ++r) {
        HEADWAY_UNROLL
        for (size_t t = 0; t < T; ++t)
          sums[r][t] = Words::multiply_add(sums[r][t], queries + r * stride + step * Words::kParts, keys[t], part);
      }
    }
  }
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t t = 0; t < T; ++t) store(scores + r * kScoreStride + t * kTileTokens, sums[r][t] * scale);
  }
}

template <class Words, size_t R, size_t T, class Tiles>
HEADWAY_INLINE void score_tiles(const Buffers& buffers, size_t row, Tiles tiles, size_t count, f32x16 scale,
                                float* scores) {
  while (count >= T) {
    score<Words, R, T>(buffers, row, tiles, scale, scores);
    tiles.tiles += T, scores += T * kTileTokens, count -= T;
  }
  if constexpr (T > 1) score_tiles<Words, R, T / 2>(buffers, row, tiles, count, scale, scores);
}

// Scores of the rows of a block, for `count` tiles, the first of which is the span's `tile`.
template <class Words, class Tiles>
void score_block(Buffers& buffers, Range rows, Tiles tiles, size_t tile, size_t count, float scale) {
  float* scores = buffers.scores + rows.begin * kScoreStride + tile * kTileTokens;
  with_count<kRowsAtOnce>(rows.end - rows.begin, [&](auto number) __attribute__((always_inline)) {
    score_tiles<Words, decltype(number)::value, kTilesAtOnce>(buffers, rows.begin, tiles, count, broadcast(scale),
                                                              scores);
  });
}

// Weights as they will be multiplied: only a dot product of pairs needs them rounded.
template <class Words>
HEADWAY_INLINE f32x16 as_weights(f32x16 v) {
  return Words::kPerWord == 2 && Words::kParts == 1 ? Words::rounded(v) : v;
}

// The scores of one row become weights.
template <class Words>
void weigh(Visible visible, size_t start, float* scores, float& largest, float& total) {
  const Range seen = seen_tiles(visible, start), whole = whole_tiles(visible, start);
  if (seen.begin != whole.begin || seen.end != whole.end) mask_scores(visible, start, seen, scores);
  largest = largest_score(scores, seen);
  const f32x16 shift = broadcast(largest);
  f32x16 sum = broadcast(0.0f);
  constexpr size_t kTileWords = kTileTokens / Words::kPerWord * Words::kParts;
  uint32_t* weights = reinterpret_cast<uint32_t*>(scores);
  for (size_t tile = seen.begin; tile < seen.end; ++tile) {
    const f32x16 weight = as_weights<Words>(exp2(load_f32(scores + tile * kTileTokens) - shift));
    sum = sum + weight;
    Words::put(weight, weights + tile * kTileWords);
  }
  total = sum_lanes(sum);
}

// sums += weights * values of the same words of some tiles in order; V vectors from dimension d on.
template <class Words, size_t R, size_t V, class Tiles, class Load>
HEADWAY_INLINE void add_values(Buffers& buffers, size_t row, Tiles tiles, Range range, Range words, size_t d,
                               const Load& load) {
  constexpr size_t kTileWords = kTileTokens / Words::kPerWord;
  const uint32_t* weights = reinterpret_cast<const uint32_t*>(buffers.scores) + row * kScoreStride;
  float* place = buffers.sums + row * buffers.sum_floats + d;
  f32x16 sums[R][V];
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) sums[r][v] = load_f32(place + r * buffers.sum_floats + v * kLanes);
  }
  for (size_t tile = range.begin; tile < range.end; ++tile, ++tiles.tiles) {
    const uint32_t* from = *tiles.tiles;
    const uint32_t* weight = weights + (tile * kTileWords + words.begin) * Words::kParts;
    for (size_t word = words.begin; word < words.end; ++word, weight += Words::kParts) {
      u32x16 values[V];
      HEADWAY_UNROLL
      for (size_t v = 0; v < V; ++v) {
        const size_t at = word * buffers.head_dim + d + v * kLanes;
        values[v] = load(from + at);
        tiles.ask(0, 1, at);
      }
      HEADWAY_UNROLL
      for (size_t part = 0; part < Words::kParts; ++part) {
        HEADWAY_UNROLL
        for (size_t r = 0; r < R; ++r) {
          HEADWAY_UNROLL
          for (size_t v = 0; v < V; ++v)
            sums[r][v] = Words::multiply_add(sums[r][v], weight + r * kScoreStride, values[v], part);
        }
      }
    }
  }
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) store(place + r * buffers.sum_floats + v * kLanes, sums[r][v]);
  }
}

// The same words of the span's tiles in `range`, all of which all the rows see.
template <class Words, class Tiles>
void add_words(Buffers& buffers, Range rows, Tiles tiles, Range range, Range words) {
  const size_t head_dim = buffers.head_dim;
  const auto load = [](const uint32_t* at) __attribute__((always_inline)) { return load_u32(at); };
  const auto load_rest = [=](const uint32_t* at) __attribute__((always_inline)) {
    return load_u32(at, head_dim % kLanes);
  };
  with_count<kRowsAtOnce>(rows.end - rows.begin, [&](auto number) __attribute__((always_inline)) {
    constexpr size_t R = decltype(number)::value;
    size_t d = 0;
    for (; d + kValueVectors * kLanes <= head_dim; d += kValueVectors * kLanes) {
      add_values<Words, R, kValueVectors>(buffers, rows.begin, tiles, range, words, d, load);
    }
    for (; d + kLanes <= head_dim; d += kLanes) {
      add_values<Words, R, 1>(buffers, rows.begin, tiles, range, words, d, load);
    }
    if (d < head_dim) add_values<Words, R, 1>(buffers, rows.begin, tiles, range, words, d, load_rest);
  });
}

template <class Words, class Tiles>
HEADWAY_INLINE void add_whole(Buffers& buffers, Range rows, Tiles tiles, Range range) {
  add_words<Words>(buffers, rows, tiles, range, {0, kTileTokens / Words::kPerWord});
}

// Pairs of bfloat16 in rows of `width` words to twice as many rows of float32.
void widen_rows(const uint32_t* from, size_t num_rows, size_t width, uint32_t* to) {
  for (size_t row = 0; row < num_rows; ++row, from += width, to += 2 * width) {
    for (size_t i = 0; i < width; i += kLanes) {
      const u32x16 pairs = load_u32(from + i, width - i);
      store(to + i, shift_left(pairs, 16), width - i);
      store(to + width + i, pairs & broadcast(0xFFFF0000u), width - i);
    }
  }
}

// Pairs of a value tile, with zeros in place of tokens that are not among `tokens`.
void copy_pairs(const uint32_t* tile, Range tokens, size_t head_dim, uint32_t* to) {
  for (size_t token = 0; token < kTileTokens; token += 2, tile += head_dim, to += head_dim) {
    uint32_t mask = tokens.begin <= token && token < tokens.end ? 0x0000FFFFu : 0;  // the first is the low half
    if (tokens.begin <= token + 1 && token + 1 < tokens.end) mask |= 0xFFFF0000u;
    for (size_t d = 0; d < head_dim; ++d) to[d] = tile[d] & mask;
  }
}

// A tile of which the rows of one token see some tokens.
template <class Words>
void add_cut(Buffers& buffers, Range rows, const uint32_t* words, size_t tile, Range tokens) {
  const size_t head_dim = buffers.head_dim;
  const uint32_t* cut = buffers.cut;
  if constexpr (Words::kPerWord == 1) {
    add_words<Words>(buffers, rows, Cached{&words}, {tile, tile + 1}, tokens);
  } else if constexpr (kWidens<Words>) {
    widen_rows(words, kTileTokens / 2, head_dim, buffers.cut);
    add_words<F32Words>(buffers, rows, Cached{&cut}, {tile, tile + 1}, tokens);
  } else {
    copy_pairs(words, tokens, head_dim, buffers.cut);
    add_whole<Words>(buffers, rows, Cached{&cut}, {tile, tile + 1});
  }
}

// A tile that the rows of a block do not all see whole: token by token.
template <class Words>
void add_ragged(const ItemRows& item, Buffers& buffers, Range rows, size_t start, const uint32_t* words, size_t tile) {
  for (size_t begin = rows.begin; begin < rows.end;) {
    const size_t after = (begin / item.num_heads + 1) * item.num_heads, end = after < rows.end ? after : rows.end;
    const Range tokens = seen_tokens(item.visible[begin], start + tile * kTileTokens);
    if (tokens.begin < tokens.end) add_cut<Words>(buffers, {begin, end}, words, tile, tokens);
    begin = end;
  }
}

// Values of the tiles of a span, or of some of them, for the rows of a block.
template <class Words, class Tiles>
void add_block(const ItemRows& item, Buffers& buffers, Range rows, size_t start, Tiles tiles, Range range) {
  const Range early = whole_tiles(item.visible[rows.begin], start);
  const Range late = whole_tiles(item.visible[rows.end - 1], start);
  size_t tile = range.begin;
  while (tile < range.end) {
    // both see it whole, so all between do
    size_t end = early.end < late.end ? early.end : late.end;
    const size_t begin = early.begin > late.begin ? early.begin : late.begin;
    end = end < range.end ? end : range.end;
    if (begin <= tile && tile < end) {
      add_whole<Words>(buffers, rows, tiles, {tile, end});
      tiles.tiles += end - tile, tile = end;
    } else {
      add_ragged<Words>(item, buffers, rows, start, *tiles.tiles, tile);
      ++tiles.tiles, ++tile;
    }
  }
}

// Some consecutive tiles as WideWords; asks for those that come after them.
template <class Words>
void widen_tiles(const uint32_t* const* tiles, size_t count, size_t num_rows, size_t width, Buffers& buffers,
                 const uint32_t** to) {
  static_assert(kGroupTiles <= Span::kLead);
  for (size_t i = 0; i < count; ++i) {
    to[i] = tiles[i];
    for (size_t word = 0; word < num_rows * width; word += kLanes) prefetch_to_l2(tiles[count + i] + word);
    if constexpr (kWidens<Words>) {
      uint32_t* wide = buffers.wide + i * kMaxTileWords;
      widen_rows(tiles[i], num_rows, width, wide);
      to[i] = wide;
    }
  }
}

// function(tiles, range) for groups of tiles of the span, widened.
template <class Words, class Function>
void for_groups(const Span& span, const uint32_t* const* tiles, size_t num_rows, size_t width, Buffers& buffers,
                const Function& function) {
  for (size_t tile = span.tiles.begin; tile < span.tiles.end; tile += kGroupTiles) {
    const size_t left = span.tiles.end - tile, count = left < kGroupTiles ? left : kGroupTiles;
    const uint32_t* wide[kGroupTiles];
    widen_tiles<Words>(tiles + (tile - span.tiles.begin), count, num_rows, width, buffers, wide);
    function(Cached{wide}, Range{tile, tile + count});
  }
}

template <class Words>
void weigh_rows(const ItemRows& item, Buffers& buffers, Range rows, size_t start, RowSums* results) {
  for (size_t row = rows.begin; row < rows.end; ++row) {
    RowSums& result = results[row];
    weigh<Words>(item.visible[row], start, buffers.scores + row * kScoreStride, result.largest, result.total);
    result.sums = buffers.sums + row * buffers.sum_floats;
    __builtin_memset(result.sums, 0, buffers.sum_floats * sizeof(float));
  }
}

template <class Words>
void visit_few(const ItemRows& item, Buffers& buffers, Range rows, const Span& span, float scale, RowSums* results) {
  const size_t first = span.tiles.begin, count = span.tiles.end - first;
  score_block<Words>(buffers, rows, Fetching{span.keys(first), span.words.keys}, first, count, scale);
  weigh_rows<Words>(item, buffers, rows, span.start, results);
  add_block<Words>(item, buffers, rows, span.start, Fetching{span.values(first), span.words.values}, span.tiles);
}

// The part of the tiles that some row of a block sees.
Range seen_by_block(const ItemRows& item, Range rows, size_t start, Range tiles) {
  const size_t begin = seen_tiles(item.visible[rows.begin], start).begin;
  const size_t end = seen_tiles(item.visible[rows.end - 1], start).end;
  return {begin > tiles.begin ? begin : tiles.begin, end < tiles.end ? end : tiles.end};
}

template <class Words>
void visit_many(const ItemRows& item, Buffers& buffers, Range rows, const Span& span, float scale, RowSums* results) {
  using Wide = WideWords<Words>;
  const size_t first = span.tiles.begin, head_dim = item.head_dim;
  for_groups<Words>(span, span.keys(first), head_dim / Words::kPerWord, kTileTokens, buffers,
                    [&](Cached tiles, Range range) {
    for_row_blocks<kRowsAtOnce>(rows, [&](Range block) {
      const Range seen = seen_by_block(item, block, span.start, range);
      if (seen.begin >= seen.end) return;
      const Cached from{tiles.tiles + (seen.begin - range.begin)};
      score_block<Wide>(buffers, block, from, seen.begin, seen.end - seen.begin, scale);
    });
  });
  weigh_rows<Wide>(item, buffers, rows, span.start, results);
  for_groups<Words>(span, span.values(first), kTileTokens / Words::kPerWord, head_dim, buffers,
                    [&](Cached tiles, Range range) {
    for_row_blocks<kRowsAtOnce>(rows, [&](Range block) {
      const Range seen = seen_by_block(item, block, span.start, range);
      if (seen.begin >= seen.end) return;
      add_block<Wide>(item, buffers, block, span.start, Cached{tiles.tiles + (seen.begin - range.begin)}, seen);
    });
  });
}

template <class Words>
void attention(const AttentionArgs& args, const AttentionItem& item, const AttentionItem* next) {
  Buffers buffers;
  buffers.head_dim = args.head_dim;
  buffers.query_words = args.head_dim / Words::kPerWord * Words::kParts;
  buffers.sum_floats = (args.head_dim + kLanes - 1) / kLanes * kLanes;
  for (size_t row = 0; row < item.num_rows(); ++row) {
    Words::round(query_of(args, item, row), args.head_dim, buffers.queries + row * buffers.query_words);
  }
  const size_t tile_words = kTileTokens * args.head_dim / Words::kPerWord;
  walk(args, item, next, {tile_words, tile_words},
       [&](const ItemRows& rows, Range seeing, const Span& span, RowSums* results) {
    const auto visit = seeing.end - seeing.begin <= kRowsAtOnce ? visit_few<Words> : visit_many<Words>;
    visit(rows, buffers, seeing, span, args.scale * kLog2E, results);
  });
}

}  // namespace

void merge_attention(const AttentionArgs& args, const AttentionItem& item) {
  ItemRows rows(args, item);
  float* part = item.parts;
  for (size_t span = item.first_span; span < item.end_span; ++span) {
    const Range seeing = rows_that_see(rows, span * kSpanTokens);
    for (size_t row = 0; row < rows.num_rows; ++row, part += part_floats(args.head_dim)) {
      if (seeing.begin <= row && row < seeing.end) rows.add(row, {part[0], part[1], part + 2});
    }
  }
  rows.finish();
}

void attention_f32(const AttentionArgs& args, const AttentionItem& item, const AttentionItem* next) {
  attention<F32Words>(args, item, next);
}
void attention_bf16(const AttentionArgs& args, const AttentionItem& item, const AttentionItem* next) {
  attention<Bf16Words>(args, item, next);
}

}  // namespace headway::HEADWAY_ISA
