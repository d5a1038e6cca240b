// Rows that share keys are computed together, so that a tile is read once for all of them. A tile
// that a row sees only in part is done for that row alone: what it must not see is never multiplied,
// as it may be anything, NaN included.
#include "kernels/attention/attention.h"

#include "kernels/kernel_table.h"
#include "kernels/simd/exp.h"
#include "kernels/simd/words.h"

namespace headway::HEADWAY_ISA {
namespace {

#if defined(__AVX512F__)
constexpr size_t kRowsAtOnce = 4;
#else
constexpr size_t kRowsAtOnce = 2;
#endif
constexpr size_t kChains = 4;  // independent partial sums of a score, to hide the latency of adding

struct Row {
  alignas(64) uint32_t query[kMaxHeadDim];
  alignas(64) float sums[kMaxHeadDim];  // of weight * value
  alignas(64) uint32_t weights[kTileTokens];
  float largest, total;  // of the scores and weights so far
  size_t first, last;    // visible positions
  float* out;
};

struct Tile {
  const uint32_t *keys, *values;
  size_t first_position, head_dim;
  float scale;
};

// Scaled scores of R rows against the 16 keys of a tile. Step i goes to chain i mod kChains.
template <class Words, size_t R>
HEADWAY_INLINE void score(const Row* rows, const Tile& tile, f32x16* scores) {
  const uint32_t* keys = tile.keys;
  const size_t steps = tile.head_dim / Words::kPerWord;
  f32x16 chains[R][kChains];
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t c = 0; c < kChains; ++c) chains[r][c] = broadcast(0.0f);
  }
  const auto add_step = [&](size_t step, size_t chain) __attribute__((always_inline)) {
    const u32x16 key = load_u32(keys + step * kTileTokens);
    HEADWAY_UNROLL
    for (size_t part = 0; part < Words::kParts; ++part) {
      HEADWAY_UNROLL
      for (size_t r = 0; r < R; ++r)
        chains[r][chain] =
            Words::multiply_add(chains[r][chain], rows[r].query + step * Words::kParts, key, part);
    }
  };
  size_t step = 0;
  for (; step + kChains <= steps; step += kChains) {
    HEADWAY_UNROLL
    for (size_t c = 0; c < kChains; ++c) add_step(step + c, c);
  }
  HEADWAY_UNROLL
  for (size_t c = 0; c < kChains - 1; ++c) {
    if (step + c < steps) add_step(step + c, c);
  }
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r)
    scores[r] = ((chains[r][0] + chains[r][1]) + (chains[r][2] + chains[r][3])) * broadcast(tile.scale);
}

// Turn the scores of the visible keys into weights, and what was summed so far to the new maximum.
template <class Words>
HEADWAY_INLINE void reweigh(Row& row, f32x16 scores, u32x16 visible, size_t head_dim) {
  scores = select(visible, scores, broadcast(-__builtin_inff()));
  const float tile_largest = max_lane(scores);
  const float largest = tile_largest > row.largest ? tile_largest : row.largest;
  alignas(64) float correction[kLanes];
  store(correction, exp(broadcast(row.largest - largest)));
  f32x16 weights = select(visible, exp(scores - broadcast(largest)), broadcast(0.0f));
  weights = Words::rounded(weights);  // as they will be multiplied, so that they are summed as such
  row.largest = largest;
  row.total = row.total * correction[0] + sum_lanes(weights);
  const f32x16 factor = broadcast(correction[0]);
  for (size_t d = 0; d < head_dim; d += kLanes) store(row.sums + d, load_f32(row.sums + d) * factor);
  alignas(64) float lanes[kLanes];
  store(lanes, weights);
  Words::round(lanes, kTileTokens, row.weights);
}

// sums += weights * values over the words [begin, end) of a tile, in order.
template <size_t R, class Load, class Words>
HEADWAY_INLINE void add_values(Row* rows, size_t begin, size_t end, size_t d, Load load, Words) {
  f32x16 sums[R];
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) sums[r] = load_f32(rows[r].sums + d);
  for (size_t word = begin; word < end; ++word) {
    const u32x16 value = load(word);
    HEADWAY_UNROLL
    for (size_t part = 0; part < Words::kParts; ++part) {
      HEADWAY_UNROLL
      for (size_t r = 0; r < R; ++r)
        sums[r] = Words::multiply_add(sums[r], rows[r].weights + word * Words::kParts, value, part);
    }
  }
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) store(rows[r].sums + d, sums[r]);
}

