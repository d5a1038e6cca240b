#include "runtime/attention_plan.h"

#include <algorithm>

#include "runtime/partition.h"

namespace headway {
namespace {

size_t spans_of(const AttentionItem& item) { return item.end_span - item.first_span; }

auto kernel_for(const KernelTable& kernels, KvType type) {
  if (type == KvType::kInt8) return kernels.attention_int8;
  return type == KvType::kBfloat16 ? kernels.attention_bf16 : kernels.attention_f32;
}

}  // namespace

void AttentionPlan::make(const AttentionArgs& args, std::span<const int32_t> chunk_starts, size_t num_threads) {
  args_ = args;
  items_.clear();
  split_items_.clear();
  tasks_.clear();
  const size_t rows = chunk_starts.empty() ? 0 : static_cast<size_t>(chunk_starts.back()) * args.num_heads;
  item_rows_ = std::clamp(rows / (num_threads * kTasksPerThread), kMaxItemRows / 2, kMaxItemRows);
  for (size_t sequence = 0; sequence + 1 < chunk_starts.size(); ++sequence) {
    add_chunk(sequence, static_cast<size_t>(chunk_starts[sequence]), static_cast<size_t>(chunk_starts[sequence + 1]));
  }
  split_long_items(num_threads);
}

void AttentionPlan::add_chunk(size_t sequence, size_t begin, size_t end) {
  const size_t group = args_.num_heads / args_.num_kv_heads;
  const size_t heads = std::min(group, item_rows_), tokens = item_rows_ / heads;
  for (size_t token = begin; token < end; token += tokens) {
    const size_t count = std::min(tokens, end - token);
    const size_t first_span = first_visible(args_, token) / kSpanTokens;
    const size_t end_span = static_cast<size_t>(args_.positions[token + count - 1]) / kSpanTokens + 1;
    for (size_t kv_head = 0; kv_head < args_.num_kv_heads; ++kv_head) {
      for (size_t head = 0; head < group; head += heads) {
        items_.push_back({sequence, token, count, kv_head * group + head, std::min(heads, group - head), first_span,
                          end_span, nullptr});
      }
    }
  }
}

// So that no thread is left with a long sequence of its own while the others have nothing to do.
void AttentionPlan::split_long_items(size_t num_threads) {
  size_t total = 0, floats = 0;
  for (const AttentionItem& item : items_) total += spans_of(item);
  const size_t most = num_threads > 1 ? std::max<size_t>(1, total / (num_threads * kTasksPerThread)) : total;
  const auto floats_of = [&](const AttentionItem& item) {
    return spans_of(item) > most ? spans_of(item) * item.num_rows() * part_floats(args_.head_dim) : 0;
  };
  for (const AttentionItem& item : items_) floats += floats_of(item);
  float* parts = parts_.at_least(floats);
  for (const AttentionItem& item : items_) {
    if (spans_of(item) > most) {
      split(item, parts);
      parts += floats_of(item);
    } else {
      tasks_.push_back({item, kWhole});
    }
  }
  count_waiting();
}

void AttentionPlan::split(const AttentionItem& item, float* parts) {
  AttentionItem part = item;
  part.parts = parts;
  split_items_.push_back(part);
  for (; part.first_span < item.end_span; ++part.first_span) {
    part.end_span = part.first_span + 1;
    tasks_.push_back({part, split_items_.size() - 1});
    part.parts += part.num_rows() * part_floats(args_.head_dim);
  }
}

void AttentionPlan::count_waiting() {
  const size_t count = split_items_.size();
  if (count > max_waiting_) {
    waiting_ = std::make_unique<std::atomic<size_t>[]>(count);
    max_waiting_ = count;
  }
  for (size_t i = 0; i < count; ++i) waiting_[i].store(spans_of(split_items_[i]), std::memory_order_relaxed);
}

void AttentionPlan::run(const KernelTable& kernels, size_t task) {
  const Task& mine = tasks_[task];
  const AttentionItem* next = task + 1 < tasks_.size() ? &tasks_[task + 1].item : nullptr;
  kernel_for(kernels, args_.kv_type)(args_, mine.item, next);
  if (mine.whole == kWhole) return;
  if (waiting_[mine.whole].fetch_sub(1, std::memory_order_acq_rel) == 1) {
    kernels.merge_attention(args_, split_items_[mine.whole]);
  }
}

}  // namespace headway
