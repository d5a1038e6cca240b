// Attention over keys and values in int8. Layout: `KVCache` in src/headway/ops/interface.py; a byte is
// a whole number plus 128, and the scales of a tile's keys and values lie behind its keys.
//
// Queries and weights are whole numbers of two bytes, 128 * high + low, so that their rounding is
// nothing beside that of the cache. Products with bytes are summed exactly; a span is short enough for
// 32 bits. What a row does not see has a weight of exactly zero, and any byte is a number.
#include "kernels/attention/walk.h"
#include "kernels/simd/int8_words.h"

namespace headway::HEADWAY_ISA {
namespace {

// Whole numbers in two registers each: half the rows of the kernel for words.
#if defined(__AVX512F__)
constexpr size_t kRowsAtOnce = 3, kTilesAtOnce = 4, kValueVectors = 4;
#else
constexpr size_t kRowsAtOnce = 2, kTilesAtOnce = 1, kValueVectors = 1;
#endif
constexpr size_t kBytes = 2;  // high, low
constexpr size_t kGroups = kTileTokens / 4;
constexpr int32_t kZeroPoint = 128;
constexpr float kLargest = 127.0f * 128.0f;
constexpr float kSmallest = 0x1p-100f;  // below it kLargest / largest could overflow
constexpr float kRound = 12582912.0f;   // 1.5 * 2^23: adding it rounds to integer, ties to even

struct Buffers {
  alignas(64) uint32_t queries[kMaxItemRows][kBytes][kMaxHeadDim / 4];
  alignas(64) uint32_t weights[kMaxItemRows][kBytes][kSpanTokens / 4];
  alignas(64) float scores[kMaxItemRows][kSpanTokens];
  alignas(64) float sums[kMaxItemRows][kMaxHeadDim];
  int32_t query_starts[kMaxItemRows][kBytes];  // what the zero points of the keys add, negated
  float query_units[kMaxItemRows], weight_units[kMaxItemRows];
  int32_t weight_starts[kMaxItemRows];
  size_t head_dim;
};

// The low byte of each lane.
HEADWAY_INLINE void store_bytes(void* to, u32x16 v) {
  typedef uint8_t bytes_part __attribute__((vector_size(kPartLanes), aligned(1), may_alias));
  bytes_part* parts = static_cast<bytes_part*>(to);
  HEADWAY_EACH_PART(parts[i] = __builtin_convertvector(v.part[i], bytes_part))
}

// Lanes of whole numbers in [-kLargest, kLargest], as floats plus kRound, in two bytes each.
HEADWAY_INLINE void store_split(f32x16 shifted, void* high, void* low) {
  const u32x16 up = as_u32(shifted) + broadcast(64u);  // to the nearest multiple of 128
  store_bytes(high, shift_right(up, 7));
  store_bytes(low, (up & broadcast(127u)) + broadcast(192u));  // - 64
}

int32_t sum_of(const void* bytes, size_t count) {
  const int8_t* from = static_cast<const int8_t*>(bytes);
  int32_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += from[i];
  return sum;
}

// The factor that makes `largest` kLargest; 0 where there is nothing worth a number.
float per_unit_of(float largest) { return largest >= kSmallest ? kLargest / largest : 0.0f; }

void round_query(const float* query, size_t row, Buffers& buffers) {
  const size_t head_dim = buffers.head_dim;
  f32x16 largest = broadcast(0.0f), check = broadcast(0.0f);
  for (size_t d = 0; d < head_dim; d += kLanes) {
    const f32x16 x = load_f32(query + d, head_dim - d, 0.0f);
    largest = larger(larger(x, broadcast(0.0f) - x), largest);
    check = fma(x, broadcast(0.0f), check);  // NaN where x is not a number or infinite
  }
  const float most = max_lane(largest), per_unit = per_unit_of(most);
  uint32_t(&bytes)[kBytes][kMaxHeadDim / 4] = buffers.queries[row];
  for (size_t d = 0; d < head_dim; d += kLanes) {
    const f32x16 x = load_f32(query + d, head_dim - d, 0.0f);
    store_split(x * broadcast(per_unit) + broadcast(kRound), bytes[0] + d / 4, bytes[1] + d / 4);
  }
  for (size_t i = 0; i < kBytes; ++i) buffers.query_starts[row][i] = -kZeroPoint * sum_of(bytes[i], head_dim);
  buffers.query_units[row] = most / kLargest + sum_lanes(check);
}

HEADWAY_INLINE u32x16 whole_number(u32x16 high, u32x16 low) { return shift_left(high, 7) + low; }

// Scores of R rows against the keys of T tiles.
template <size_t R, size_t T, class Tiles>
HEADWAY_INLINE void score(Buffers& buffers, size_t row, Tiles tiles, size_t tile, float scale) {
  const size_t steps = buffers.head_dim / 4;
  u32x16 sums[kBytes][R][T];
  HEADWAY_UNROLL
  for (size_t i = 0; i < kBytes; ++i) {
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t t = 0; t < T; ++t)
        sums[i][r][t] = broadcast(static_cast<uint32_t>(buffers.query_starts[row + r][i]));
    }
  }
  const uint32_t* queries = buffers.queries[row][0];
  for (size_t step = 0; step < steps; ++step) {
    Int8Weights keys[T];
    HEADWAY_UNROLL
    for (size_t t = 0; t < T; ++t) {
      keys[t] = widen_int8(load_u32(tiles.tiles[t] + step * kTileTokens));
      tiles.ask(t, T, step * kTileTokens);
    }
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t i = 0; i < kBytes; ++i) {
        const uint32_t query = queries[(r * kBytes + i) * (kMaxHeadDim / 4) + step];
        HEADWAY_UNROLL
        for (size_t t = 0; t < T; ++t) sums[i][r][t] = multiply_add_int8(sums[i][r][t], query, keys[t]);
      }
    }
  }
  HEADWAY_UNROLL
  for (size_t t = 0; t < T; ++t) {
    const f32x16 units = load_f32(tiles.tiles[t] + steps * kTileTokens);
    tiles.ask(t, T, steps * kTileTokens);
    tiles.ask(t, T, (steps + 1) * kTileTokens);
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      const f32x16 sum = from_int(whole_number(sums[0][r][t], sums[1][r][t]));
      const f32x16 unit = broadcast(buffers.query_units[row + r] * scale);
      store(buffers.scores[row + r] + (tile + t) * kTileTokens, sum * units * unit);
    }
  }
}

