// Rows that share keys are computed together, so that a tile is read once for all of them. Of a tile
// that a row sees only in part, what it must not see is never added, as it may be anything, NaN
// included: its scores are masked, its values left out, for that row alone.
#include "kernels/attention/attention.h"

#include "kernels/kernel_table.h"
#include "kernels/simd/exp.h"
#include "kernels/simd/words.h"

namespace headway::HEADWAY_ISA {
namespace {

// How many rows, tiles and vectors of a value go through the registers at once.
#if defined(__AVX512F__)
constexpr size_t kRowsAtOnce = 6, kValueVectors = 4;
constexpr size_t tiles_at_once(size_t rows) { return rows <= 3 ? 4 : 2; }
#else
constexpr size_t kRowsAtOnce = 2, kValueVectors = 1;
constexpr size_t tiles_at_once(size_t) { return 1; }
#endif
constexpr size_t kChains = 2;  // independent partial sums of a score, to hide the latency of adding

struct Row {
  alignas(64) uint32_t query[kMaxHeadDim];
  alignas(64) float sums[kMaxHeadDim];  // of weight * value
  alignas(64) uint32_t weights[kSpanTiles * kTileTokens];
  float largest, total;  // of the scores and weights so far
  size_t first, last;    // visible positions
  float* out;
};

// Consecutive tiles, of which [begin, end) are there, and where to find the ones after them.
struct Span {
  const uint32_t *keys[kSpanTiles], *values[kSpanTiles];
  const uint32_t *next_keys[kSpanTiles], *next_values[kSpanTiles];
  size_t first_position, begin, end, head_dim;
  float scale;

  size_t position_of(size_t tile) const { return first_position + tile * kTileTokens; }
};

bool sees_any(const Row& row, size_t from, size_t count) { return row.first < from + count && from <= row.last; }
bool sees_all(const Row& row, size_t from, size_t count) { return row.first <= from && from + count <= row.last + 1; }

// Scaled scores of R rows against the keys of T tiles. Step i goes to chain i mod kChains.
template <class Words, size_t R, size_t T>
HEADWAY_INLINE void score(const Row* rows, const Span& span, size_t tile, f32x16 scores[][kSpanTiles]) {
  const size_t steps = span.head_dim / Words::kPerWord;
  f32x16 chains[kChains][R][T];
  HEADWAY_UNROLL
  for (size_t c = 0; c < kChains; ++c) {
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t t = 0; t < T; ++t) chains[c][r][t] = broadcast(0.0f);
    }
  }
  const auto add_step = [&](size_t step, size_t chain) __attribute__((always_inline)) {
    u32x16 keys[T];
    HEADWAY_UNROLL
    for (size_t t = 0; t < T; ++t) {
      keys[t] = load_u32(span.keys[tile + t] + step * kTileTokens);
      prefetch(span.next_keys[tile + t] + step * kTileTokens);
    }
    HEADWAY_UNROLL
    for (size_t part = 0; part < Words::kParts; ++part) {
      HEADWAY_UNROLL
      for (size_t r = 0; r < R; ++r) {
        HEADWAY_UNROLL
        for (size_t t = 0; t < T; ++t)
          chains[chain][r][t] =
              Words::multiply_add(chains[chain][r][t], rows[r].query + step * Words::kParts, keys[t], part);
      }
    }
  };
  size_t step = 0;
  for (; step + kChains <= steps; step += kChains) {
    HEADWAY_UNROLL
    for (size_t c = 0; c < kChains; ++c) add_step(step + c, c);
  }
  if (step < steps) add_step(step, 0);
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t t = 0; t < T; ++t)
      scores[r][tile + t] = (chains[0][r][t] + chains[1][r][t]) * broadcast(span.scale);
  }
}

template <class Words, size_t R>
void score_span(const Row* rows, const Span& span, f32x16 scores[][kSpanTiles]) {
  constexpr size_t kTiles = tiles_at_once(R);
  size_t tile = span.begin;
  for (; tile + kTiles <= span.end; tile += kTiles) score<Words, R, kTiles>(rows, span, tile, scores);
  for (; tile < span.end; ++tile) score<Words, R, 1>(rows, span, tile, scores);
}

