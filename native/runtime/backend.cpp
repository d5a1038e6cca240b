#include "runtime/backend.h"

#include <algorithm>
#include <cstring>

#include "runtime/aligned_buffer.h"

namespace headway {

template <class Function>
void Backend::for_ranges(size_t count, size_t cost, const Function& function) {
  const size_t tasks = tasks_for(count, cost, num_threads());
  pool_.run(tasks, [&](size_t task) { function(piece(count, task, tasks)); });
}

void Backend::pack(const PackArgs& args) {
  for_ranges(panels_of(args.out_features), args.in_features * kPanelColumns, [&](Range panels) {
    for (size_t panel = panels.begin; panel < panels.end; ++panel) pack_panel(args, panel);
  });
}

void Backend::linear(const LinearCall& call) {
  thread_local LinearInput input;
  InputStage before(kernels_);
  before.rows = call.rows;
  before.width = call.weight.in_features;
  before.feed(input, call.weight, call.x);
  LinearStage product(kernels_, call.weight, input);
  product.rows = call.rows;
  product.x = call.x;
  product.out = call.out;
  product.accumulate = call.accumulate;
  Stage* const stages[] = {&before, &product};
  pool_.run(std::span(stages).subspan(call.weight.format == WeightFormat::kF32 ? 1 : 0));
}

void Backend::pack_int8(const WholePackArgs& args) {
  const size_t panel_words = int8_panel_words(int8_groups_of(args.in_features));
  for_ranges(panels_of(args.out_features), args.in_features * kPanelColumns, [&](Range panels) {
    thread_local AlignedBuffer<int8_t> buffer;
    int8_t* columns = buffer.at_least(kPanelColumns * args.in_features);
    for (size_t panel = panels.begin; panel < panels.end; ++panel) {
      const size_t first = panel * kPanelColumns, count = std::min(kPanelColumns, args.out_features - first);
      for (size_t i = 0; i < count; ++i) pack_int8_column(args, first + i, columns + i * args.in_features);
      pack_int8_panel(columns, count, args.in_features, args.packed + panel * panel_words);
    }
  });
}

void Backend::pack_int8_column(const WholePackArgs& args, size_t column, int8_t* bytes) {
  const size_t offset = column * args.in_features;
  const float* values = static_cast<const float*>(args.weight) + offset;
  if (args.from_bf16) {
    thread_local AlignedBuffer<float> buffer;
    float* wide = buffer.at_least(args.in_features);
    kernels_.widen(static_cast<const uint16_t*>(args.weight) + offset, args.in_features, wide);
    values = wide;
  }
  args.scales[column] = kernels_.quantize(values, args.in_features, bytes);
}

template <class RowStageType, class Args>
void Backend::run_rows(const Args& args, size_t rows) {
  RowStageType stage(kernels_);
  stage.args = args;
  stage.rows = rows;
  Stage* const stages[] = {&stage};
  pool_.run(stages);
}

void Backend::embed(const EmbedArgs& args, size_t rows) { run_rows<EmbedStage>(args, rows); }

void Backend::rms_norm(const RmsNormArgs& args, size_t rows) { run_rows<RmsNormStage>(args, rows); }

void Backend::silu_mul(const SiluMulArgs& args, size_t rows) { run_rows<SiluMulStage>(args, rows); }

void Backend::rope_and_store(const RopeArgs& args, size_t rows) { run_rows<RopeStage>(args, rows); }

void Backend::attention(const AttentionArgs& args, std::span<const int32_t> chunk_starts) {
  AttentionStage stage(kernels_);
  stage.args = args;
  stage.chunk_starts = chunk_starts;
  Stage* const stages[] = {&stage};
  pool_.run(stages);
}

void Backend::argmax(const ArgmaxArgs& args, size_t rows) {
  for_ranges(rows, args.width, [&](Range range) { kernels_.argmax(args, range); });
}

void Backend::log_softmax(const LogSoftmaxArgs& args, size_t rows) {
  for_ranges(rows, 4 * args.width, [&](Range range) { kernels_.log_softmax(args, range); });
}

void Backend::sample(const SampleCall& call) {
  for_ranges(call.rows, 8 * call.width, [&](Range range) {
    for (size_t row = range.begin; row < range.end; ++row) sample_row(call, row);
  });
}

void Backend::sample_row(const SampleCall& call, size_t row) {
  thread_local SampleScratch scratch;
  const float* logits = call.logits + row * call.width;
  const float temperature = call.temperature[row];
  const float largest = temperature == 0 ? 0 : kernels_.largest_of(logits, call.width);
  if (temperature == 0 || largest == -__builtin_inff()) {
    kernels_.argmax({logits, call.width, call.out + row}, {0, 1});
    return;
  }
  const SampleParams params{call.top_k[row], call.top_p[row], call.min_p[row], call.seeds[row], call.positions[row]};
  call.out[row] = select_token(kernels_, {logits, call.width, largest, 1.0f / temperature}, params, scratch);
}

void Backend::widen(const uint16_t* from, size_t count, float* to) {
  for_ranges(count, 1, [&](Range r) { kernels_.widen(from + r.begin, r.end - r.begin, to + r.begin); });
}

void Backend::narrow(const float* from, size_t count, uint16_t* to) {
  for_ranges(count, 1, [&](Range r) { kernels_.narrow(from + r.begin, r.end - r.begin, to + r.begin); });
}

void Backend::pack_grouped(const GroupedPackArgs& args) {
  for_ranges(panels_of(args.out_features), args.in_features * kPanelColumns, [&](Range panels) {
    for (size_t panel = panels.begin; panel < panels.end; ++panel) pack_grouped_panel(args, panel);
  });
}

void Backend::pack_int4(const WholePackArgs& args) {
  constexpr size_t kCost = 192;  // operations for each element
  for_ranges(panels_of(args.out_features), kCost * args.in_features * kPanelColumns, [&](Range panels) {
    for (size_t panel = panels.begin; panel < panels.end; ++panel) pack_int4_panel(args, panel);
  });
}

void Backend::pack_int4_panel(const WholePackArgs& args, size_t panel) {
  thread_local AlignedBuffer<float> wide;
  thread_local AlignedBuffer<uint8_t> bytes;
  constexpr size_t kRows = 16;  // at a time
  const size_t width = args.in_features, first = panel * kPanelColumns;
  const size_t count = std::min(kPanelColumns, args.out_features - first), groups = int4_groups_of(width);
  uint8_t* numbers = bytes.at_least(kPanelColumns * (width + 2 * groups));
  uint8_t *scales = numbers + kPanelColumns * width, *minimums = scales + kPanelColumns * groups;
  for (size_t row = 0; row < count; row += kRows) {
    const size_t offset = (first + row) * width, rows = std::min(kRows, count - row);
    const float* values = static_cast<const float*>(args.weight) + offset;
    if (args.from_bf16) {
      float* to = wide.at_least(kRows * width);
      kernels_.widen(static_cast<const uint16_t*>(args.weight) + offset, rows * width, to);
      values = to;
    }
    kernels_.quantize_int4(values, rows, {width, numbers + row * width, scales + row * groups, minimums + row * groups,
                                          args.scales + first + row});
  }
  headway::pack_int4_panel({width, numbers, scales, minimums, nullptr}, count,
                           args.packed + panel * int4_panel_words(width));
}

}  // namespace headway