template <size_t R, size_t T, class Tiles>
HEADWAY_INLINE void score_tiles(Buffers& buffers, size_t row, Tiles tiles, Range range, float scale) {
  for (; range.begin + T <= range.end; range.begin += T, tiles.tiles += T) {
    score<R, T>(buffers, row, tiles, range.begin, scale);
  }
  if constexpr (T > 1) score_tiles<R, T / 2>(buffers, row, tiles, range, scale);
}

// The scores of one row become weights in two bytes, over all tiles of the span.
void weigh(const ItemRows& item, Buffers& buffers, size_t row, const Span& span, RowSums& result) {
  const Visible visible = item.visible[row];
  const Range seen = seen_tiles(visible, span.start), whole = whole_tiles(visible, span.start);
  float* scores = buffers.scores[row];
  if (seen.begin != whole.begin || seen.end != whole.end) mask_scores(visible, span.start, seen, scores);
  result.largest = largest_score(scores, seen);
  const f32x16 shift = broadcast(result.largest);
  f32x16 total = broadcast(0.0f), largest = broadcast(0.0f), check = broadcast(0.0f);
  for (size_t tile = seen.begin; tile < seen.end; ++tile) {
    const float* units = reinterpret_cast<const float*>(*span.keys(tile)) + (item.head_dim / 4 + 1) * kTileTokens;
    const f32x16 weights = exp2(load_f32(scores + tile * kTileTokens) - shift);
    f32x16 scaled = weights * load_f32(units);
    if (tile < whole.begin || tile >= whole.end) {
      scaled = select(visible_lanes(visible, span.start + tile * kTileTokens), scaled, broadcast(0.0f));
    }
    total = total + weights;
    largest = larger(scaled, largest);
    check = fma(scaled, broadcast(0.0f), check);
    store(scores + tile * kTileTokens, scaled);
  }
  result.total = sum_lanes(total);
  const float most = max_lane(largest), per_unit = per_unit_of(most);
  uint32_t(&bytes)[kBytes][kSpanTokens / 4] = buffers.weights[row];
  if (seen.begin != span.tiles.begin || seen.end != span.tiles.end) __builtin_memset(bytes, 0, sizeof bytes);
  f32x16 sum = broadcast(0.0f);
  for (size_t tile = seen.begin; tile < seen.end; ++tile) {
    const f32x16 shifted = load_f32(scores + tile * kTileTokens) * broadcast(per_unit) + broadcast(kRound);
    sum = sum + (shifted - broadcast(kRound));  // exact
    store_split(shifted, bytes[0] + tile * kGroups, bytes[1] + tile * kGroups);
  }
  buffers.weight_starts[row] = -kZeroPoint * static_cast<int32_t>(sum_lanes(sum));
  buffers.weight_units[row] = most / kLargest + sum_lanes(check);
  result.sums = buffers.sums[row];
}

