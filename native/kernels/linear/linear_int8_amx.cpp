// int8 on AMX tiles: up to 32 rows by the 32 columns of a panel, one group of x at a time.
//
// The tiles start from zero in each group; the start of a sum is added afterwards, which is the same,
// whole numbers being exact. The hardware build has been compiled but not run; what has been tested
// is the same source on emulated tiles.
#include <cstring>

#include "kernels/kernel_table.h"
#include "kernels/linear/epilogue_int8.h"
#include "kernels/simd/amx_tile.h"

namespace headway::HEADWAY_ISA {
namespace {

// Tiles 0-3 sum; 4 and 5 hold rows 0-15 and 16-31 of x; 6 and 7 columns 0-15 and 16-31 of the panel.
constexpr size_t kRowsPerBlock = 2 * kTileRows;
constexpr size_t kPanelBytes = kPanelColumns * sizeof(uint32_t);

struct BlockSums {
  alignas(64) uint32_t group[kRowsPerBlock][kPanelColumns];
  alignas(64) float total[kRowsPerBlock][kPanelColumns];
};

template <bool kHasLower>
void multiply_group(const uint32_t* x, const uint32_t* words, uint32_t sums[][kPanelColumns]) {
  tile_zero<0>();
  tile_zero<1>();
  tile_load<6>(words, kPanelBytes);
  tile_load<7>(words + kLanes, kPanelBytes);
  tile_load<4>(x, kTileBytes);
  tile_dot_int8<0, 4, 6>();
  tile_dot_int8<1, 4, 7>();
  tile_store<0>(sums[0], kPanelBytes);
  tile_store<1>(sums[0] + kLanes, kPanelBytes);
  if constexpr (kHasLower) {
    tile_zero<2>();
    tile_zero<3>();
    tile_load<5>(x + kTileRows * kTileSteps, kTileBytes);
    tile_dot_int8<2, 5, 6>();
    tile_dot_int8<3, 5, 7>();
    tile_store<2>(sums[kTileRows], kPanelBytes);
    tile_store<3>(sums[kTileRows] + kLanes, kPanelBytes);
  }
}

void add_group(const Int8LinearArgs& args, size_t index, size_t num_rows, BlockSums& sums) {
  for (size_t r = 0; r < num_rows; ++r) {
    const u32x16 start = broadcast(static_cast<uint32_t>(args.x_starts[index + r]));
    for (size_t half = 0; half < kPanelColumns; half += kLanes) {
      const u32x16 sum = load_u32(sums.group[r] + half) + start;
      store(sums.total[r] + half, add_scaled(load_f32(sums.total[r] + half), sum, args.x_scales[index + r]));
    }
  }
}

void row_block(const Int8LinearArgs& args, size_t row, size_t num_rows, Range panels) {
  const size_t upper_rows = num_rows < kTileRows ? num_rows : kTileRows;
  const size_t lower_rows = num_rows - upper_rows;
  configure_linear_tiles(upper_rows, lower_rows);
  BlockSums sums;
  for (size_t panel = panels.begin; panel < panels.end; ++panel) {
    std::memset(sums.total, 0, sizeof sums.total);
    for (size_t group = 0; group < args.groups; ++group) {
      const uint32_t* words = args.weight + panel * int8_panel_words(args.groups) + int8_panel_words(group);
      const size_t index = group * args.rows + row;
      (lower_rows > 0 ? multiply_group<true> : multiply_group<false>)(args.x + index * kTileSteps, words, sums.group);
      add_group(args, index, num_rows, sums);
    }
    for (size_t r = 0; r < num_rows; ++r) {
      finish_int8(args, row + r, panel * kPanelColumns, load_f32(sums.total[r]));
      finish_int8(args, row + r, panel * kPanelColumns + kLanes, load_f32(sums.total[r] + kLanes));
    }
  }
}

}  // namespace

void linear_int8(const Int8LinearArgs& args, Range rows, Range panels) {
  constexpr size_t kChunkBytes = 256 * 1024;  // as in linear_amx.cpp
  const size_t fitting = kChunkBytes / (args.groups * kTileSteps * kPanelBytes);
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

}  // namespace headway::HEADWAY_ISA
