// Blocks of R rows by one panel for weights with a scale for each group.
//
// Whole-number sums fill the registers; at many rows the totals wait on the stack. One panel at a time even
// at one row: reading several side by side, as int8 does, was no faster where it was measured.
#pragma once

#include "kernels/linear/epilogue.h"
#include "kernels/linear/linear_grouped.h"
#include "kernels/simd/float16.h"
#include "kernels/simd/int8_words.h"

namespace headway::HEADWAY_ISA {

#if defined(__AVX512F__)
inline constexpr size_t kGroupedMaxRows = 12;
#else
inline constexpr size_t kGroupedMaxRows = 2;
#endif
// A panel is one stream, read from end to end; past the end of the weights a prefetch does nothing.
inline constexpr size_t kGroupedBytesAhead = 2048;

template <size_t kFormat>
struct GroupedBlock {
  static constexpr GroupFormat kForm = kGroupFormats[kFormat];
  static constexpr size_t kHalves = kPanelColumns / kLanes;
  static constexpr size_t kGroupWords = kForm.group_words(), kSteps = kForm.steps();
  static constexpr size_t kPerX = kInt8Group / kForm.group;  // groups that share a scale of x
  static constexpr size_t kLines = kGroupWords * 4 / kLineBytes;

  // One group, which begins at `w`, added to the totals.
  template <size_t R>
  HEADWAY_INLINE void add_group(const GroupedLinearArgs& args, size_t row, size_t group, const uint32_t* w,
                                f32x16 (&totals)[R][kHalves]) {
    const size_t index = group / kPerX * args.rows + row, at = group * args.rows + row;
    const uint32_t* x = args.x + index * kTileSteps + group % kPerX * (kForm.group / kPerInt8Word);
    HEADWAY_UNROLL
    for (size_t line = 0; line < kLines; ++line) {
      prefetch(reinterpret_cast<const char*>(w) + kGroupedBytesAhead + line * kLineBytes);
    }
    u32x16 sums[R][kHalves];
    start<R>(args, at, sums);
    HEADWAY_UNROLL
    for (size_t step = 0; step < kSteps; ++step) add_step<R>(x, w + step * kPanelColumns, step, sums);
    add_scaled_sums<R>(args, at, index, w + kSteps * kPanelColumns, sums, totals);
  }

  template <size_t R>
  HEADWAY_INLINE void start(const GroupedLinearArgs& args, size_t at, u32x16 (&sums)[R][kHalves]) {
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      const u32x16 first = broadcast(kForm.has_minimum ? 0u : static_cast<uint32_t>(args.x_starts[at + r]));
      HEADWAY_UNROLL
      for (size_t v = 0; v < kHalves; ++v) sums[r][v] = first;
    }
  }

  template <size_t R>
  HEADWAY_INLINE void add_step(const uint32_t* x, const uint32_t* w, size_t step,
                               u32x16 (&sums)[R][kHalves]) {
    u32x16 words[kHalves];
    HEADWAY_UNROLL
    for (size_t v = 0; v < kHalves; ++v) words[v] = load_u32(w + v * kLanes);
    if constexpr (kForm.bits == 8) return add_numbers<R>(x + step, words, sums);
    const u32x16 low = broadcast(0x0F0F0F0Fu);
    u32x16 half[kHalves];
    HEADWAY_UNROLL
    for (size_t v = 0; v < kHalves; ++v) half[v] = words[v] & low;
    add_numbers<R>(x + 2 * step, half, sums);
    HEADWAY_UNROLL
    for (size_t v = 0; v < kHalves; ++v) half[v] = shift_right(words[v], 4) & low;
    add_numbers<R>(x + 2 * step + 1, half, sums);
  }

  // Row by row, so that a register with a word of x is free again after its row.
  template <size_t R>
  HEADWAY_INLINE void add_numbers(const uint32_t* x, const u32x16 (&words)[kHalves],
                                  u32x16 (&sums)[R][kHalves]) {
    Int8Weights weights[kHalves];
    HEADWAY_UNROLL
    for (size_t v = 0; v < kHalves; ++v) weights[v] = widen_int8(words[v]);
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t v = 0; v < kHalves; ++v) {
        sums[r][v] = multiply_add_int8(sums[r][v], x[r * kTileSteps], weights[v]);
      }
    }
  }

  template <size_t R>
  HEADWAY_INLINE void add_scaled_sums(const GroupedLinearArgs& args, size_t at, size_t index,
                                      const uint32_t* words, const u32x16 (&sums)[R][kHalves],
                                      f32x16 (&totals)[R][kHalves]) {
    const uint16_t* scales = reinterpret_cast<const uint16_t*>(words);
    HEADWAY_UNROLL
    for (size_t v = 0; v < kHalves; ++v) {
      const f32x16 scale = load_f16(scales + v * kLanes);
      HEADWAY_UNROLL
      for (size_t r = 0; r < R; ++r) {
        totals[r][v] = totals[r][v] + from_int(sums[r][v]) * scale * broadcast(args.x_scales[index + r]);
      }
      if constexpr (kForm.has_minimum) {
        const f32x16 minimum = load_f16(scales + kPanelColumns + v * kLanes);
        HEADWAY_UNROLL
        for (size_t r = 0; r < R; ++r) totals[r][v] = totals[r][v] + minimum * broadcast(args.x_sums[at + r]);
      }
    }
  }

  template <size_t R>
  static void block(const GroupedLinearArgs& args, size_t row, size_t panel) {
    const uint32_t* w = args.weight + panel * args.groups * kGroupWords;
    f32x16 totals[R][kHalves];
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t v = 0; v < kHalves; ++v) totals[r][v] = broadcast(0.0f);
    }
    for (size_t group = 0; group < args.groups; ++group, w += kGroupWords) add_group<R>(args, row, group, w, totals);
    HEADWAY_UNROLL
    for (size_t r = 0; r < R; ++r) {
      HEADWAY_UNROLL
      for (size_t v = 0; v < kHalves; ++v) {
        finish_total(args, row + r, panel * kPanelColumns + v * kLanes, totals[r][v]);
      }
    }
  }

  HEADWAY_APART void finish_total(const GroupedLinearArgs& args, size_t row, size_t column, f32x16 total) {
    if (column >= args.out_features) return;
    const size_t left = args.out_features - column, count = left < kLanes ? left : kLanes;
    finish(args, row, column, total * load_f32(args.factors + column, count, 0.0f));
  }

  template <size_t R>
  static void block_of(const GroupedLinearArgs& args, size_t rows, size_t row, size_t panel) {
    if (rows == R) return block<R>(args, row, panel);
    if constexpr (R > 1) block_of<R - 1>(args, rows, row, panel);
  }

  // Rows in blocks of nearly equal size; a panel stays in the cache over all of them.
  static void run(const GroupedLinearArgs& args, Range rows, Range panels) {
    const size_t count = rows.end - rows.begin;
    const size_t blocks = (count + kGroupedMaxRows - 1) / kGroupedMaxRows;
    for (size_t panel = panels.begin; panel < panels.end; ++panel) {
      for (size_t i = 0; i < blocks; ++i) {
        const size_t begin = rows.begin + count * i / blocks, end = rows.begin + count * (i + 1) / blocks;
        block_of<kGroupedMaxRows>(args, end - begin, begin, panel);
      }
    }
  }
};

}  // namespace headway::HEADWAY_ISA
