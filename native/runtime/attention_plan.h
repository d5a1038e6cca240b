// Which rows of a step's attention are one task, and whether several tasks share their spans.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kernel_table.h"
#include "runtime/aligned_buffer.h"

namespace headway {

class AttentionPlan {
 public:
  // Replaces the former plan, whose memory is used again; the arguments must stay as they are.
  void make(const AttentionArgs& args, std::span<const int32_t> chunk_starts, size_t num_threads);

  size_t num_tasks() const { return tasks_.size(); }

  // Each once, on any thread. Who computes the last span of a row merges them all.
  void run(const KernelTable& kernels, size_t task);

 private:
  struct Task {
    AttentionItem item;
    size_t whole;  // index of the item that it is a span of, or kWhole
  };
  static constexpr size_t kWhole = ~size_t{0};

  void add_chunk(size_t sequence, size_t begin, size_t end);
  void split_long_items(size_t num_threads);
  void split(const AttentionItem& item, float* parts);
  void count_waiting();

  AttentionArgs args_{};
  size_t item_rows_ = 0;  // at most: fewer where threads would be left without items
  std::vector<AttentionItem> items_, split_items_;
  std::vector<Task> tasks_;
  AlignedBuffer<float> parts_;
  std::unique_ptr<std::atomic<size_t>[]> waiting_;  // spans of each split item that are not done
  size_t max_waiting_ = 0;
};

}  // namespace headway
