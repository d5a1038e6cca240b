// What every kind of cache shares: which tiles a row sees, softmax over one span, and the merging of spans.
//
// Scores are in units of log2: the factor log2(e) is in the scale.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/kernel_table.h"
#include "kernels/simd/exp.h"

namespace headway::HEADWAY_ISA {

inline constexpr float kLog2E = 1.44269504f;

struct Visible {
  size_t first, last;  // positions
};

HEADWAY_INLINE size_t tiles_up_to(size_t start, size_t position) {
  const size_t tiles = position > start ? (position - start) / kTileTokens : 0;
  return tiles < kSpanTiles ? tiles : kSpanTiles;
}

// Tiles of the span at `start` of which the row sees something, and those that it sees whole.
HEADWAY_INLINE Range seen_tiles(Visible row, size_t start) {
  return {tiles_up_to(start, row.first), tiles_up_to(start, row.last + kTileTokens)};
}
HEADWAY_INLINE Range whole_tiles(Visible row, size_t start) {
  const Range whole{tiles_up_to(start, row.first + kTileTokens - 1), tiles_up_to(start, row.last + 1)};
  return whole.begin < whole.end ? whole : Range{whole.end, whole.end};
}

// Which tokens of the tile at position `from` the row sees.
HEADWAY_INLINE Range seen_tokens(Visible row, size_t from) {
  const size_t begin = row.first > from ? row.first - from : 0;
  const size_t end = row.last + 1 > from ? row.last + 1 - from : 0;
  return {begin, end < kTileTokens ? end : kTileTokens};
}

HEADWAY_INLINE u32x16 visible_lanes(Visible row, size_t from) {
  const size_t low = row.first > from ? row.first - from : 0, high = row.last - from;
  const u32x16 lanes = lane_index();
  return (lanes >= broadcast(static_cast<uint32_t>(low))) &
         (lanes <= broadcast(static_cast<uint32_t>(high < kTileTokens ? high : kTileTokens)));
}

// Hides what the row does not see of its first and last tile.
HEADWAY_INLINE void mask_scores(Visible row, size_t start, Range seen, float* scores) {
  const f32x16 nothing = broadcast(-__builtin_inff());
  for (const size_t tile : {seen.begin, seen.end - 1}) {
    float* place = scores + tile * kTileTokens;
    store(place, select(visible_lanes(row, start + tile * kTileTokens), load_f32(place), nothing));
  }
}

HEADWAY_INLINE float largest_score(const float* scores, Range seen) {
  f32x16 largest = load_f32(scores + seen.begin * kTileTokens);
  for (size_t tile = seen.begin + 1; tile < seen.end; ++tile) {
    largest = larger(load_f32(scores + tile * kTileTokens), largest);
  }
  return max_lane(largest);
}

// One row's sums over all spans so far.
struct RowSums {
  float largest, total;
  float* sums;  // of weight * value
};

// What comes from a later span joins. Lanes past head_dim are neither read nor written.
HEADWAY_INLINE void merge(RowSums& row, const RowSums& span, size_t head_dim) {
  const float largest = span.largest > row.largest ? span.largest : row.largest;
  const f32x16 old_factor = exp2(broadcast(row.largest - largest));
  const f32x16 new_factor = exp2(broadcast(span.largest - largest));
  row.largest = largest;
  row.total = first_lane(fma(broadcast(row.total), old_factor, broadcast(span.total) * new_factor));
  for (size_t d = 0; d < head_dim; d += kLanes) {
    const size_t left = head_dim - d;
    const f32x16 added = load_f32(span.sums + d, left, 0.0f) * new_factor;
    store(row.sums + d, fma(load_f32(row.sums + d, left, 0.0f), old_factor, added), left);
  }
}

HEADWAY_INLINE void divide_by_total(const RowSums& row, size_t head_dim) {
  const f32x16 factor = broadcast(1.0f / row.total);
  for (size_t d = 0; d < head_dim; d += kLanes) {
    store(row.sums + d, load_f32(row.sums + d, head_dim - d, 0.0f) * factor, head_dim - d);
  }
}

// Where the rows of an item are, and what they have so far; the sums lie in the output.
struct ItemRows {
  size_t num_rows = 0, num_heads = 0, head_dim = 0;
  Visible visible[kMaxItemRows];
  bool started[kMaxItemRows];
  RowSums sums[kMaxItemRows];

  ItemRows(const AttentionArgs& args, const AttentionItem& item)
      : num_rows(item.num_rows()), num_heads(item.num_heads), head_dim(args.head_dim) {
    for (size_t token = 0; token < item.num_tokens; ++token) {
      const size_t index = item.first_token + token;
      const Visible seen{first_visible(args, index), static_cast<size_t>(args.positions[index])};
      for (size_t head = 0; head < num_heads; ++head) {
        const size_t row = token * num_heads + head;
        visible[row] = seen;
        started[row] = false;
        sums[row].sums = args.out + (index * args.num_heads + item.first_head + head) * head_dim;
      }
    }
  }

  HEADWAY_MEMBER void add(size_t row, const RowSums& span) {
    if (started[row]) return merge(sums[row], span, head_dim);
    started[row] = true;
    sums[row].largest = span.largest;
    sums[row].total = span.total;
    __builtin_memcpy(sums[row].sums, span.sums, head_dim * sizeof(float));
  }

  void finish() const {
    for (size_t row = 0; row < num_rows; ++row) divide_by_total(sums[row], head_dim);
  }
};

// Tokens are in order of position, so the rows that see something of a span are neighbours.
inline Range rows_that_see(const ItemRows& rows, size_t start) {
  const auto sees = [&](size_t row) {
    const Visible visible = rows.visible[row];
    return visible.first < start + kSpanTokens && start <= visible.last;
  };
  Range range{0, rows.num_rows};
  while (range.begin < range.end && !sees(range.begin)) range.begin += rows.num_heads;
  while (range.begin < range.end && !sees(range.end - 1)) range.end -= rows.num_heads;
  return range;
}

}  // namespace headway::HEADWAY_ISA
