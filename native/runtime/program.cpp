#include "runtime/program.h"

#include <algorithm>

namespace headway {

size_t Program::add_buffer(size_t columns) {
  buffers_.push_back({columns, std::make_unique<AlignedBuffer<float>>(), nullptr});
  return buffers_.size() - 1;
}

// A stage over rows that writes `written`; `bind(stage, inputs)` sets its arguments before a pass.
template <class StageType, class BindStage>
void Program::add_rows(size_t written, BindStage bind) {
  auto stage = std::make_unique<StageType>(backend_.kernels());
  StageType* raw = stage.get();
  const bool picked = has_picked_;
  binds_.push_back([this, raw, picked, bind](const PassInputs& inputs) {
    raw->rows = num_rows(inputs, picked);
    bind(*raw, inputs);
  });
  last_rows_ = raw;
  last_written_ = written;
  stages_.push_back(std::move(stage));
}

void Program::embed(const EmbedArgs& args, size_t out) {
  add_rows<EmbedStage>(out, [=, this](EmbedStage& stage, const PassInputs& inputs) {
    stage.args = args;
    stage.args.token_ids = inputs.token_ids.data();
    stage.args.out = at(out);
  });
}

void Program::rms_norm(size_t x, const float* weight, float eps, size_t out) {
  add_rows<RmsNormStage>(out, [=, this](RmsNormStage& stage, const PassInputs&) {
    stage.args = {at(x), weight, eps, columns(x), at(out)};
  });
}

void Program::silu_mul(size_t gate_up, size_t out) {
  add_rows<SiluMulStage>(out, [=, this](SiluMulStage& stage, const PassInputs&) {
    stage.args = {at(gate_up), columns(out), at(out)};
  });
}

void Program::pick_logit_rows(size_t x, size_t out) {
  has_picked_ = true;
  add_rows<PickRowsStage>(out, [=, this](PickRowsStage& stage, const PassInputs& inputs) {
    stage.x = at(x);
    stage.picked = inputs.logit_rows.data();
    stage.width = columns(x);
    stage.out = at(out);
  });
}

// Made by the stage before, if that wrote x row by row; else by a stage of its own.
void Program::add_input(size_t x, const LinearWeight& weight) {
  if (weight.format == WeightFormat::kF32) return;
  if (last_rows_ == nullptr || last_written_ != x) {
    add_rows<InputStage>(x, [=, this](InputStage& stage, const PassInputs&) { stage.width = columns(x); });
  }
  binds_.push_back([=, this, stage = last_rows_](const PassInputs&) { stage->feed(input_, weight, at(x)); });
}

void Program::linear(size_t x, const LinearWeight& weight, size_t out, bool accumulate) {
  add_input(x, weight);
  auto stage = std::make_unique<LinearStage>(backend_.kernels(), weight, input_);
  binds_.push_back([=, this, stage = stage.get(), picked = has_picked_](const PassInputs& inputs) {
    stage->rows = num_rows(inputs, picked);
    stage->x = at(x);
    stage->out = at(out);
    stage->accumulate = accumulate;
  });
  stages_.push_back(std::move(stage));
  last_rows_ = nullptr;
}

void Program::rope_and_store(size_t qkv, size_t layer, const HeadSizes& sizes, bool rotates, const float* q_norm,
                             const float* k_norm, float eps) {
  add_rows<RopeStage>(qkv, [=, this](RopeStage& stage, const PassInputs& inputs) {
    const CachePlace& cache = inputs.cache;
    const RotationTables& tables = rotates ? inputs.rotation : inputs.identity;
    stage.args = {at(qkv), inputs.positions, inputs.kv_rows, tables.cos, tables.sin, q_norm, k_norm,
                  cache.layer_keys(layer), cache.layer_values(layer), sizes.num_heads, sizes.num_kv_heads,
                  sizes.head_dim, inputs.rotary_dim, eps, false, cache.kv_type};
  });
}

void Program::attention(size_t qkv, size_t layer, const HeadSizes& sizes, float scale, size_t window, size_t out) {
  auto stage = std::make_unique<AttentionStage>(backend_.kernels());
  binds_.push_back([=, this, stage = stage.get()](const PassInputs& inputs) {
    const CachePlace& cache = inputs.cache;
    stage->args = {at(qkv),
                   reinterpret_cast<const uint32_t*>(cache.layer_keys(layer)),
                   reinterpret_cast<const uint32_t*>(cache.layer_values(layer)),
                   inputs.positions,
                   inputs.block_tables,
                   at(out),
                   sizes.qkv_width(),
                   inputs.table_width,
                   sizes.num_heads,
                   sizes.num_kv_heads,
                   sizes.head_dim,
                   cache.tiles_per_block,
                   window,
                   scale,
                   cache.kv_type};
    stage->chunk_starts = inputs.chunk_starts;
  });
  stages_.push_back(std::move(stage));
  last_rows_ = nullptr;
}

size_t Program::num_rows(const PassInputs& inputs, bool picked) const {
  return picked ? inputs.logit_rows.size() : inputs.token_ids.size();
}

void Program::run(const PassInputs& inputs, size_t out) {
  // A row may be wanted more than once, so there may be more logit rows than tokens.
  const size_t rows = std::max(inputs.token_ids.size(), inputs.logit_rows.size());
  for (size_t i = 0; i < buffers_.size(); ++i) {
    Buffer& buffer = buffers_[i];
    buffer.at = i == out ? inputs.out : buffer.memory->at_least(rows * buffer.columns);
  }
  for (const Bind& bind : binds_) bind(inputs);
  order_.resize(stages_.size());
  for (size_t i = 0; i < stages_.size(); ++i) order_[i] = stages_[i].get();
  spent_ns_.resize(stages_.size(), 0);
  backend_.pool().run(order_, measures_time_ ? spent_ns_.data() : nullptr);
}

std::map<std::string, double> Program::take_times() {
  std::map<std::string, double> times;
  for (size_t i = 0; i < spent_ns_.size(); ++i) times[stages_[i]->name()] += static_cast<double>(spent_ns_[i]);
  spent_ns_.assign(spent_ns_.size(), 0);
  return times;
}

}  // namespace headway