HEADWAY_INLINE u32x16 visible_lanes(const Row& row, size_t from) {
  const size_t low = row.first > from ? row.first - from : 0, high = row.last - from;
  const u32x16 lanes = lane_index();
  return (lanes >= broadcast(static_cast<uint32_t>(low))) &
         (lanes <= broadcast(static_cast<uint32_t>(high < kTileTokens ? high : kTileTokens)));
}

void mask_scores(const Row& row, const Span& span, f32x16 scores[kSpanTiles]) {
  const f32x16 nothing = broadcast(-__builtin_inff());
  for (size_t tile = 0; tile < kSpanTiles; ++tile) {
    const size_t from = span.position_of(tile);
    if (!sees_any(row, from, kTileTokens)) {
      scores[tile] = nothing;
    } else if (!sees_all(row, from, kTileTokens)) {
      scores[tile] = select(visible_lanes(row, from), scores[tile], nothing);
    }
  }
}

// Turn scores into weights, and what was summed so far to the new maximum. The row sees some key.
template <class Words>
HEADWAY_INLINE void reweigh(Row& row, const f32x16 scores[kSpanTiles], size_t head_dim) {
  static_assert(kSpanTiles == 4);
  const float span_largest = max_lane(larger(larger(scores[0], scores[1]), larger(scores[2], scores[3])));
  if (span_largest > row.largest) {
    const f32x16 factor = exp(broadcast(row.largest - span_largest));
    row.largest = span_largest;
    row.total *= first_lane(factor);
    for (size_t d = 0; d < head_dim; d += kLanes) store(row.sums + d, load_f32(row.sums + d) * factor);
  }
  const f32x16 shift = broadcast(row.largest);
  f32x16 weights[kSpanTiles];
  HEADWAY_UNROLL
  for (size_t tile = 0; tile < kSpanTiles; ++tile) {
    weights[tile] = Words::rounded(exp(scores[tile] - shift));  // summed as they will be multiplied
    Words::put(weights[tile], row.weights + tile * kTileTokens / Words::kPerWord * Words::kParts);
  }
  row.total += sum_lanes((weights[0] + weights[1]) + (weights[2] + weights[3]));
}

// sums += weights * values of the tiles [begin, end), in order; V vectors from dimension d on.
template <class Words, size_t R, size_t V, class Load>
HEADWAY_INLINE void add_values(Row* rows, const Span& span, size_t begin, size_t end, size_t d, Load load) {
  constexpr size_t kTileWords = kTileTokens / Words::kPerWord;
  f32x16 sums[R][V];
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) sums[r][v] = load_f32(rows[r].sums + d + v * kLanes);
  }
  for (size_t tile = begin; tile < end; ++tile) {
    for (size_t word = 0; word < kTileWords; ++word) {
      u32x16 values[V];
      HEADWAY_UNROLL
      for (size_t v = 0; v < V; ++v) {
        const size_t at = word * span.head_dim + d + v * kLanes;
        values[v] = load(span.values[tile] + at, d + v * kLanes);
        prefetch(span.next_values[tile] + at);
      }
      HEADWAY_UNROLL
      for (size_t part = 0; part < Words::kParts; ++part) {
        HEADWAY_UNROLL
        for (size_t r = 0; r < R; ++r) {
          const uint32_t* weight = rows[r].weights + (tile * kTileWords + word) * Words::kParts;
          HEADWAY_UNROLL
          for (size_t v = 0; v < V; ++v) sums[r][v] = Words::multiply_add(sums[r][v], weight, values[v], part);
        }
      }
    }
  }
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) store(rows[r].sums + d + v * kLanes, sums[r][v]);
  }
}

// Tiles that all R rows see whole.
template <class Words, size_t R>
void add_whole_tiles(Row* rows, const Span& span, size_t begin, size_t end) {
  const size_t head_dim = span.head_dim;
  const auto load = [](const uint32_t* at, size_t) __attribute__((always_inline)) { return load_u32(at); };
  const auto load_rest = [=](const uint32_t* at, size_t d) __attribute__((always_inline)) {
    return load_u32(at, head_dim - d);
  };
  size_t d = 0;
  for (; d + kValueVectors * kLanes <= head_dim; d += kValueVectors * kLanes) {
    add_values<Words, R, kValueVectors>(rows, span, begin, end, d, load);
  }
  for (; d < head_dim; d += kLanes) add_values<Words, R, 1>(rows, span, begin, end, d, load_rest);
}

