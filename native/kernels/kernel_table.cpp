// What a set of instructions computes with: all kernels, or those that gain by it beside a base's.
#include "kernels/kernel_table.h"

#include "kernels/simd/words.h"

#if defined(HEADWAY_BASE)
namespace headway::HEADWAY_BASE {
const KernelTable& kernel_table();
}
#endif

namespace headway::HEADWAY_ISA {
namespace {

#if defined(HEADWAY_BASE)
KernelTable own_kernels() {
  KernelTable table = HEADWAY_BASE::kernel_table();
#if defined(HEADWAY_TILES)
  table.linear_bf16 = linear_bf16;
  table.round_bf16 = round_bf16;
  table.bf16_parts = Bf16Pairs::kParts;
  table.linear_int8 = linear_int8;
#elif defined(HEADWAY_BF16_DOT)
  table.linear_bf16 = linear_bf16;
  table.round_bf16 = round_bf16;
  table.bf16_parts = Bf16Words::kParts;
  table.attention_bf16 = attention_bf16;
  table.linear_int8 = linear_int8;
  table.linear_int4 = linear_int4;
#else  // a dot product of bytes
  table.linear_int8 = linear_int8;
  table.linear_int4 = linear_int4;
  table.linear_grouped4 = linear_grouped4;
  table.linear_grouped8 = linear_grouped8;
  table.attention_int8 = attention_int8;
#endif
  return table;
}
#else
KernelTable own_kernels() {
  return {
      .linear_f32 = linear_f32,
      .linear_bf16 = linear_bf16,
      .round_bf16 = round_bf16,
      .bf16_parts = Bf16Words::kParts,
      .linear_int8 = linear_int8,
      .quantize = quantize,
      .quantize_row = quantize_row,
      .attention_f32 = attention_f32,
      .attention_bf16 = attention_bf16,
      .attention_int8 = attention_int8,
      .merge_attention = merge_attention,
      .rms_norm = rms_norm,
      .silu_mul = silu_mul,
      .dequantize = dequantize,
      .embed = embed,
      .rope_and_store = rope_and_store,
      .argmax = argmax,
      .log_softmax = log_softmax,
      .largest_of = largest_of,
      .bracket_masses = bracket_masses,
      .collect = collect,
      .widen = widen,
      .narrow = narrow,
      .linear_int4 = linear_int4,
      .linear_grouped4 = linear_grouped4,
      .linear_grouped8 = linear_grouped8,
      .quantize_int4 = quantize_int4,
      .quantize_grouped_row = quantize_grouped_row,
  };
}
#endif

}  // namespace

const KernelTable& kernel_table();

const KernelTable& kernel_table() {
  static const KernelTable table = own_kernels();
  return table;
}

}  // namespace headway::HEADWAY_ISA
