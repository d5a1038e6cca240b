// The tile operations that the AMX kernels use: in hardware, or emulated in plain C++.
//
// The emulation (HEADWAY_EMULATED_TILES) exists so that the kernel's indexing, padding and tails are
// tested on machines without AMX. It follows the order that Intel documents for TDPBF16PS: even and
// odd products are summed apart in float32 over the pairs, then added, then added to the accumulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if !defined(HEADWAY_EMULATED_TILES)
#include <immintrin.h>
#endif

namespace headway::HEADWAY_ISA {

inline constexpr size_t kTileRows = 16;
inline constexpr size_t kTileBytes = 64;  // of one row
inline constexpr int kTiles = 8;

// The memory image that LDTILECFG reads: palette 1, then bytes per row and rows of each tile.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, size_t num_rows) {
    row_bytes[tile] = kTileBytes;
    rows[tile] = static_cast<uint8_t>(num_rows);
  }
};
static_assert(sizeof(TileConfig) == 64);

#if defined(HEADWAY_EMULATED_TILES)

struct TileFile {
  size_t rows[kTiles];
  alignas(64) uint8_t bytes[kTiles][kTileRows][kTileBytes];
};
inline thread_local TileFile tile_file;

inline void tile_configure(const TileConfig& config) {
  for (int tile = 0; tile < kTiles; ++tile) tile_file.rows[tile] = config.rows[tile];
}
inline void tile_release() {}

template <int T>
inline void tile_zero() {
  std::memset(tile_file.bytes[T], 0, sizeof tile_file.bytes[T]);
}

template <int T>
inline void tile_load(const void* from, size_t stride_bytes) {
  for (size_t row = 0; row < tile_file.rows[T]; ++row) {
    std::memcpy(tile_file.bytes[T][row], static_cast<const char*>(from) + row * stride_bytes, kTileBytes);
  }
}

template <int T>
inline void tile_store(void* to, size_t stride_bytes) {
  for (size_t row = 0; row < tile_file.rows[T]; ++row) {
    std::memcpy(static_cast<char*>(to) + row * stride_bytes, tile_file.bytes[T][row], kTileBytes);
  }
}

inline float tile_bf16(const uint8_t* row, size_t index) {
  uint16_t half;
  std::memcpy(&half, row + 2 * index, sizeof half);
  return __builtin_bit_cast(float, static_cast<uint32_t>(half) << 16);
}

// Signed bytes of A times unsigned bytes of B; sums wrap in 32 bits.
template <int C, int A, int B>
inline void tile_dot_int8() {
  for (size_t m = 0; m < tile_file.rows[C]; ++m) {
    uint32_t sums[kTileRows];
    std::memcpy(sums, tile_file.bytes[C][m], kTileBytes);
    for (size_t word = 0; word < tile_file.rows[B]; ++word) {
      const uint8_t *a = tile_file.bytes[A][m] + 4 * word, *b = tile_file.bytes[B][word];
      for (size_t i = 0; i < 4 * kTileRows; ++i) {
        sums[i / 4] += static_cast<uint32_t>(static_cast<int8_t>(a[i % 4]) * b[i]);
      }
    }
    std::memcpy(tile_file.bytes[C][m], sums, kTileBytes);
  }
}

template <int C, int A, int B>
inline void tile_dot_bf16() {
  for (size_t m = 0; m < tile_file.rows[C]; ++m) {
    float sums[kTileRows];
    std::memcpy(sums, tile_file.bytes[C][m], kTileBytes);
    for (size_t n = 0; n < kTileRows; ++n) {
      float even = 0, odd = 0;
      for (size_t pair = 0; pair < tile_file.rows[B]; ++pair) {
        const uint8_t *a = tile_file.bytes[A][m], *b = tile_file.bytes[B][pair];
        even += tile_bf16(a, 2 * pair) * tile_bf16(b, 2 * n);
        odd += tile_bf16(a, 2 * pair + 1) * tile_bf16(b, 2 * n + 1);
      }
      sums[n] += even + odd;
    }
    std::memcpy(tile_file.bytes[C][m], sums, kTileBytes);
  }
}

#else

inline void tile_configure(const TileConfig& config) {
  // GCC 12 does not see that the intrinsic reads the whole structure: write it all out first.
  asm volatile("" ::"r"(&config) : "memory");
  _tile_loadconfig(&config);
}
inline void tile_release() { _tile_release(); }

// The intrinsics are macros that paste their tile numbers into the instruction.
template <int T>
inline void tile_zero() {
  static_assert(T < 4);
  if constexpr (T == 0) _tile_zero(0);
  if constexpr (T == 1) _tile_zero(1);
  if constexpr (T == 2) _tile_zero(2);
  if constexpr (T == 3) _tile_zero(3);
}

template <int T>
inline void tile_load(const void* from, size_t stride) {
  static_assert(T >= 4 && T < 8);
  if constexpr (T == 4) _tile_loadd(4, from, stride);
  if constexpr (T == 5) _tile_loadd(5, from, stride);
  if constexpr (T == 6) _tile_loadd(6, from, stride);
  if constexpr (T == 7) _tile_loadd(7, from, stride);
}

template <int T>
inline void tile_store(void* to, size_t stride) {
  static_assert(T < 4);
  if constexpr (T == 0) _tile_stored(0, to, stride);
  if constexpr (T == 1) _tile_stored(1, to, stride);
  if constexpr (T == 2) _tile_stored(2, to, stride);
  if constexpr (T == 3) _tile_stored(3, to, stride);
}

template <int C, int A, int B>
inline void tile_dot_bf16() {
  static_assert(C == 2 * (A - 4) + (B - 6), "accumulators 0-3 are rows 4, 5 times columns 6, 7");
  if constexpr (C == 0) _tile_dpbf16ps(0, 4, 6);
  if constexpr (C == 1) _tile_dpbf16ps(1, 4, 7);
  if constexpr (C == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (C == 3) _tile_dpbf16ps(3, 5, 7);
}

template <int C, int A, int B>
inline void tile_dot_int8() {
  static_assert(C == 2 * (A - 4) + (B - 6), "accumulators 0-3 are rows 4, 5 times columns 6, 7");
  if constexpr (C == 0) _tile_dpbsud(0, 4, 6);
  if constexpr (C == 1) _tile_dpbsud(1, 4, 7);
  if constexpr (C == 2) _tile_dpbsud(2, 5, 6);
  if constexpr (C == 3) _tile_dpbsud(3, 5, 7);
}

#endif

// Tiles 0-3 sum; 4 and 5 hold the upper and lower rows of x, 6 and 7 sixteen columns of a panel each.
inline void configure_linear_tiles(size_t upper_rows, size_t lower_rows) {
  TileConfig config;
  config.set(0, upper_rows);
  config.set(1, upper_rows);
  config.set(4, upper_rows);
  if (lower_rows > 0) {
    config.set(2, lower_rows);
    config.set(3, lower_rows);
    config.set(5, lower_rows);
  }
  config.set(6, kTileRows);
  config.set(7, kTileRows);
  tile_configure(config);
}

}  // namespace headway::HEADWAY_ISA