// One row, of which only the tokens low ... high of the tile are visible.
template <class Words>
void add_cut_tile(Row& row, const Span& span, size_t tile) {
  const size_t head_dim = span.head_dim, from = span.position_of(tile);
  const size_t low = row.first > from ? row.first - from : 0;
  const size_t high = row.last - from < kTileTokens ? row.last - from : kTileTokens - 1;
  const size_t first = low / Words::kPerWord, last = high / Words::kPerWord;
  const bool drop_even = Words::kPerWord == 2 && low % 2 == 1;
  const bool drop_odd = Words::kPerWord == 2 && high % 2 == 0;
  const uint32_t* weights = row.weights + tile * kTileTokens / Words::kPerWord * Words::kParts;
  for (size_t d = 0; d < head_dim; d += kLanes) {
    f32x16 sum = load_f32(row.sums + d);
    for (size_t word = first; word <= last; ++word) {
      uint32_t seen = ~0u;
      if (drop_even && word == first) seen &= 0xFFFF0000u;
      if (drop_odd && word == last) seen &= 0x0000FFFFu;
      const u32x16 value = load_u32(span.values[tile] + word * head_dim + d, head_dim - d) & broadcast(seen);
      HEADWAY_UNROLL
      for (size_t part = 0; part < Words::kParts; ++part) {
        sum = Words::multiply_add(sum, weights + word * Words::kParts, value, part);
      }
    }
    store(row.sums + d, sum);
  }
}

template <size_t R>
bool all_see_whole(const Row* rows, size_t from) {
  for (size_t r = 0; r < R; ++r) {
    if (!sees_all(rows[r], from, kTileTokens)) return false;
  }
  return true;
}

template <class Words, size_t R>
void add_span(Row* rows, const Span& span) {
  size_t tile = span.begin;
  while (tile < span.end) {
    size_t whole = tile;
    while (whole < span.end && all_see_whole<R>(rows, span.position_of(whole))) ++whole;
    if (whole > tile) {
      add_whole_tiles<Words, R>(rows, span, tile, whole);
      tile = whole;
      continue;
    }
    for (size_t r = 0; r < R; ++r) {
      if (sees_all(rows[r], span.position_of(tile), kTileTokens)) {
        add_whole_tiles<Words, 1>(rows + r, span, tile, tile + 1);
      } else if (sees_any(rows[r], span.position_of(tile), kTileTokens)) {
        add_cut_tile<Words>(rows[r], span, tile);
      }
    }
    ++tile;
  }
}

// R rows, each of which sees something of the span.
template <class Words, size_t R>
void visit(Row* rows, const Span& span) {
  f32x16 scores[R][kSpanTiles];
  score_span<Words, R>(rows, span, scores);
  for (size_t r = 0; r < R; ++r) {
    mask_scores(rows[r], span, scores[r]);
    reweigh<Words>(rows[r], scores[r], span.head_dim);
  }
  add_span<Words, R>(rows, span);
}

template <class Words, size_t R>
void visit_of(Row* rows, size_t num_rows, const Span& span) {
  if (num_rows == R) return visit<Words, R>(rows, span);
  if constexpr (R > 1) visit_of<Words, R - 1>(rows, num_rows, span);
}

// Rows in blocks of nearly equal size.
template <class Words>
void visit_rows(Row* rows, size_t num_rows, const Span& span) {
  const size_t blocks = (num_rows + kRowsAtOnce - 1) / kRowsAtOnce;
  for (size_t i = 0; i < blocks; ++i) {
    const size_t begin = num_rows * i / blocks, end = num_rows * (i + 1) / blocks;
    visit_of<Words, kRowsAtOnce>(rows + begin, end - begin, span);
  }
}

