// Twin: src/headway/ops/reference/embed.py.
#include "kernels/bfloat16.h"
#include "kernels/kernel_table.h"

namespace headway::HEADWAY_ISA {
namespace {

// A row of the weight is a column of its panel.
const uint32_t* column_of(const EmbedArgs& args, size_t token) {
  const size_t panel = token / kPanelColumns;
  return static_cast<const uint32_t*>(args.table) + panel * args.panel_steps * kPanelColumns + token % kPanelColumns;
}

void from_panel(const EmbedArgs& args, size_t token, float* out) {
  const uint32_t* column = column_of(args, token);
  if (!args.is_bf16) {
    for (size_t step = 0; step < args.panel_steps; ++step) {
      out[step] = __builtin_bit_cast(float, column[step * kPanelColumns]);
    }
    return;
  }
  for (size_t step = 0; step < args.panel_steps; ++step) {
    const uint32_t pair = column[step * kPanelColumns];
    out[2 * step] = __builtin_bit_cast(float, pair << 16);
    out[2 * step + 1] = __builtin_bit_cast(float, pair & 0xFFFF0000u);
  }
}

void from_rows(const EmbedArgs& args, size_t token, float* out) {
  const size_t start = token * args.width;
  if (args.is_bf16) {
    widen(static_cast<const uint16_t*>(args.table) + start, args.width, out);
  } else {
    __builtin_memcpy(out, static_cast<const float*>(args.table) + start, args.width * sizeof *out);
  }
}

}  // namespace

void embed(const EmbedArgs& args, Range rows) {
  for (size_t row = rows.begin; row < rows.end; ++row) {
    const size_t token = static_cast<size_t>(args.token_ids[row]);
    float* out = args.out + row * args.width;
    args.panel_steps > 0 ? from_panel(args, token, out) : from_rows(args, token, out);
  }
}

void widen(const uint16_t* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] = from_bf16(from[i]);
}

void narrow(const float* from, size_t count, uint16_t* to) {
  for (size_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
}

}  // namespace headway::HEADWAY_ISA
