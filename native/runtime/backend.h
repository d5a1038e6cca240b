// Kernels of one instruction set on one pool of threads, an operation at a time.
//
// No Python here. All arguments have been checked.
#pragma once

#include <span>

#include "runtime/dispatch.h"
#include "runtime/stages.h"
#include "runtime/threads.h"

namespace headway {

struct LinearCall {
  const float* x;  // [rows][in_features]
  LinearWeight weight;
  float* out;
  size_t rows;
  bool accumulate;
};

// Of a weight to be rounded to int8 or int4.
struct WholePackArgs {
  const void* weight;  // [out_features][in_features] float32 or bfloat16
  bool from_bf16;
  size_t out_features, in_features;
  uint32_t* packed;
  float* scales;  // [out_features]
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
  Backend(const IsaChoice& isa, size_t num_threads) : isa_(isa), kernels_(isa.kernels()), pool_(num_threads) {}

  const char* isa_name() const { return isa_.name; }
  size_t num_threads() const { return pool_.num_threads(); }
  const KernelTable& kernels() const { return kernels_; }
  ThreadPool& pool() { return pool_; }

  void pack(const PackArgs& args);
  void linear(const LinearCall& call);
  void pack_int8(const WholePackArgs& args);
  void embed(const EmbedArgs& args, size_t rows);
  void rms_norm(const RmsNormArgs& args, size_t rows);
  void silu_mul(const SiluMulArgs& args, size_t rows);
  void rope_and_store(const RopeArgs& args, size_t rows);
  void attention(const AttentionArgs& args, std::span<const int32_t> chunk_starts);
  void argmax(const ArgmaxArgs& args, size_t rows);
  void log_softmax(const LogSoftmaxArgs& args, size_t rows);
  void sample(const SampleCall& call);
  void widen(const uint16_t* from, size_t count, float* to);
  void narrow(const float* from, size_t count, uint16_t* to);
  void pack_grouped(const GroupedPackArgs& args);
  void pack_int4(const WholePackArgs& args);

 private:
  // function(Range) over pieces of [0, count), each worth a thread's while at `cost` operations an
  // element.
  template <class Function>
  void for_ranges(size_t count, size_t cost, const Function& function);
  template <class RowStageType, class Args>
  void run_rows(const Args& args, size_t rows);
  void pack_int8_column(const WholePackArgs& args, size_t column, int8_t* bytes);
  void pack_int4_panel(const WholePackArgs& args, size_t panel);
  void sample_row(const SampleCall& call, size_t row);

  const IsaChoice& isa_;
  const KernelTable& kernels_;
  ThreadPool pool_;
};

}  // namespace headway