// Tokens are in order of position, so the rows that see something of a span are neighbours.
template <class Words>
void visit_span(Row* rows, size_t num_rows, const Span& span) {
  constexpr size_t kSpanTokens = kSpanTiles * kTileTokens;
  size_t begin = 0, end = num_rows;
  while (begin < end && !sees_any(rows[begin], span.first_position, kSpanTokens)) ++begin;
  while (begin < end && !sees_any(rows[end - 1], span.first_position, kSpanTokens)) --end;
  if (begin < end) visit_rows<Words>(rows + begin, end - begin, span);
}

size_t first_visible(const AttentionArgs& args, size_t token) {
  const size_t position = static_cast<size_t>(args.positions[token]);
  return args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
}

template <class Words>
void start_row(const AttentionArgs& args, size_t token, size_t head, Row& row) {
  const float* query = args.qkv + token * args.qkv_width + head * args.head_dim;
  Words::round(query, args.head_dim, row.query);
  __builtin_memset(row.sums, 0, sizeof row.sums);
  row.largest = -__builtin_inff();
  row.total = 0;
  row.last = static_cast<size_t>(args.positions[token]);
  row.first = first_visible(args, token);
  row.out = args.out + (token * args.num_heads + head) * args.head_dim;
}

void finish_row(const Row& row, size_t head_dim) {
  const f32x16 total = broadcast(row.total);
  for (size_t d = 0; d < head_dim; d += kLanes) {
    store(row.out + d, load_f32(row.sums + d) / total, head_dim - d);
  }
}

// Where keys and values of one item's head lie.
struct Place {
  const AttentionArgs& args;
  const int32_t* table;
  size_t kv_head, head_words, last_tile;

  size_t offset(size_t tile) const {
    const size_t known = tile < last_tile ? tile : last_tile;
    const size_t block = static_cast<size_t>(table[known / args.tiles_per_block]);
    const size_t place = block * args.tiles_per_block + known % args.tiles_per_block;
    return (place * args.num_kv_heads + kv_head) * head_words;
  }
};

Span span_at(const Place& place, size_t index, size_t first_tile) {
  Span span;
  const size_t start = index * kSpanTiles, stop = place.last_tile + 1 - start;
  for (size_t tile = 0; tile < kSpanTiles; ++tile) {
    const size_t here = place.offset(start + tile), next = place.offset(start + kSpanTiles + tile);
    span.keys[tile] = place.args.keys + here;
    span.values[tile] = place.args.values + here;
    span.next_keys[tile] = place.args.keys + next;
    span.next_values[tile] = place.args.values + next;
  }
  span.first_position = start * kTileTokens;
  span.begin = first_tile > start ? first_tile - start : 0;
  span.end = stop < kSpanTiles ? stop : kSpanTiles;
  span.head_dim = place.args.head_dim;
  span.scale = place.args.scale;
  return span;
}

template <class Words>
void attention(const AttentionArgs& args, const AttentionItem& item) {
  Row rows[kMaxItemRows];
  size_t num_rows = 0;
  for (size_t token = 0; token < item.num_tokens; ++token) {
    for (size_t head = 0; head < item.num_heads; ++head) {
      start_row<Words>(args, item.first_token + token, item.first_head + head, rows[num_rows++]);
    }
  }
  const size_t last_token = item.first_token + item.num_tokens - 1;
  const Place place{args, args.block_tables + item.sequence * args.table_width,
                    item.first_head / (args.num_heads / args.num_kv_heads),
                    kTileTokens * args.head_dim / Words::kPerWord,
                    static_cast<size_t>(args.positions[last_token]) / kTileTokens};
  const size_t first_tile = first_visible(args, item.first_token) / kTileTokens;
  for (size_t index = first_tile / kSpanTiles; index <= place.last_tile / kSpanTiles; ++index) {
    visit_span<Words>(rows, num_rows, span_at(place, index, first_tile));
  }
  for (size_t r = 0; r < num_rows; ++r) finish_row(rows[r], args.head_dim);
}

}  // namespace

void attention_f32(const AttentionArgs& args, const AttentionItem& item) {
  attention<F32Words>(args, item);
}
void attention_bf16(const AttentionArgs& args, const AttentionItem& item) {
  attention<Bf16Words>(args, item);
}

}  // namespace headway::HEADWAY_ISA
