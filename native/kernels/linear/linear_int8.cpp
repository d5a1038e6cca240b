// Register blocks of R rows by V vectors of 16 columns for int8, on any instruction set without tiles.
//
// Few rows: memory is the wall, so several panels run side by side to keep enough loads in flight, or one,
// where hardware does that better alone.
// Many rows: as many whole-number sums as there are registers; the totals wait on the stack. Where a store of
// 64 bytes takes two cycles (AMD's Zen 4), half as many, and the totals are in registers too.
#include "kernels/linear/linear_int8.h"

#include "kernels/kernel_table.h"
#include "kernels/linear/epilogue_int8.h"
#include "kernels/linear/walk.h"
#include "kernels/simd/int8_words.h"

namespace headway::HEADWAY_ISA {
namespace {

#if defined(__AVX512F__)
constexpr size_t kMaxRows = kFollowsStreams ? 8 : 14, kFewRows = 6, kWideVectors = 8, kVectors = 2;
#else
constexpr size_t kMaxRows = 4, kFewRows = 2, kWideVectors = 2, kVectors = 1;
#endif
// The more rows, the fewer loads are in flight by themselves: at 4 to 16 rows, weights in memory,
// asking 4 KiB ahead is faster. Past the end of the weights a prefetch does nothing.
constexpr size_t kStepsAhead = 32;

// What a block asks memory for while it computes: its own streams, further on,
struct OwnStreams {
  HEADWAY_MEMBER void word(const uint32_t* at) const {
    if (!kFollowsStreams) prefetch(at + kStepsAhead * kPanelColumns);
  }
  HEADWAY_MEMBER void step() const {}
};

constexpr size_t wide_vectors(size_t rows) {
  if (kFollowsStreams) return rows <= 2 ? kVectorsPerPanel : 2 * kVectorsPerPanel;
  return rows == 1 ? kWideVectors : kWideVectors / 2;
}

const uint32_t* vector_start(const Int8LinearArgs& args, size_t vector) {
  const size_t panel = vector / kVectorsPerPanel, part = vector % kVectorsPerPanel;
  return args.weight + panel * int8_panel_words(args.groups) + part * kLanes;
}

// The whole-number sums of one group, added to the totals. `w` moves on to the next.
template <size_t R, size_t V, class Ahead>
HEADWAY_INLINE void add_group(const Int8LinearArgs& args, size_t index, const uint32_t* (&w)[V],
                              f32x16 (&totals)[R][V], Ahead& ahead) {
  const uint32_t* x = args.x + index * kTileSteps;
  const uint32_t* next_x = x + args.rows * kTileSteps;
  u32x16 sums[R][V];
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) prefetch(next_x + r * kTileSteps);
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) sums[r][v] = broadcast(static_cast<uint32_t>(args.x_starts[index + r]));
  }
  for (size_t step = 0; step < kTileSteps; ++step) {
    Int8Weights weights[V];
    ahead.step();
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) {
      weights[v] = widen_int8(load_u32(w[v] + step * kPanelColumns));
      ahead.word(w[v] + step * kPanelColumns);
    }
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t v = 0; v < V; ++v) sums[r][v] = multiply_add_int8(sums[r][v], x[r * kTileSteps + step], weights[v]);
    }
  }
  HEADWAY_UNROLL
  for (size_t v = 0; v < V; ++v) w[v] += kTileSteps * kPanelColumns;
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) totals[r][v] = add_scaled(totals[r][v], sums[r][v], args.x_scales[index + r]);
  }
}

template <size_t R, size_t V, class Ahead>
void block(const Int8LinearArgs& args, size_t row, size_t vector, Ahead ahead) {
  const uint32_t* w[V];
  f32x16 totals[R][V];
  HEADWAY_UNROLL
  for (size_t v = 0; v < V; ++v) w[v] = vector_start(args, vector + v);
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) totals[r][v] = broadcast(0.0f);
  }
  fetch_out<R, V>(args, row, vector);
  for (size_t group = 0; group < args.groups; ++group) {
    add_group<R, V>(args, group * args.rows + row, w, totals, ahead);
  }
  finish_int8_block<R, V>(args, row, vector, totals);
}

template <size_t R, size_t V>
void block_of(const Int8LinearArgs& args, size_t rows, size_t row, size_t vector, OtherPanels next) {
  if (rows == R) return block<R, V>(args, row, vector, next);
  if constexpr (R > 1) block_of<R - 1, V>(args, rows, row, vector, next);
}

// All rows in one block: wide blocks first, then whatever vectors are left.
template <size_t R>
void few_rows(const Int8LinearArgs& args, size_t rows, size_t row, Range vectors) {
  if constexpr (R > 1) {
    if (rows < R) return few_rows<R - 1>(args, rows, row, vectors);
  }
  constexpr size_t kWide = wide_vectors(R);
  size_t vector = vectors.begin;
  for (; vector + kWide <= vectors.end; vector += kWide) block<R, kWide>(args, row, vector, OwnStreams{});
  for (; vector < vectors.end; vector += kVectors) block<R, kVectors>(args, row, vector, OwnStreams{});
}

void many_rows(const Int8LinearArgs& args, Range rows, Range panels) {
  walk<kMaxRows, kVectors>(args.weight, args.groups * kTileSteps, rows, panels,
                           [&](size_t row, size_t num_rows, size_t vector, OtherPanels next) {
                             block_of<kMaxRows, kVectors>(args, num_rows, row, vector, next);
                           });
}

}  // namespace

void linear_int8(const Int8LinearArgs& args, Range rows, Range panels) {
  const Range vectors{panels.begin * kVectorsPerPanel, panels.end * kVectorsPerPanel};
  const size_t count = rows.end - rows.begin;
  if (count == 0) return;
  if (count <= kFewRows) return few_rows<kFewRows>(args, count, rows.begin, vectors);
  many_rows(args, rows, panels);
}

}  // namespace headway::HEADWAY_ISA
