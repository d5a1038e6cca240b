// Register blocks of R rows by P panels for weights with a scale for each group, one format to a source file.
//
// Few rows: memory is the wall, so several panels run side by side to keep enough loads in flight.
// Many rows: as many whole-number sums as there are registers; the totals wait on the stack.
#pragma once

#include "kernels/linear/epilogue.h"
#include "kernels/linear/linear_grouped.h"
#include "kernels/simd/float16.h"
#include "kernels/simd/int8_words.h"

namespace headway::HEADWAY_ISA {

#if defined(__AVX512F__)
inline constexpr size_t kGroupedMaxRows = 12, kGroupedFewRows = 6, kGroupedWidePanels = 4;
#else
inline constexpr size_t kGroupedMaxRows = 2, kGroupedFewRows = 1, kGroupedWidePanels = 1;
#endif
inline constexpr size_t kGroupedBytesAhead = 4096;

template <size_t kFormat>
struct GroupedBlock {
  static constexpr GroupFormat kForm = kGroupFormats[kFormat];
  static constexpr size_t kHalves = kPanelColumns / kLanes;
  static constexpr size_t kGroupWords = kForm.group_words(), kSteps = kForm.steps();
  static constexpr size_t kPerX = kInt8Group / kForm.group;  // groups that share a scale of x
  static constexpr size_t kPrefetched = kGroupWords * 4 / kLineBytes;

  // One group of P panels: `w` is its start in each. Added to the totals.
  template <size_t R, size_t P>
  HEADWAY_INLINE void add_group(const GroupedLinearArgs& args, size_t row, size_t group, const uint32_t* (&w)[P],
                                f32x16 (&totals)[R][P * kHalves]) {
    const size_t index = group / kPerX * args.rows + row;
    const uint32_t* x = args.x + index * kTileSteps + group % kPerX * (kForm.group / kPerInt8Word);
    u32x16 sums[R][P * kHalves];
    start<R, P>(args, group * args.rows + row, sums);
    HEADWAY_UNROLL
    for (size_t step = 0; step < kSteps; ++step) add_step<R, P>(x, step, w, sums);
    HEADWAY_UNROLL
    for (size_t p = 0; p < P; ++p) {
      HEADWAY_UNROLL
      for (size_t line = 0; line < kPrefetched; ++line) {
        prefetch(reinterpret_cast<const char*>(w[p]) + kGroupedBytesAhead + line * kLineBytes);
      }
      add_scaled_sums<R, P>(args, group * args.rows + row, index, p, w[p] + kSteps * kPanelColumns, sums, totals);
      w[p] += kGroupWords;
    }
  }

  template <size_t R, size_t P>
  HEADWAY_INLINE void start(const GroupedLinearArgs& args, size_t at, u32x16 (&sums)[R][P * kHalves]) {
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      const u32x16 first = broadcast(kForm.has_minimum ? 0u : static_cast<uint32_t>(args.x_starts[at + r]));
      HEADWAY_UNROLL
      for (size_t v = 0; v < P * kHalves; ++v) sums[r][v] = first;
    }
  }

  template <size_t R, size_t P>
  HEADWAY_INLINE void add_step(const uint32_t* x, size_t step, const uint32_t* (&w)[P],
                               u32x16 (&sums)[R][P * kHalves]) {
    u32x16 words[P * kHalves];
    HEADWAY_UNROLL
    for (size_t v = 0; v < P * kHalves; ++v) {
      words[v] = load_u32(w[v / kHalves] + step * kPanelColumns + v % kHalves * kLanes);
    }
    if constexpr (kForm.bits == 8) return add_numbers<R, P>(x + step, words, sums);
    const u32x16 low = broadcast(0x0F0F0F0Fu);
    u32x16 half[P * kHalves];
    HEADWAY_UNROLL
    for (size_t v = 0; v < P * kHalves; ++v) half[v] = words[v] & low;
    add_numbers<R, P>(x + 2 * step, half, sums);
    HEADWAY_UNROLL
    for (size_t v = 0; v < P * kHalves; ++v) half[v] = shift_right(words[v], 4) & low;
    add_numbers<R, P>(x + 2 * step + 1, half, sums);
  }

