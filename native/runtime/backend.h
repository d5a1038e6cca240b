// Kernels of one instruction set on one pool of threads: who computes which rows.
//
// No Python here. All arguments have been checked. How work is cut never changes a result: rows,
// panels and attention items are independent of each other.
#pragma once

#include <span>

#include "runtime/dispatch.h"
#include "runtime/threads.h"

namespace headway {

struct LinearCall {
  const float* x;  // [rows][in_features]
  const uint32_t* weight;
  bool is_bf16;
  const float* bias;
  float* out;
  size_t rows, in_features, out_features;
  bool accumulate;
};

struct Int8LinearCall {
  const float* x;  // [rows][in_features]
  const uint32_t* weight;
  const float *scales, *bias;
  float* out;
  size_t rows, in_features, out_features;
  bool accumulate;
};

struct Int8PackArgs {
  const void* weight;  // [out_features][in_features] float32 or bfloat16
  bool from_bf16;
  size_t out_features, in_features;
  uint32_t* packed;
  float* scales;  // [out_features]
};

struct GroupedLinearCall {
  size_t format;   // index into kGroupFormats
  const float* x;  // [rows][in_features]
  const uint32_t* weight;
  const float *factors, *bias;
  float* out;
  size_t rows, in_features, out_features;
  bool accumulate;
};

struct SampleCall {
  const float* logits;
  size_t rows, width;
  const float *temperature, *top_p, *min_p;
  const int32_t* top_k;
  const uint64_t* seeds;
  const int64_t* positions;
  int32_t* out;
};

class Backend {
 public:
  Backend(const IsaChoice& isa, size_t num_threads) : isa_(isa), kernels_(*isa.kernels), pool_(num_threads) {}

  const char* isa_name() const { return isa_.name; }
  size_t num_threads() const { return pool_.num_threads(); }

  void pack(const PackArgs& args);
  void linear(const LinearCall& call);
  void pack_int8(const Int8PackArgs& args);
  void linear_int8(const Int8LinearCall& call);
  void embed(const EmbedArgs& args, size_t rows);
  void rms_norm(const RmsNormArgs& args, size_t rows);
  void silu_mul(const SiluMulArgs& args, size_t rows);
  void rope_and_store(const RopeArgs& args, size_t rows);
  void attention(const AttentionArgs& args, std::span<const int32_t> chunk_starts, bool is_bf16);
  void argmax(const ArgmaxArgs& args, size_t rows);
  void log_softmax(const LogSoftmaxArgs& args, size_t rows);
  void sample(const SampleCall& call);
  void widen(const uint16_t* from, size_t count, float* to);
  void narrow(const float* from, size_t count, uint16_t* to);
  void pack_grouped(const GroupedPackArgs& args);
  void pack_int4(const Int4PackArgs& args);
  void linear_grouped(const GroupedLinearCall& call);

 private:
  // function(Range) over pieces of [0, count), each worth a thread's while at `cost` operations a
  // piece element.
  template <class Function>
  void for_ranges(size_t count, size_t cost, const Function& function);
  // function(Range rows, Range panels) over pieces of a product.
  template <class Function>
  void for_blocks(size_t rows, size_t out_features, size_t steps, const Function& function);
  void pack_int8_column(const Int8PackArgs& args, size_t column, int8_t* bytes);
  Int8Rows as_int8_rows(const float* x, size_t rows, size_t in_features);
  void pack_int4_panel(const Int4PackArgs& args, size_t panel);
  GroupedRows as_grouped_rows(const float* x, size_t rows, size_t in_features, const GroupFormat& format);
  const uint32_t* as_bf16_words(const float* x, size_t rows, size_t in_features, size_t steps);
  void sample_row(const SampleCall& call, size_t row);

  const IsaChoice& isa_;
  const KernelTable& kernels_;
  ThreadPool pool_;
};

}  // namespace headway
