// A fixed set of threads that share the tasks of one job at a time; the caller is one of them.
//
// Each thread has a run of neighbouring tasks, so that it streams memory of its own from one end to
// the other; who is done helps the others.
//
// Idle workers spin for some microseconds, since the next operation of a step follows at once, and
// then sleep. After fork() the child has no workers: there, every job runs on the caller alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace headway {

class ThreadPool {
 public:
  explicit ThreadPool(size_t num_threads);  // the caller included, at least 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t num_threads() const { return num_threads_; }

  // Call function(task) once for each task in [0, num_tasks), in any order, on any thread; returns
  // when all have returned. The function must not throw. Callers on several threads take turns.
  template <class Function>
  void run(size_t num_tasks, Function&& function) {
    using F = std::remove_reference_t<Function>;
    const auto call = [](void* object, size_t task) { (*static_cast<F*>(object))(task); };
    run_job({call, const_cast<void*>(static_cast<const void*>(&function)), num_tasks});
  }

 private:
  struct Job {
    void (*call)(void* object, size_t task);
    void* object;
    size_t num_tasks;
  };

  // Unclaimed tasks of one thread, in one word: the number of the job, so that a late worker cannot
  // claim from the next one by mistake; then the first task and the one after the last.
  struct alignas(64) Run {
    std::atomic<uint64_t> word{0};
  };

  void run_job(const Job& job);
  void run_tasks(const Job& job, size_t begin, size_t end);
  void publish(const Job& job, size_t begin, size_t end);
  void work(size_t thread);
  bool do_one_task(size_t thread);
  void sleep_until_signal(int seen);
  void wait_until_done();
  bool is_alone() const;

  const size_t num_threads_;
  const int fork_count_;
  std::mutex turn_;
  Job job_{};  // stays as it is while a claimed task is not done
  size_t first_task_ = 0;
  int num_wanted_ = 0;
  uint64_t job_number_ = 0;
  std::vector<Run> runs_;  // of each thread
  std::atomic<int> num_done_{0};
  std::atomic<int> signal_{0};
  std::atomic<bool> stopping_{false};
  std::unique_ptr<std::vector<std::thread>> workers_;
};

size_t num_allowed_cpus();

}  // namespace headway
