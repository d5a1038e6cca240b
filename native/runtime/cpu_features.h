// What this processor can do, and what the operating system lets us use of it.
#pragma once

namespace headway {

struct CpuFeatures {
  bool avx2 = false;         // with FMA
  bool avx_vnni = false;     // with AVX2
  bool avx512 = false;       // F, BW, DQ and VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;  // with VNNI
  bool slow_bf16_dot = false;  // the dot product of pairs is slower than two float32 FMAs
  bool amx = false;          // tiles of bfloat16 and int8, with permission to use them
};

// Asked once. Asking also requests the permission that Linux wants before the first tile is touched.
const CpuFeatures& cpu_features();

}  // namespace headway
