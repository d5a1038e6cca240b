// A fixed set of threads that work through the stages of one pass at a time; the caller is one of them.
//
// Each thread has a run of neighbouring tasks, so that it streams memory of its own from one end to
// the other; who is done helps the others. Whoever does the last task of a stage starts the next one,
// and does a stage of one task by itself: between stages nothing waits for a thread that is not
// running. Who finds no task fetches what it will read next.
//
// Idle workers spin for some microseconds, since the next operation of a step follows at once, and
// then sleep. After fork() the child has no workers: there, every job runs on the caller alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "runtime/stage.h"

namespace headway {

class ThreadPool {
 public:
  explicit ThreadPool(size_t num_threads);  // the caller included, at least 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t num_threads() const { return num_threads_; }

  // Run the stages in order; returns when all are done. Callers on several threads take turns. What a
  // stage throws, on whatever thread, is thrown here once its tasks have ended; later stages do not run.
  // `spent_ns`, where given, has an entry per stage, to which its nanoseconds are added.
  void run(std::span<Stage* const> stages, uint64_t* spent_ns = nullptr);

  // Call function(task) once for each task in [0, num_tasks), in any order, on any thread; returns
  // when all have returned.
  template <class Function>
  void run(size_t num_tasks, Function&& function) {
    FunctionStage<std::remove_reference_t<Function>> stage(num_tasks, function);
    Stage* const stages[] = {&stage};
    run(stages);
  }

 private:
  static constexpr int kTaskBits = 20;
  static constexpr uint64_t kTaskMask = kMaxTasks;

  template <class Function>
  class FunctionStage final : public Stage {
   public:
    FunctionStage(size_t count, Function& function) : count_(count), function_(function) {}
    const char* name() const override { return "function"; }
    size_t prepare(size_t) override { return tasks_ = std::min(count_, kMaxTasks); }
    void run(size_t task) override {
      const size_t end = count_ * (task + 1) / tasks_;
      for (size_t i = count_ * task / tasks_; i < end; ++i) function_(i);
    }

   private:
    size_t count_, tasks_ = 0;
    Function& function_;
  };

  // Unclaimed tasks of one thread, in one word: the number of the stage, so that a late worker cannot
  // claim from the next one by mistake; then the first task and the one after the last.
  struct alignas(64) Run {
    std::atomic<uint64_t> word{0};
    std::atomic<const char*> next_read{nullptr};
    std::atomic<size_t> next_bytes{0};
  };

  void end_workers();
  void run_alone(std::span<Stage* const> stages);
  void start_next_stage(size_t thread);
  size_t prepare_next();
  void publish(size_t num_tasks);
  void run_task(size_t task);
  void note_failure();
  Memory next_read(size_t thread) const;
  void add_time();
  void work(size_t thread);
  bool do_one_task(size_t thread);
  void announce();
  void wait_for_signal(size_t thread, int seen);
  bool is_alone() const;

  const size_t num_threads_;
  const int fork_count_;
  std::mutex turn_;
  // Of the pass. Touched by whoever starts a stage, and by nobody else meanwhile.
  std::span<Stage* const> stages_;
  size_t next_stage_ = 0;
  uint64_t* spent_ns_ = nullptr;
  uint64_t stage_started_ns_ = 0;
  std::mutex failure_turn_;
  std::exception_ptr failure_;  // the first
  // Of the stage. They stay as they are while a claimed task is not done.
  Stage* stage_ = nullptr;
  size_t num_wanted_ = 0;
  uint64_t stage_number_ = 0;
  std::vector<Run> runs_;  // of each thread
  alignas(64) std::atomic<size_t> num_done_{0};
  alignas(64) std::atomic<int> signal_{0};
  std::atomic<bool> is_over_{true};
  std::atomic<bool> stopping_{false};
  std::unique_ptr<std::vector<std::thread>> workers_;
};

size_t num_allowed_cpus();

}  // namespace headway
