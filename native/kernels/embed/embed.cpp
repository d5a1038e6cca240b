// Twin: src/headway/ops/reference/embed.py.
#include "kernels/bfloat16.h"
#include "kernels/kernel_table.h"

namespace headway::HEADWAY_ISA {

void embed(const EmbedArgs& args, Range rows) {
  for (size_t row = rows.begin; row < rows.end; ++row) {
    const size_t start = static_cast<size_t>(args.token_ids[row]) * args.width;
    float* out = args.out + row * args.width;
    if (args.is_bf16) {
      widen(static_cast<const uint16_t*>(args.table) + start, args.width, out);
    } else {
      __builtin_memcpy(out, static_cast<const float*>(args.table) + start, args.width * sizeof *out);
    }
  }
}

void widen(const uint16_t* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] = from_bf16(from[i]);
}

void narrow(const float* from, size_t count, uint16_t* to) {
  for (size_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
}

}  // namespace headway::HEADWAY_ISA