template <class Words, size_t R>
void whole_tile(Row* rows, const Tile& tile) {
  const size_t head_dim = tile.head_dim;
  f32x16 scores[R];
  score<Words, R>(rows, tile, scores);
  for (size_t r = 0; r < R; ++r) reweigh<Words>(rows[r], scores[r], broadcast(~0u), head_dim);
  for (size_t d = 0; d < head_dim; d += kLanes) {
    const auto load = [&](size_t word) __attribute__((always_inline)) {
      return load_u32(tile.values + word * head_dim + d, head_dim - d);
    };
    add_values<R>(rows, 0, kTileTokens / Words::kPerWord, d, load, Words{});
  }
}

// One row, of which only the tokens low ... high of the tile are visible.
template <class Words>
void cut_tile(Row& row, const Tile& tile, size_t low, size_t high) {
  const size_t head_dim = tile.head_dim;
  f32x16 scores[1];
  score<Words, 1>(&row, tile, scores);
  const u32x16 lanes = lane_index();
  const u32x16 visible = (lanes >= broadcast(static_cast<uint32_t>(low))) &
                         (lanes <= broadcast(static_cast<uint32_t>(high)));
  reweigh<Words>(row, scores[0], visible, head_dim);
  const size_t first = low / Words::kPerWord, last = high / Words::kPerWord;
  const bool drop_even = Words::kPerWord == 2 && low % 2 == 1;
  const bool drop_odd = Words::kPerWord == 2 && high % 2 == 0;
  for (size_t d = 0; d < head_dim; d += kLanes) {
    const auto load = [&](size_t word) __attribute__((always_inline)) {
      uint32_t seen = ~0u;
      if (drop_even && word == first) seen &= 0xFFFF0000u;
      if (drop_odd && word == last) seen &= 0x0000FFFFu;
      return load_u32(tile.values + word * head_dim + d, head_dim - d) & broadcast(seen);
    };
    add_values<1>(&row, first, last + 1, d, load, Words{});
  }
}

bool sees_all(const Row& row, size_t tile_start) {
  return row.first <= tile_start && tile_start + kTileTokens - 1 <= row.last;
}

template <class Words>
void cut_tile_if_seen(Row& row, const Tile& tile) {
  const size_t start = tile.first_position, end = start + kTileTokens - 1;
  if (row.last < start || row.first > end) return;
  const size_t low = row.first > start ? row.first - start : 0;
  const size_t high = row.last < end ? row.last - start : kTileTokens - 1;
  cut_tile<Words>(row, tile, low, high);
}

template <class Words>
void visit_tile(Row* rows, size_t num_rows, const Tile& tile) {
  size_t r = 0;
  while (r < num_rows) {
    size_t whole = 0;
    while (whole < kRowsAtOnce && r + whole < num_rows && sees_all(rows[r + whole], tile.first_position))
      ++whole;
    switch (whole) {
      case 4: whole_tile<Words, 4>(rows + r, tile); break;
      case 3: whole_tile<Words, 3>(rows + r, tile); break;
      case 2: whole_tile<Words, 2>(rows + r, tile); break;
      case 1: whole_tile<Words, 1>(rows + r, tile); break;
      default: cut_tile_if_seen<Words>(rows[r], tile);
    }
    r += whole > 0 ? whole : 1;
  }
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

Tile tile_at(const AttentionArgs& args, const AttentionItem& item, size_t index, size_t head_words) {
  const int32_t* table = args.block_tables + item.sequence * args.table_width;
  const size_t block = static_cast<size_t>(table[index / args.tiles_per_block]);
  const size_t tile = block * args.tiles_per_block + index % args.tiles_per_block;
  const size_t kv_head = item.first_head / (args.num_heads / args.num_kv_heads);
  const size_t offset = (tile * args.num_kv_heads + kv_head) * head_words;
  return {args.keys + offset, args.values + offset, index * kTileTokens, args.head_dim, args.scale};
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
  const size_t head_words = kTileTokens * args.head_dim / Words::kPerWord;
  const size_t last_token = item.first_token + item.num_tokens - 1;
  const size_t last_tile = static_cast<size_t>(args.positions[last_token]) / kTileTokens;
  const size_t first_tile = first_visible(args, item.first_token) / kTileTokens;
  for (size_t index = first_tile; index <= last_tile; ++index) {
    visit_tile<Words>(rows, num_rows, tile_at(args, item, index, head_words));
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
