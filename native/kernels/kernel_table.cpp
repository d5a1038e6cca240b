#include "kernels/kernel_table.h"

#include "kernels/simd/words.h"

namespace headway::HEADWAY_ISA {

#if defined(HEADWAY_TILES)
constexpr size_t kBf16Parts = Bf16Pairs::kParts;
#else
constexpr size_t kBf16Parts = Bf16Words::kParts;
#endif

extern const KernelTable kernel_table;
const KernelTable kernel_table = {
    .linear_f32 = linear_f32,
    .linear_bf16 = linear_bf16,
    .round_bf16 = round_bf16,
    .bf16_parts = kBf16Parts,
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

}  // namespace headway::HEADWAY_ISA
