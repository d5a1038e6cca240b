#include "runtime/stages.h"

#include <cstring>

namespace headway {
namespace {

constexpr size_t kMinRowsPerTask = 16;

}  // namespace

// `x` is what the stage writes, or, for an InputStage, what it reads.
void RowStage::feed(LinearInput& input, const LinearWeight& weight, const float* x) {
  input_ = &input;
  weight_ = weight;
  x_ = x;
}

size_t RowStage::prepare(size_t num_threads) {
  if (input_ != nullptr) input_->shape(kernels_, weight_, x_, rows);
  return tasks_ = tasks_for(rows, cost(), num_threads);
}

void RowStage::run(size_t task) {
  const Range range = piece(rows, task, tasks_);
  if (input_ == nullptr) return compute(range);
  for (size_t row = range.begin; row < range.end; ++row) {
    compute({row, row + 1});
    input_->put(row);
  }
}

void PickRowsStage::compute(Range range) {
  for (size_t row = range.begin; row < range.end; ++row) {
    std::memcpy(out + row * width, x + static_cast<size_t>(picked[row]) * width, width * sizeof *out);
  }
}

size_t LinearStage::panel_words() const {
  if (weight_.format == WeightFormat::kGrouped) return group_format().panel_words(weight_.in_features);
  if (weight_.format == WeightFormat::kInt8) return int8_panel_words(int8_groups_of(weight_.in_features));
  if (weight_.format == WeightFormat::kInt4) return int4_panel_words(weight_.in_features);
  return steps_of(weight_.in_features, weight_.format == WeightFormat::kBf16) * kPanelColumns;
}

size_t LinearStage::prepare(size_t num_threads) {
  if (rows == 0) return 0;
  if (weight_.format == WeightFormat::kF32) input_.shape(kernels_, weight_, x, rows);
  const size_t panels = panels_of(weight_.out_features);
  panel_tasks_ = tasks_for(panels, rows * panel_words(), num_threads);
  // Few panels and many threads: cut the rows, too.
  const size_t wanted = panel_tasks_ < num_threads ? num_threads / panel_tasks_ : 1;
  row_tasks_ = std::clamp<size_t>(rows / kMinRowsPerTask, 1, wanted);
  return panel_tasks_ * row_tasks_;
}

void LinearStage::run(size_t task) {
  const size_t panels = panels_of(weight_.out_features);
  compute(piece(rows, task % row_tasks_, row_tasks_), piece(panels, task / row_tasks_, panel_tasks_));
}

Memory LinearStage::first_read(size_t thread, size_t num_threads) const {
  const Range panels = piece(panels_of(weight_.out_features), thread, num_threads);
  const size_t panel_bytes = panel_words() * sizeof(uint32_t);
  return {reinterpret_cast<const char*>(weight_.words) + panels.begin * panel_bytes,
          (panels.end - panels.begin) * panel_bytes};
}

void LinearStage::compute_int8(Range range, Range panels) const {
  const Int8Rows& x = input_.int8_rows();
  const Int8LinearArgs args{input_.words(), x.scales, x.starts, weight_.words, weight_.scales, weight_.bias, out,
                            x.rows, int8_groups_of(weight_.in_features), weight_.out_features, accumulate};
  if (weight_.format == WeightFormat::kInt8) return kernels_.linear_int8(args, range, panels);
  thread_local AlignedBuffer<uint32_t> bytes;
  const size_t words = int4_panels_at_once(args.groups) * int8_panel_words(args.groups);
  kernels_.linear_int4(args, range, panels, bytes.at_least(words));
}

void LinearStage::compute_grouped(Range range, Range panels) const {
  const GroupedRows& x = input_.grouped_rows();
  const GroupedLinearArgs args{weight_.group_format, input_.words(), x.scales, x.starts, x.sums, weight_.words,
                               weight_.scales, weight_.bias, out, x.rows,
                               group_format().groups_of(weight_.in_features), weight_.out_features, accumulate};
  (group_format().bits == 4 ? kernels_.linear_grouped4 : kernels_.linear_grouped8)(args, range, panels);
}

void LinearStage::compute(Range range, Range panels) const {
  if (weight_.format == WeightFormat::kInt8 || weight_.format == WeightFormat::kInt4) return compute_int8(range, panels);
  if (weight_.format == WeightFormat::kGrouped) return compute_grouped(range, panels);
  const bool is_bf16 = weight_.format == WeightFormat::kBf16;
  const size_t steps = steps_of(weight_.in_features, is_bf16);
  thread_local AlignedBuffer<uint32_t> buffer;
  uint32_t* widened = is_bf16 ? buffer.at_least(widened_words(steps)) : nullptr;
  const LinearArgs args{input_.words(), weight_.words, weight_.bias, out, steps, weight_.out_features, accumulate,
                        input_.stride(), widened};
  (is_bf16 ? kernels_.linear_bf16 : kernels_.linear_f32)(args, range, panels);
}

size_t AttentionStage::prepare(size_t num_threads) {
  plan_.make(args, chunk_starts, num_threads);
  return tasks_ = std::min(plan_.num_tasks(), kMaxTasks);
}

void AttentionStage::run(size_t task) {
  const Range tasks = piece(plan_.num_tasks(), task, tasks_);
  for (size_t i = tasks.begin; i < tasks.end; ++i) plan_.run(kernels_, i);
}

}  // namespace headway
