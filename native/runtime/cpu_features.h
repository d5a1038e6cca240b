// What this processor can do, and what the operating system lets us use of it.
#pragma once

namespace headway {

struct CpuFeatures {
  bool avx2 = false;         // with FMA
  bool avx512 = false;       // F, BW, DQ and VL
  bool avx512_bf16 = false;
  bool slow_bf16_dot = false;  // the dot product of pairs is slower than two float32 FMAs
  bool amx_bf16 = false;     // tiles, with permission to use them
};

// Asked once. Asking also requests the permission that Linux wants before the first tile is touched.
const CpuFeatures& cpu_features();

}  // namespace headway
