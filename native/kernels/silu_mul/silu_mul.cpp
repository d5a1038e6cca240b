// Twin: src/headway/ops/reference/silu_mul.py.
#include "kernels/kernel_table.h"
#include "kernels/simd/exp.h"

namespace headway::HEADWAY_ISA {

void silu_mul(const SiluMulArgs& args, Range rows) {
  const f32x16 zero = broadcast(0.0f), one = broadcast(1.0f);
  for (size_t row = rows.begin; row < rows.end; ++row) {
    const float *gate = args.gate_up + row * 2 * args.width, *up = gate + args.width;
    float* out = args.out + row * args.width;
    for (size_t i = 0; i < args.width; i += kLanes) {
      const size_t count = args.width - i;
      const f32x16 g = load_f32(gate + i, count, 0.0f);
      store(out + i, g / (one + exp(zero - g)) * load_f32(up + i, count, 0.0f), count);
    }
  }
}

}  // namespace headway::HEADWAY_ISA
