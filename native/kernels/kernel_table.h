// Every kernel of one instruction set, as function pointers.
//
// A kernel works on a range of rows (or panels) and knows nothing of threads; who gets which range is
// decided in runtime/stages.cpp. Arguments have been checked in bind/; kernels trust them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_grouped.h"
#include "kernels/linear/linear_int4.h"
#include "kernels/linear/linear_int8.h"
#include "kernels/sample/sample.h"

namespace headway {

struct RmsNormArgs {
  const float *x, *weight;
  float eps;
  size_t width;
  float* out;
};

struct SiluMulArgs {
  const float* gate_up;
  size_t width;
  float* out;
};

struct EmbedArgs {
  const void* table;   // [vocabulary][width], or the panels of a packed weight (linear.h)
  size_t panel_steps;  // of a panel, 0: rows
  bool is_bf16;
  const int32_t* token_ids;
  size_t width;
  float* out;
};

struct RopeArgs {
  float* qkv;
  const int32_t* positions;
  const int64_t* kv_rows;
  const float *cos, *sin;        // [positions][rotary_dim / 2]
  const float *q_norm, *k_norm;  // [head_dim] or null
  void *keys, *values;           // of one layer
  size_t num_heads, num_kv_heads, head_dim, rotary_dim;
  float eps;
  bool interleaved;
  KvType kv_type;
};

struct ArgmaxArgs {
  const float* logits;
  size_t width;
  int32_t* out;
};

struct LogSoftmaxArgs {
  const float* logits;
  size_t width;
  float* out;
};

struct KernelTable {
  void (*linear_f32)(const LinearArgs&, Range rows, Range panels);
  void (*linear_bf16)(const LinearArgs&, Range rows, Range panels);
  void (*round_bf16)(const float* from, size_t count, uint32_t* to);  // a row of x for linear_bf16
  size_t bf16_parts;  // words that it makes of a pair
  void (*linear_int8)(const Int8LinearArgs&, Range rows, Range panels);
  float (*quantize)(const float* x, size_t count, int8_t* to);  // returns the scale
  void (*quantize_row)(const float* x, size_t count, const Int8Rows& rows, size_t row);
  // `next`, or null: the item whose keys to ask for towards the end.
  void (*attention_f32)(const AttentionArgs&, const AttentionItem&, const AttentionItem* next);
  void (*attention_bf16)(const AttentionArgs&, const AttentionItem&, const AttentionItem* next);
  void (*attention_int8)(const AttentionArgs&, const AttentionItem&, const AttentionItem* next);
  void (*merge_attention)(const AttentionArgs&, const AttentionItem&);
  void (*rms_norm)(const RmsNormArgs&, Range rows);
  void (*silu_mul)(const SiluMulArgs&, Range rows);
  void (*dequantize)(const BlockType&, const uint8_t* blocks, size_t count, float* out);
  void (*embed)(const EmbedArgs&, Range rows);
  void (*rope_and_store)(const RopeArgs&, Range rows);
  void (*argmax)(const ArgmaxArgs&, Range rows);
  void (*log_softmax)(const LogSoftmaxArgs&, Range rows);
  float (*largest_of)(const float* x, size_t width);
  void (*bracket_masses)(const SampleRow&, const BracketBounds&, double* masses);
  // The ids whose logits lie in [least, above), all from least on where `above` is NaN; how many.
  size_t (*collect)(const SampleRow&, float least, float above, const Candidates& out);
  void (*widen)(const uint16_t* from, size_t count, float* to);
  void (*narrow)(const float* from, size_t count, uint16_t* to);
  // `bytes`: room for those of int4_panels_at_once panels.
  void (*linear_int4)(const Int8LinearArgs&, Range rows, Range panels, uint32_t* bytes);
  void (*linear_grouped4)(const GroupedLinearArgs&, Range rows, Range panels);
  void (*linear_grouped8)(const GroupedLinearArgs&, Range rows, Range panels);
  void (*quantize_int4)(const float* rows, size_t num_rows, const Int4Rows& to);  // up to 16
  void (*quantize_grouped_row)(const float* x, size_t count, const GroupFormat&, const GroupedRows& rows, size_t row);
};

#if defined(HEADWAY_ISA)
namespace HEADWAY_ISA {
void linear_f32(const LinearArgs&, Range rows, Range panels);
void linear_bf16(const LinearArgs&, Range rows, Range panels);
void round_bf16(const float* from, size_t count, uint32_t* to);
void linear_int8(const Int8LinearArgs&, Range rows, Range panels);
float quantize(const float* x, size_t count, int8_t* to);
void quantize_row(const float* x, size_t count, const Int8Rows& rows, size_t row);
void attention_f32(const AttentionArgs&, const AttentionItem&, const AttentionItem* next);
void attention_bf16(const AttentionArgs&, const AttentionItem&, const AttentionItem* next);
void attention_int8(const AttentionArgs&, const AttentionItem&, const AttentionItem* next);
void merge_attention(const AttentionArgs&, const AttentionItem&);
void rms_norm(const RmsNormArgs&, Range rows);
void silu_mul(const SiluMulArgs&, Range rows);
void dequantize(const BlockType&, const uint8_t* blocks, size_t count, float* out);
void embed(const EmbedArgs&, Range rows);
void rope_and_store(const RopeArgs&, Range rows);
void argmax(const ArgmaxArgs&, Range rows);
void log_softmax(const LogSoftmaxArgs&, Range rows);
float largest_of(const float* x, size_t width);
void bracket_masses(const SampleRow&, const BracketBounds&, double* masses);
size_t collect(const SampleRow&, float least, float above, const Candidates& out);
void widen(const uint16_t* from, size_t count, float* to);
void narrow(const float* from, size_t count, uint16_t* to);
void linear_int4(const Int8LinearArgs&, Range rows, Range panels, uint32_t* bytes);
void linear_grouped4(const GroupedLinearArgs&, Range rows, Range panels);
void linear_grouped8(const GroupedLinearArgs&, Range rows, Range panels);
void quantize_int4(const float* rows, size_t num_rows, const Int4Rows& to);
void quantize_grouped_row(const float* x, size_t count, const GroupFormat&, const GroupedRows& rows, size_t row);
}  // namespace HEADWAY_ISA
#endif

}  // namespace headway
