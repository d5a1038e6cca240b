#include "runtime/threads.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headway {
namespace {

constexpr int kSpins = 400;       // after a pass: some 20 microseconds
constexpr int kPassSpins = 4000;  // within one, where work follows as soon as others are done
constexpr size_t kNothing = ~size_t{0};
constexpr size_t kStagesAhead = 4;
constexpr size_t kLine = 64, kLinesAtOnce = 8;
constexpr size_t kFetchedAhead = 512 << 10;  // a part of a core's second-level cache

std::atomic<int> forks_survived{0};

int count_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks_survived.fetch_add(1); });
  (void)registered;
  return forks_survived.load(std::memory_order_relaxed);
}

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// The first lines of `memory` on their way to the second-level cache; what is left.
Memory fetch_some(Memory memory) {
  const size_t count = std::min(kLinesAtOnce, memory.bytes / kLine);
  for (size_t i = 0; i < count; ++i) __builtin_prefetch(memory.start + i * kLine, 0, 2);
  return count == 0 ? Memory{} : Memory{memory.start + count * kLine, memory.bytes - count * kLine};
}

uint64_t now_ns() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

}  // namespace

ThreadPool::ThreadPool(size_t num_threads)
    : num_threads_(num_threads > 0 ? num_threads : 1),
      fork_count_(count_forks()),
      runs_(num_threads_),
      workers_(std::make_unique<std::vector<std::thread>>()) {
  try {
    for (size_t i = 1; i < num_threads_; ++i) workers_->emplace_back([this, i] { work(i); });
  } catch (...) {
    end_workers();  // destroyed while they run they would end the process
    throw;
  }
}

ThreadPool::~ThreadPool() {
  if (is_alone()) {
    // In a forked child the thread objects name threads of the parent: neither join nor destroy them.
    (void)workers_.release();
    return;
  }
  end_workers();
}

void ThreadPool::end_workers() {
  stopping_.store(true);
  announce();
  for (std::thread& worker : *workers_) worker.join();
}

bool ThreadPool::is_alone() const { return count_forks() != fork_count_; }

