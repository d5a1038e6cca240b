// The operations of a whole forward pass, put together once and run for any batch.
//
// Operands are buffers of the program, float32 [rows][columns] in memory that grows when a batch needs
// it. All arguments have been checked. Weights are the caller's, who keeps them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/aligned_buffer.h"
#include "runtime/backend.h"

namespace headway {

// One layer after the other in each of the two.
struct CachePlace {
  char *keys, *values;
  size_t key_bytes, value_bytes;  // of a layer
  KvType kv_type;
  size_t tiles_per_block;

  char* layer_keys(size_t layer) const { return keys + layer * key_bytes; }
  char* layer_values(size_t layer) const { return values + layer * value_bytes; }
};

struct RotationTables {
  const float *cos, *sin;
};

// What is different in every pass.
struct PassInputs {
  std::span<const int32_t> token_ids;  // [tokens]
  const int32_t* positions;
  const int64_t* kv_rows;
  std::span<const int32_t> chunk_starts, logit_rows;
  const int32_t* block_tables;
  size_t table_width;
  CachePlace cache;
  RotationTables rotation, identity;
  size_t rotary_dim;
  float* out;  // what the last operation writes, [logit rows][columns]
};

struct HeadSizes {
  size_t num_heads, num_kv_heads, head_dim;

  size_t qkv_width() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  bool operator==(const HeadSizes&) const = default;
};

class Program {
 public:
  explicit Program(Backend& backend) : backend_(backend) {}

  size_t add_buffer(size_t columns);
  size_t num_buffers() const { return buffers_.size(); }
  size_t columns(size_t buffer) const { return buffers_[buffer].columns; }

  void embed(const EmbedArgs& args, size_t out);  // but the token ids and where to
  void rms_norm(size_t x, const float* weight, float eps, size_t out);
  void linear(size_t x, const LinearWeight& weight, size_t out, bool accumulate);
  void rope_and_store(size_t qkv, size_t layer, const HeadSizes& sizes, bool rotates, const float* q_norm,
                      const float* k_norm, float eps);
  void attention(size_t qkv, size_t layer, const HeadSizes& sizes, float scale, size_t window, size_t out);
  void silu_mul(size_t gate_up, size_t out);
  // out = the rows of x whose logits are wanted. All that follows has those rows alone.
  void pick_logit_rows(size_t x, size_t out);

  // `inputs.out` takes the place of buffer `out`, which has no rows but the picked ones.
  void run(const PassInputs& inputs, size_t out);

  // Nanoseconds by kind of operation since the last call, where they are measured.
  void measure_time(bool wanted) { measures_time_ = wanted; }
  std::map<std::string, double> take_times();

 private:
  struct Buffer {
    size_t columns;
    std::unique_ptr<AlignedBuffer<float>> memory;
    float* at = nullptr;
  };
  using Bind = std::function<void(const PassInputs&)>;

  template <class StageType, class BindStage>
  void add_rows(size_t written, BindStage bind);
  void add_input(size_t x, const LinearWeight& weight);
  size_t num_rows(const PassInputs& inputs, bool picked) const;
  float* at(size_t buffer) const { return buffers_[buffer].at; }

  Backend& backend_;
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<Stage*> order_;
  std::vector<Bind> binds_;
  std::vector<uint64_t> spent_ns_;
  LinearInput input_;  // of the linear that comes next: one at a time is in use
  RowStage* last_rows_ = nullptr;  // the last stage, if it wrote `last_written_` row by row
  size_t last_written_ = 0;
  bool has_picked_ = false;
  bool measures_time_ = false;
};

}  // namespace headway
