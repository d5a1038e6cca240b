#include "runtime/backend.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/aligned_buffer.h"

namespace headway {
namespace {

constexpr size_t kMinWork = 16 * 1024;     // elements or multiplications below which one thread is faster
constexpr size_t kTasksPerThread = 4;      // so that a thread that was interrupted delays less
constexpr size_t kMinRowsPerTask = 16;

size_t tasks_for(size_t count, size_t cost, size_t num_threads) {
  const size_t worthwhile = std::max<size_t>(1, count * std::max<size_t>(1, cost) / kMinWork);
  return std::min({count, worthwhile, num_threads * kTasksPerThread});
}

Range piece(size_t count, size_t index, size_t pieces) {
  return {count * index / pieces, count * (index + 1) / pieces};
}

}  // namespace

template <class Function>
void Backend::for_ranges(size_t count, size_t cost, const Function& function) {
  const size_t tasks = num_threads() == 1 ? std::min<size_t>(count, 1) : tasks_for(count, cost, num_threads());
  pool_.run(tasks, [&](size_t task) { function(piece(count, task, tasks)); });
}

void Backend::pack(const PackArgs& args) {
  for_ranges(panels_of(args.out_features), args.in_features * kPanelColumns, [&](Range panels) {
    for (size_t panel = panels.begin; panel < panels.end; ++panel) pack_panel(args, panel);
  });
}

void Backend::linear(const LinearCall& call) {
  if (call.rows == 0) return;
  const size_t steps = steps_of(call.in_features, call.is_bf16);
  const uint32_t* x = call.is_bf16 ? as_bf16_words(call.x, call.rows, call.in_features, steps)
                                   : reinterpret_cast<const uint32_t*>(call.x);
  const LinearArgs args{x, call.weight, call.bias, call.out, call.rows, steps, call.out_features, call.accumulate,
                        call.is_bf16 ? padded_stride(steps * kernels_.bf16_parts) : steps};
  const auto kernel = call.is_bf16 ? kernels_.linear_bf16 : kernels_.linear_f32;
  for_blocks(call.rows, call.out_features, steps, [&](Range rows, Range panels) { kernel(args, rows, panels); });
}

template <class Function>
void Backend::for_blocks(size_t rows, size_t out_features, size_t steps, const Function& function) {
  const size_t panels = panels_of(out_features);
  // Few rows read panels side by side: pieces are whole groups of them.
  const size_t group = rows <= kMaxFewRows ? kPanelsSideBySide : 1;
  const size_t groups = (panels + group - 1) / group;
  const size_t panel_tasks = tasks_for(groups, rows * steps * kPanelColumns * group, num_threads());
  // Few panels and many threads: cut the rows, too.
  const size_t wanted = panel_tasks < num_threads() ? num_threads() / panel_tasks : 1;
  const size_t row_tasks = std::clamp<size_t>(rows / kMinRowsPerTask, 1, wanted);
  pool_.run(panel_tasks * row_tasks, [&](size_t task) {
    const Range part = piece(groups, task / row_tasks, panel_tasks);
    function(piece(rows, task % row_tasks, row_tasks), {part.begin * group, std::min(part.end * group, panels)});
  });
}

void Backend::pack_int8(const Int8PackArgs& args) {
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

void Backend::pack_int8_column(const Int8PackArgs& args, size_t column, int8_t* bytes) {
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

void Backend::linear_int8(const Int8LinearCall& call) {
  if (call.rows == 0) return;
  const Int8Rows x = as_int8_rows(call.x, call.rows, call.in_features);
  const size_t groups = int8_groups_of(call.in_features);
  const Int8LinearArgs args{reinterpret_cast<const uint32_t*>(x.bytes), x.scales, x.starts, call.weight, call.scales,
                            call.bias, call.out, x.rows, groups, call.out_features, call.accumulate};
  for_blocks(call.rows, call.out_features, groups * kTileSteps,
             [&](Range rows, Range panels) { kernels_.linear_int8(args, rows, panels); });
}

// Valid until the next call on this thread.
Int8Rows Backend::as_int8_rows(const float* x, size_t rows, size_t in_features) {
  thread_local AlignedBuffer<int8_t> bytes;
  thread_local AlignedBuffer<float> scales;
  thread_local AlignedBuffer<int32_t> starts;
  const size_t places = int8_row_places(rows), groups = places * int8_groups_of(in_features);
  const Int8Rows result{bytes.at_least(groups * kInt8Group), scales.at_least(groups), starts.at_least(groups), places};
  for_ranges(rows, 2 * in_features, [&](Range range) {
    for (size_t row = range.begin; row < range.end; ++row) {
      kernels_.quantize_row(x + row * in_features, in_features, result, row);
    }
  });
  return result;
}

// The rows rounded to bfloat16 and filled up with zeros to `steps` pairs, as the kernel reads them.
// Valid until the next call on this thread.
const uint32_t* Backend::as_bf16_words(const float* x, size_t rows, size_t in_features, size_t steps) {
  thread_local AlignedBuffer<uint32_t> buffer;
  const size_t width = steps * kernels_.bf16_parts;
  const size_t used = kernels_.bf16_parts == 2 ? in_features : (in_features + 1) / 2;
  const size_t stride = padded_stride(width);
  uint32_t* words = buffer.at_least(rows * stride);
  for_ranges(rows, in_features, [&](Range range) {
    for (size_t row = range.begin; row < range.end; ++row) {
      uint32_t* to = words + row * stride;
      kernels_.round_bf16(x + row * in_features, in_features, to);
      std::memset(to + used, 0, (width - used) * sizeof *to);
    }
  });
  return words;
}

void Backend::embed(const EmbedArgs& args, size_t rows) {
  for_ranges(rows, args.width, [&](Range range) { kernels_.embed(args, range); });
}

void Backend::rms_norm(const RmsNormArgs& args, size_t rows) {
  for_ranges(rows, args.width, [&](Range range) { kernels_.rms_norm(args, range); });
}

void Backend::silu_mul(const SiluMulArgs& args, size_t rows) {
  for_ranges(rows, 4 * args.width, [&](Range range) { kernels_.silu_mul(args, range); });
}

void Backend::rope_and_store(const RopeArgs& args, size_t rows) {
  const size_t width = (args.num_heads + 2 * args.num_kv_heads) * args.head_dim;
  for_ranges(rows, 2 * width, [&](Range range) { kernels_.rope_and_store(args, range); });
}

void Backend::attention(const AttentionArgs& args, std::span<const int32_t> chunk_starts, bool is_bf16) {
  thread_local std::vector<AttentionItem> items;
  items.clear();
  const size_t group = args.num_heads / args.num_kv_heads;
  const size_t heads = std::min(group, kMaxItemRows), tokens = kMaxItemRows / heads;
  for (size_t sequence = 0; sequence + 1 < chunk_starts.size(); ++sequence) {
    const size_t begin = chunk_starts[sequence], end = chunk_starts[sequence + 1];
    for (size_t token = begin; token < end; token += tokens) {
      for (size_t kv_head = 0; kv_head < args.num_kv_heads; ++kv_head) {
        for (size_t head = 0; head < group; head += heads) {
          items.push_back({sequence, token, std::min(tokens, end - token), kv_head * group + head,
                           std::min(heads, group - head)});
        }
      }
    }
  }
  const auto kernel = is_bf16 ? kernels_.attention_bf16 : kernels_.attention_f32;
  const AttentionItem* all = items.data();
  pool_.run(items.size(), [&](size_t task) { kernel(args, all[task]); });
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
  const float largest = kernels_.largest_of(logits, call.width);
  if (call.temperature[row] == 0 || largest == -__builtin_inff()) {
    kernels_.argmax({logits, call.width, call.out + row}, {0, 1});
    return;
  }
  scratch.weights.resize(call.width);
  scratch.buckets.resize(call.width);
  kernels_.sample_weights({logits, call.width, largest, 1.0f / call.temperature[row], scratch.weights.data(),
                           scratch.buckets.data()});
  const SampleParams params{call.temperature[row], call.top_k[row], call.top_p[row],
                            call.min_p[row],       call.seeds[row], call.positions[row]};
  call.out[row] = select_token(logits, call.width, params, scratch);
}

void Backend::widen(const uint16_t* from, size_t count, float* to) {
  for_ranges(count, 1, [&](Range r) { kernels_.widen(from + r.begin, r.end - r.begin, to + r.begin); });
}

void Backend::narrow(const float* from, size_t count, uint16_t* to) {
  for_ranges(count, 1, [&](Range r) { kernels_.narrow(from + r.begin, r.end - r.begin, to + r.begin); });
}

}  // namespace headway
