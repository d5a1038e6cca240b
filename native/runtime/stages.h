// The operations as stages: who computes which rows, panels or attention items.
//
// Fields are set before a pass; all have been checked. Rows, panels and items are independent of each
// other, so how they are cut never changes a result.
#pragma once

#include <span>
#include <vector>

#include "runtime/linear_input.h"
#include "runtime/partition.h"
#include "runtime/stage.h"

namespace headway {

struct LinearWeight {
  WeightFormat format;
  const uint32_t* words;
  const float *scales, *bias;  // scales: of int8; bias: or null
  size_t in_features, out_features;
};

// A stage over independent rows. It may feed the linear that comes next: make its input row by row,
// while the row is in the nearest cache.
class RowStage : public Stage {
 public:
  explicit RowStage(const KernelTable& kernels) : kernels_(kernels) {}

  size_t prepare(size_t num_threads) override;
  void run(size_t task) override;

  void feed(LinearInput& input, const LinearWeight& weight, const float* x);

  size_t rows = 0;

 protected:
  virtual size_t cost() const = 0;  // of a row, in operations on an element
  virtual void compute(Range range) = 0;

  const KernelTable& kernels_;

 private:
  LinearInput* input_ = nullptr;
  WeightFormat format_ = WeightFormat::kF32;
  const float* x_ = nullptr;
  size_t in_features_ = 0;
  size_t tasks_ = 1;
};

class EmbedStage final : public RowStage {
 public:
  using RowStage::RowStage;
  const char* name() const override { return "embed"; }
  EmbedArgs args{};

 protected:
  size_t cost() const override { return args.width; }
  void compute(Range range) override { kernels_.embed(args, range); }
};

class RmsNormStage final : public RowStage {
 public:
  using RowStage::RowStage;
  const char* name() const override { return "rms_norm"; }
  RmsNormArgs args{};

 protected:
  size_t cost() const override { return args.width; }
  void compute(Range range) override { kernels_.rms_norm(args, range); }
};

class SiluMulStage final : public RowStage {
 public:
  using RowStage::RowStage;
  const char* name() const override { return "silu_mul"; }
  SiluMulArgs args{};

 protected:
  size_t cost() const override { return 4 * args.width; }
  void compute(Range range) override { kernels_.silu_mul(args, range); }
};

class RopeStage final : public RowStage {
 public:
  using RowStage::RowStage;
  const char* name() const override { return "rope_and_store"; }
  RopeArgs args{};

 protected:
  size_t cost() const override { return 2 * (args.num_heads + 2 * args.num_kv_heads) * args.head_dim; }
  void compute(Range range) override { kernels_.rope_and_store(args, range); }
};

// out[i] = x[picked[i]]
class PickRowsStage final : public RowStage {
 public:
  using RowStage::RowStage;
  const char* name() const override { return "pick_rows"; }
  const float* x = nullptr;
  const int32_t* picked = nullptr;
  size_t width = 0;
  float* out = nullptr;

 protected:
  size_t cost() const override { return width; }
  void compute(Range range) override;
};

// x for a linear whose input no stage before could make.
class InputStage final : public RowStage {
 public:
  using RowStage::RowStage;
  const char* name() const override { return "input"; }
  size_t width = 0;

 protected:
  size_t cost() const override { return 2 * width; }
  void compute(Range) override {}
};

// out = input @ weight.T + bias, or out += that.
class LinearStage final : public Stage {
 public:
  LinearStage(const KernelTable& kernels, const LinearWeight& weight, LinearInput& input)
      : kernels_(kernels), weight_(weight), input_(input) {}
  const char* name() const override { return "linear"; }
  size_t prepare(size_t num_threads) override;
  void run(size_t task) override;
  Memory first_read(size_t thread, size_t num_threads) const override;

  const LinearWeight& weight() const { return weight_; }

  size_t rows = 0;
  const float* x = nullptr;  // read where it lies if the weight is float32
  float* out = nullptr;
  bool accumulate = false;

 private:
  size_t panel_words() const;
  void compute(Range rows, Range panels) const;

  const KernelTable& kernels_;
  const LinearWeight weight_;
  LinearInput& input_;
  size_t panel_tasks_ = 1, row_tasks_ = 1;
};

class AttentionStage final : public Stage {
 public:
  explicit AttentionStage(const KernelTable& kernels) : kernels_(kernels) {}
  const char* name() const override { return "paged_attention"; }
  size_t prepare(size_t num_threads) override;
  void run(size_t task) override;

  AttentionArgs args{};
  std::span<const int32_t> chunk_starts;
  bool is_bf16 = false;

 private:
  void add_items(size_t sequence, size_t token, size_t count);

  const KernelTable& kernels_;
  std::vector<AttentionItem> items_;
  size_t tasks_ = 0;
};

}  // namespace headway