  // Row by row, so that a register with a word of x is free again after its row.
  template <size_t R, size_t P>
  HEADWAY_INLINE void add_numbers(const uint32_t* x, const u32x16 (&words)[P * kHalves],
                                  u32x16 (&sums)[R][P * kHalves]) {
    Int8Weights weights[P * kHalves];
    HEADWAY_UNROLL
    for (size_t v = 0; v < P * kHalves; ++v) weights[v] = widen_int8(words[v]);
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t v = 0; v < P * kHalves; ++v) {
        sums[r][v] = multiply_add_int8(sums[r][v], x[r * kTileSteps], weights[v]);
      }
    }
  }

  template <size_t R, size_t P>
  HEADWAY_INLINE void add_scaled_sums(const GroupedLinearArgs& args, size_t at, size_t index, size_t p,
                                      const uint32_t* words, const u32x16 (&sums)[R][P * kHalves],
                                      f32x16 (&totals)[R][P * kHalves]) {
    const uint16_t* scales = reinterpret_cast<const uint16_t*>(words);
    HEADWAY_UNROLL
    for (size_t half = 0; half < kHalves; ++half) {
      const size_t v = p * kHalves + half;
      const f32x16 scale = load_f16(scales + half * kLanes);
      HEADWAY_UNROLL
      for (size_t r = 0; r < R; ++r) {
        totals[r][v] = totals[r][v] + from_int(sums[r][v]) * scale * broadcast(args.x_scales[index + r]);
      }
      if constexpr (kForm.has_minimum) {
        const f32x16 minimum = load_f16(scales + kPanelColumns + half * kLanes);
        HEADWAY_UNROLL
        for (size_t r = 0; r < R; ++r) totals[r][v] = totals[r][v] + minimum * broadcast(args.x_sums[at + r]);
      }
    }
  }

  template <size_t R, size_t P>
  static void block(const GroupedLinearArgs& args, size_t row, size_t panel) {
    const uint32_t* w[P];
    f32x16 totals[R][P * kHalves];
    HEADWAY_UNROLL
    for (size_t p = 0; p < P; ++p) w[p] = args.weight + (panel + p) * args.groups * kGroupWords;
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t v = 0; v < P * kHalves; ++v) totals[r][v] = broadcast(0.0f);
    }
    for (size_t group = 0; group < args.groups; ++group) add_group<R, P>(args, row, group, w, totals);
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t v = 0; v < P * kHalves; ++v) {
        finish_total(args, row + r, panel * kPanelColumns + v * kLanes, totals[r][v]);
      }
    }
  }

  HEADWAY_INLINE void finish_total(const GroupedLinearArgs& args, size_t row, size_t column, f32x16 total) {
    if (column >= args.out_features) return;
    const size_t left = args.out_features - column, count = left < kLanes ? left : kLanes;
    finish(args, row, column, total * load_f32(args.factors + column, count, 0.0f));
  }

  template <size_t R>
  static void block_of(const GroupedLinearArgs& args, size_t rows, size_t row, size_t panel) {
    if (rows == R) return block<R, 1>(args, row, panel);
    if constexpr (R > 1) block_of<R - 1>(args, rows, row, panel);
  }

  // All rows in one block: wide blocks first, then whatever panels are left.
  template <size_t R>
  static void few_rows(const GroupedLinearArgs& args, size_t rows, size_t row, Range panels) {
    if constexpr (R > 1) {
      if (rows < R) return few_rows<R - 1>(args, rows, row, panels);
    }
    constexpr size_t kWide = R == 1 ? kGroupedWidePanels : (kGroupedWidePanels + 1) / 2;
    size_t panel = panels.begin;
    for (; panel + kWide <= panels.end; panel += kWide) block<R, kWide>(args, row, panel);
    for (; panel < panels.end; ++panel) block<R, 1>(args, row, panel);
  }

  // Rows in blocks of nearly equal size; a panel stays in the cache over all of them.
  static void many_rows(const GroupedLinearArgs& args, Range rows, Range panels) {
    const size_t count = rows.end - rows.begin;
    const size_t blocks = (count + kGroupedMaxRows - 1) / kGroupedMaxRows;
    for (size_t panel = panels.begin; panel < panels.end; ++panel) {
      for (size_t i = 0; i < blocks; ++i) {
        const size_t begin = rows.begin + count * i / blocks, end = rows.begin + count * (i + 1) / blocks;
        block_of<kGroupedMaxRows>(args, end - begin, begin, panel);
      }
    }
  }

  static void run(const GroupedLinearArgs& args, Range rows, Range panels) {
    const size_t count = rows.end - rows.begin;
    if (count == 0) return;
    if (count <= kGroupedFewRows) return few_rows<kGroupedFewRows>(args, count, rows.begin, panels);
    many_rows(args, rows, panels);
  }
};

}  // namespace headway::HEADWAY_ISA