// Weighted values of all tiles of the span; V vectors from dimension d on.
template <size_t R, size_t V, class Tiles, class Load>
HEADWAY_INLINE void add_values(Buffers& buffers, size_t row, Tiles tiles, Range range, size_t d, const Load& load) {
  u32x16 sums[kBytes][R][V];
  HEADWAY_UNROLL
  for (size_t i = 0; i < kBytes; ++i) {
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t v = 0; v < V; ++v) sums[i][r][v] = broadcast(0u);
    }
  }
  const uint32_t* weights = buffers.weights[row][0] + range.begin * kGroups;
  for (size_t tile = 0; tile < range.end - range.begin; ++tile) {
    const uint32_t* from = tiles.tiles[tile];
    for (size_t group = 0; group < kGroups; ++group, ++weights) {
      Int8Weights values[V];
      HEADWAY_UNROLL
      for (size_t v = 0; v < V; ++v) {
        const size_t at = group * buffers.head_dim + d + v * kLanes;
        values[v] = widen_int8(load(from + at));
        tiles.ask(tile, 1, at);
      }
      HEADWAY_UNROLL
      for (size_t r = 0; r < R; ++r) {
        HEADWAY_UNROLL
        for (size_t i = 0; i < kBytes; ++i) {
          const uint32_t weight = weights[(r * kBytes + i) * (kSpanTokens / 4)];
          HEADWAY_UNROLL
          for (size_t v = 0; v < V; ++v) sums[i][r][v] = multiply_add_int8(sums[i][r][v], weight, values[v]);
        }
      }
    }
  }
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    const u32x16 start = broadcast(static_cast<uint32_t>(buffers.weight_starts[row + r]));
    const f32x16 unit = broadcast(buffers.weight_units[row + r]);
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) {
      const f32x16 sum = from_int(whole_number(sums[0][r][v], sums[1][r][v]) + start);
      store(buffers.sums[row + r] + d + v * kLanes, sum * unit);
    }
  }
}

template <size_t R, class Tiles>
void add_all_values(Buffers& buffers, size_t row, Tiles tiles, Range range) {
  const size_t head_dim = buffers.head_dim;
  const auto load = [](const uint32_t* at) __attribute__((always_inline)) { return load_u32(at); };
  const auto load_rest = [=](const uint32_t* at) __attribute__((always_inline)) {
    return load_u32(at, head_dim % kLanes);
  };
  size_t d = 0;
  for (; d + kValueVectors * kLanes <= head_dim; d += kValueVectors * kLanes) {
    add_values<R, kValueVectors>(buffers, row, tiles, range, d, load);
  }
  for (; d + kLanes <= head_dim; d += kLanes) add_values<R, 1>(buffers, row, tiles, range, d, load);
  if (d < head_dim) add_values<R, 1>(buffers, row, tiles, range, d, load_rest);
}

// Blocks of rows one after another; the tiles of a span stay in the nearest cache.
template <class Tiles>
void visit(const ItemRows& item, Buffers& buffers, Range rows, const Span& span, float scale, RowSums* results) {
  const Tiles keys{span.keys(span.tiles.begin), span.words.keys};
  const Tiles values{span.values(span.tiles.begin), span.words.values};
  for_row_blocks<kRowsAtOnce>(rows, [&](Range block) {
    with_count<kRowsAtOnce>(block.end - block.begin, [&](auto number) __attribute__((always_inline)) {
      score_tiles<decltype(number)::value, kTilesAtOnce>(buffers, block.begin, keys, span.tiles, scale);
    });
  });
  for (size_t row = rows.begin; row < rows.end; ++row) weigh(item, buffers, row, span, results[row]);
  for_row_blocks<kRowsAtOnce>(rows, [&](Range block) {
    with_count<kRowsAtOnce>(block.end - block.begin, [&](auto number) __attribute__((always_inline)) {
      add_all_values<decltype(number)::value>(buffers, block.begin, values, span.tiles);
    });
  });
}

}  // namespace

void attention_int8(const AttentionArgs& args, const AttentionItem& item, const AttentionItem* next) {
  Buffers buffers;
  buffers.head_dim = args.head_dim;
  for (size_t row = 0; row < item.num_rows(); ++row) round_query(query_of(args, item, row), row, buffers);
  const TileWords words{(args.head_dim / 4 + 2) * kTileTokens, args.head_dim * kGroups};
  walk(args, item, next, words, [&](const ItemRows& rows, Range seeing, const Span& span, RowSums* results) {
    const auto visit_rows = seeing.end - seeing.begin <= kRowsAtOnce ? visit<Fetching> : visit<Cached>;
    visit_rows(rows, buffers, seeing, span, args.scale * kLog2E, results);
  });
}

}  // namespace headway::HEADWAY_ISA