void ThreadPool::run(std::span<Stage* const> stages, uint64_t* spent_ns) {
  const bool alone = num_threads_ == 1 || is_alone();
  std::unique_lock<std::mutex> turn(turn_, std::defer_lock);
  if (!is_alone()) turn.lock();
  stages_ = stages;
  next_stage_ = 0;
  spent_ns_ = spent_ns;
  stage_started_ns_ = spent_ns != nullptr ? now_ns() : 0;
  if (alone) return run_alone(stages);
  is_over_.store(false, std::memory_order_relaxed);
  start_next_stage(0);
  while (!is_over_.load(std::memory_order_acquire)) {
    const int seen = signal_.load(std::memory_order_acquire);
    while (do_one_task(0)) {
    }
    if (!is_over_.load(std::memory_order_acquire)) wait_for_signal(0, seen);
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::run_alone(std::span<Stage* const> stages) {
  for (Stage* stage : stages) {
    add_time();
    ++next_stage_;
    const size_t tasks = stage->prepare(1);
    for (size_t task = 0; task < tasks; ++task) stage->run(task);
  }
  add_time();
}

// The thread that ended the stage before, alone, gets here.
void ThreadPool::start_next_stage(size_t thread) {
  while (next_stage_ < stages_.size() && !failure_) {
    add_time();
    const size_t num_tasks = prepare_next();
    if (num_tasks > 1) return publish(num_tasks);
    if (num_tasks == 1) run_task(0);
  }
  add_time();
  is_over_.store(true, std::memory_order_release);
  if (thread != 0) announce();  // the caller of the pass waits for it; nobody else has to know
}

// How many tasks the next stage has; none if there is no memory for them.
size_t ThreadPool::prepare_next() {
  stage_ = stages_[next_stage_++];
  try {
    return stage_->prepare(num_threads_);
  } catch (...) {
    note_failure();
    return 0;
  }
}

void ThreadPool::run_task(size_t task) {
  try {
    stage_->run(task);
  } catch (...) {
    note_failure();
  }
}

void ThreadPool::note_failure() {
  const std::lock_guard<std::mutex> turn(failure_turn_);
  if (!failure_) failure_ = std::current_exception();
}

void ThreadPool::publish(size_t num_tasks) {
  num_wanted_ = num_tasks;
  num_done_.store(0, std::memory_order_relaxed);
  ++stage_number_;
  for (size_t i = 0; i < num_threads_; ++i) {
    const Memory next = next_read(i);
    runs_[i].next_read.store(next.start, std::memory_order_relaxed);
    runs_[i].next_bytes.store(std::min(next.bytes, kFetchedAhead), std::memory_order_relaxed);
    const uint64_t first = num_tasks * i / num_threads_, past = num_tasks * (i + 1) / num_threads_;
    runs_[i].word.store(stage_number_ << 2 * kTaskBits | first << kTaskBits | past, std::memory_order_release);
  }
  announce();
}

Memory ThreadPool::next_read(size_t thread) const {
  const size_t end = std::min(stages_.size(), next_stage_ + kStagesAhead);
  for (size_t i = next_stage_; i < end; ++i) {
    const Memory found = stages_[i]->first_read(thread, num_threads_);
    if (found.bytes > 0) return found;
  }
  return {};
}

// The time since the last call goes to the stage that ran until now.
void ThreadPool::add_time() {
  if (spent_ns_ == nullptr) return;
  const uint64_t now = now_ns();
  if (next_stage_ > 0) spent_ns_[next_stage_ - 1] += now - stage_started_ns_;
  stage_started_ns_ = now;
}

// The next of its own, else of another thread: from the front, too, as a thread that has to be helped
// is often not running at all, and memory likes tasks in their order.
bool ThreadPool::do_one_task(size_t thread) {
  size_t task = kNothing;
  for (size_t i = 0; task == kNothing && i < num_threads_; ++i) {
    std::atomic<uint64_t>& word = runs_[(thread + i) % num_threads_].word;
    uint64_t run = word.load(std::memory_order_acquire);
    while (task == kNothing && (run >> kTaskBits & kTaskMask) < (run & kTaskMask)) {
      const uint64_t rest = run + (uint64_t{1} << kTaskBits);
      if (word.compare_exchange_weak(run, rest, std::memory_order_acq_rel, std::memory_order_acquire)) {
        task = run >> kTaskBits & kTaskMask;
      }
    }
  }
  if (task == kNothing) return false;
  const size_t wanted = num_wanted_;
  run_task(task);
  if (num_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == wanted) start_next_stage(thread);
  return true;
}

void ThreadPool::work(size_t thread) {
  while (!stopping_.load(std::memory_order_relaxed)) {
    const int seen = signal_.load(std::memory_order_acquire);
    while (do_one_task(thread)) {
    }
    if (!stopping_.load()) wait_for_signal(thread, seen);
  }
}

void ThreadPool::announce() {
  signal_.fetch_add(1);
  signal_.notify_all();
}

void ThreadPool::wait_for_signal(size_t thread, int seen) {
  const Run& own = runs_[thread];
  Memory next{own.next_read.load(std::memory_order_relaxed), own.next_bytes.load(std::memory_order_relaxed)};
  const int spins = is_over_.load(std::memory_order_relaxed) ? kSpins : kPassSpins;
  for (int spin = 0; spin < spins; ++spin) {
    if (signal_.load(std::memory_order_acquire) != seen) return;
    if (next.bytes > 0) {
      next = fetch_some(next);
    } else {
      pause_briefly();
    }
  }
  signal_.wait(seen);
}

size_t num_allowed_cpus() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    return static_cast<size_t>(CPU_COUNT(&allowed));
  }
  const size_t all = std::thread::hardware_concurrency();
  return all > 0 ? all : 1;
}

}  // namespace headway
