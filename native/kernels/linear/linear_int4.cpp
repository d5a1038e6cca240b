// Weights of 4 bits, as the bytes that they stand for.
//
// Few rows: the bytes go from registers into the sums; memory is the wall. Many rows: the bytes of some panels
// at a time, which stay in the L2 cache, then the product of int8.
#include "kernels/linear/linear_int4.h"

#include "kernels/kernel_table.h"
#include "kernels/linear/epilogue_int8.h"
#include "kernels/simd/int4_words.h"
#include "kernels/simd/int8_words.h"

namespace headway::HEADWAY_ISA {
namespace {

#if defined(__AVX512F__)
constexpr size_t kFewRows = 12;
#else
constexpr size_t kFewRows = 2;
#endif
constexpr size_t kVectors = kPanelColumns / kLanes;
constexpr size_t kHalfWords = kInt4Steps / 2 * kPanelColumns;  // the numbers of 32 along K
constexpr size_t kLinesAhead = 64;  // a panel is one stream; past the end of the weights a prefetch does nothing

// Where hardware follows streams, the first-level cache is asked only while there is next to nothing to compute.
template <size_t R>
HEADWAY_INLINE void fetch_ahead(const uint32_t* group) {
  HEADWAY_UNROLL
  for (size_t word = 0; word < kInt4GroupWords; word += kLanes) {
    const uint32_t* line = group + word + kLinesAhead * kLanes;
    kFollowsStreams && R > 1 ? prefetch_to_l2(line) : prefetch(line);
  }
}

// Each word of 64 along K of a panel, for R rows: use(its place among the words of int8, vector, its bytes).
template <size_t R, class Use>
HEADWAY_INLINE void widen_group(const uint32_t* group, const Use& use) {
  const uint32_t* pairs = group + 2 * kHalfWords;
  fetch_ahead<R>(group);
  HEADWAY_UNROLL
  for (size_t half = 0; half < 2; ++half) {
    Int4Scale scales[kVectors];
    HEADWAY_UNROLL
    for (size_t v = 0; v < kVectors; ++v) scales[v] = int4_scale(load_u32(pairs + v * kLanes), 16 * half);
    HEADWAY_UNROLL
    for (size_t step = half * kInt4Steps / 2; step < (half + 1) * kInt4Steps / 2; ++step) {
      HEADWAY_UNROLL
      for (size_t v = 0; v < kVectors; ++v) {
        const Int4Bytes bytes = widen_int4(load_u32(group + step * kPanelColumns + v * kLanes), scales[v]);
        use(2 * step, v, bytes.first);
        use(2 * step + 1, v, bytes.next);
      }
    }
  }
}

template <size_t R>
HEADWAY_INLINE void add_group(const Int8LinearArgs& args, size_t index, const uint32_t* w,
                              f32x16 (&totals)[R][kVectors]) {
  const uint32_t* x = args.x + index * kTileSteps;
  u32x16 sums[R][kVectors];
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < kVectors; ++v) sums[r][v] = broadcast(static_cast<uint32_t>(args.x_starts[index + r]));
  }
  widen_group<R>(w, [&](size_t step, size_t v, u32x16 bytes) __attribute__((always_inline)) {
    const Int8Weights weights = widen_int8(bytes);
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) sums[r][v] = multiply_add_int8(sums[r][v], x[r * kTileSteps + step], weights);
  });
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < kVectors; ++v) totals[r][v] = add_scaled(totals[r][v], sums[r][v], args.x_scales[index + r]);
  }
}

template <size_t R>
void block(const Int8LinearArgs& args, size_t row, size_t panel) {
  const uint32_t* w = args.weight + panel * args.groups * kInt4GroupWords;
  f32x16 totals[R][kVectors];
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < kVectors; ++v) totals[r][v] = broadcast(0.0f);
  }
  for (size_t group = 0; group < args.groups; ++group, w += kInt4GroupWords) {
    add_group<R>(args, group * args.rows + row, w, totals);
  }
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < kVectors; ++v) finish_int8(args, row + r, panel * kPanelColumns + v * kLanes, totals[r][v]);
  }
}

template <size_t R>
void few_rows(const Int8LinearArgs& args, Range rows, Range panels) {
  if constexpr (R > 1) {
    if (rows.end - rows.begin < R) return few_rows<R - 1>(args, rows, panels);
  }
  for (size_t panel = panels.begin; panel < panels.end; ++panel) block<R>(args, rows.begin, panel);
}

// Panels as in their layout for int8.
void widen(const Int8LinearArgs& args, Range panels, uint32_t* to) {
  const uint32_t* from = args.weight + panels.begin * args.groups * kInt4GroupWords;
  const uint32_t* past = args.weight + panels.end * args.groups * kInt4GroupWords;
  for (; from < past; from += kInt4GroupWords, to += int8_panel_words(1)) {
    widen_group<kFewRows + 1>(from, [to](size_t step, size_t v, u32x16 bytes) __attribute__((always_inline)) {
      store(to + step * kPanelColumns + v * kLanes, bytes);
    });
  }
}

void many_rows(const Int8LinearArgs& args, Range rows, Range panels, uint32_t* bytes) {
  const size_t some = int4_panels_at_once(args.groups);
  for (size_t first = panels.begin; first < panels.end; first += some) {
    const Range part{first, first + some < panels.end ? first + some : panels.end};
    widen(args, part, bytes);
    Int8LinearArgs widened = args;
    widened.weight = bytes - first * int8_panel_words(args.groups);  // panels keep their numbers
    linear_int8(widened, rows, part);
  }
}

}  // namespace

void linear_int4(const Int8LinearArgs& args, Range rows, Range panels, uint32_t* bytes) {
  const size_t count = rows.end - rows.begin;
  if (count == 0) return;
  if (count <= kFewRows) return few_rows<kFewRows>(args, rows, panels);
  many_rows(args, rows, panels, bytes);
}

}  // namespace headway::HEADWAY_ISA
