// bfloat16 on AMX tiles: up to 32 rows by the 32 columns of a panel, 16 pairs of K at a time.
//
// The tile shapes follow the rows at hand; a row's sum does not: a tile instruction treats each row
// apart, and K runs in whole tiles of 16 pairs from 0 up for every M. The hardware build of this file
// has been compiled but not run; what has been tested is the same source on emulated tiles.
#include "kernels/kernel_table.h"
#include "kernels/linear/epilogue.h"
#include "kernels/simd/amx_tile.h"
#include "kernels/simd/words.h"

namespace headway::HEADWAY_ISA {
namespace {

// Tiles 0-3 sum; 4 and 5 hold rows 0-15 and 16-31 of x; 6 and 7 columns 0-15 and 16-31 of the panel.
constexpr size_t kRowsPerBlock = 2 * kTileRows;
constexpr size_t kPanelBytes = kPanelColumns * sizeof(uint32_t);

template <bool kHasLower>
void multiply(const uint32_t* x, size_t x_stride, const uint32_t* panel, size_t steps, float sums[][kPanelColumns]) {
  const size_t x_bytes = x_stride * sizeof(uint32_t);
  tile_zero<0>();
  tile_zero<1>();
  if constexpr (kHasLower) tile_zero<2>();
  if constexpr (kHasLower) tile_zero<3>();
  for (size_t step = 0; step < steps; step += kTileSteps) {
    tile_load<6>(panel + step * kPanelColumns, kPanelBytes);
    tile_load<7>(panel + step * kPanelColumns + kLanes, kPanelBytes);
    tile_load<4>(x + step, x_bytes);
    tile_dot_bf16<0, 4, 6>();
    tile_dot_bf16<1, 4, 7>();
    if constexpr (kHasLower) {
      tile_load<5>(x + kTileRows * x_stride + step, x_bytes);
      tile_dot_bf16<2, 5, 6>();
      tile_dot_bf16<3, 5, 7>();
    }
  }
  tile_store<0>(sums[0], kPanelBytes);
  tile_store<1>(sums[0] + kLanes, kPanelBytes);
  if constexpr (kHasLower) tile_store<2>(sums[kTileRows], kPanelBytes);
  if constexpr (kHasLower) tile_store<3>(sums[kTileRows] + kLanes, kPanelBytes);
}

void row_block(const LinearArgs& args, size_t row, size_t num_rows, Range panels) {
  const size_t upper_rows = num_rows < kTileRows ? num_rows : kTileRows;
  const size_t lower_rows = num_rows - upper_rows;
  configure_linear_tiles(upper_rows, lower_rows);
  alignas(64) float sums[kRowsPerBlock][kPanelColumns];
  const uint32_t* x = args.x + row * args.x_stride;
  for (size_t panel = panels.begin; panel < panels.end; ++panel) {
    const uint32_t* words = args.weight + panel * args.steps * kPanelColumns;
    (lower_rows > 0 ? multiply<true> : multiply<false>)(x, args.x_stride, words, args.steps, sums);
    for (size_t r = 0; r < num_rows; ++r) {
      finish(args, row + r, panel * kPanelColumns, load_f32(sums[r]));
      finish(args, row + r, panel * kPanelColumns + kLanes, load_f32(sums[r] + kLanes));
    }
  }
}

}  // namespace

void linear_bf16(const LinearArgs& args, Range rows, Range panels) {
  // Panels outermost once they outgrow the cache would reload the tile shapes for each; a chunk of
  // panels that fits is the middle way.
  constexpr size_t kChunkBytes = 256 * 1024;
  const size_t fitting = kChunkBytes / (args.steps * kPanelBytes);
  const size_t chunk = fitting > 0 ? fitting : 1;
  for (size_t first = panels.begin; first < panels.end; first += chunk) {
    const Range part{first, first + chunk < panels.end ? first + chunk : panels.end};
    for (size_t row = rows.begin; row < rows.end; row += kRowsPerBlock) {
      const size_t left = rows.end - row;
      row_block(args, row, left < kRowsPerBlock ? left : kRowsPerBlock, part);
    }
  }
  tile_release();
}

void round_bf16(const float* from, size_t count, uint32_t* to) { Bf16Pairs::round(from, count, to); }

}  // namespace headway::HEADWAY_ISA
