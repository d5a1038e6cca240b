#include "runtime/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headway {
namespace {

constexpr int kSpins = 400;
constexpr int kTaskBits = 20;
constexpr uint64_t kTaskMask = (uint64_t{1} << kTaskBits) - 1;
constexpr size_t kMaxTasks = kTaskMask;
constexpr size_t kNothing = ~size_t{0};

// The next task of a run, or kNothing.
size_t claim(std::atomic<uint64_t>& word) {
  uint64_t run = word.load(std::memory_order_acquire);
  for (;;) {
    const uint64_t first = run >> kTaskBits & kTaskMask, past = run & kTaskMask;
    if (first >= past) return kNothing;
    const uint64_t rest = run + (uint64_t{1} << kTaskBits);
    if (word.compare_exchange_weak(run, rest, std::memory_order_acq_rel, std::memory_order_acquire)) return first;
  }
}

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

}  // namespace

ThreadPool::ThreadPool(size_t num_threads)
    : num_threads_(num_threads > 0 ? num_threads : 1),
      fork_count_(count_forks()),
      runs_(num_threads_),
      workers_(std::make_unique<std::vector<std::thread>>()) {
  for (size_t i = 1; i < num_threads_; ++i) workers_->emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  if (is_alone()) {
    // In a forked child the thread objects name threads of the parent: neither join nor destroy them.
    (void)workers_.release();
    return;
  }
  stopping_.store(true);
  signal_.fetch_add(1);
  signal_.notify_all();
  for (std::thread& worker : *workers_) worker.join();
}

bool ThreadPool::is_alone() const { return count_forks() != fork_count_; }

void ThreadPool::run_job(const Job& job) {
  if (job.num_tasks <= 1 || num_threads_ == 1 || is_alone()) {
    for (size_t task = 0; task < job.num_tasks; ++task) job.call(job.object, task);
    return;
  }
  const std::lock_guard<std::mutex> turn(turn_);
  for (size_t begin = 0; begin < job.num_tasks; begin += kMaxTasks) {
    run_tasks(job, begin, std::min(begin + kMaxTasks, job.num_tasks));
  }
}

void ThreadPool::run_tasks(const Job& job, size_t begin, size_t end) {
  publish(job, begin, end);
  signal_.fetch_add(1);
  signal_.notify_all();
  while (do_one_task(0)) {
  }
  wait_until_done();
}

void ThreadPool::publish(const Job& job, size_t begin, size_t end) {
  const size_t count = end - begin;
  job_ = job;
  first_task_ = begin;
  num_wanted_ = static_cast<int>(count);
  num_done_.store(0, std::memory_order_relaxed);
  ++job_number_;
  for (size_t i = 0; i < num_threads_; ++i) {
    const uint64_t first = count * i / num_threads_, past = count * (i + 1) / num_threads_;
    runs_[i].word.store(job_number_ << 2 * kTaskBits | first << kTaskBits | past, std::memory_order_release);
  }
}

// The next of its own, else of another thread: from the front, too, as a thread that has to be helped
// is often not running at all, and memory likes tasks in their order.
bool ThreadPool::do_one_task(size_t thread) {
  size_t task = kNothing;
  for (size_t i = 0; task == kNothing && i < num_threads_; ++i) {
    task = claim(runs_[(thread + i) % num_threads_].word);
  }
  if (task == kNothing) return false;
  const int wanted = num_wanted_;
  job_.call(job_.object, first_task_ + task);
  if (num_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == wanted) num_done_.notify_one();
  return true;
}

void ThreadPool::wait_until_done() {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (num_done_.load(std::memory_order_acquire) == num_wanted_) return;
    pause_briefly();
  }
  for (int done; (done = num_done_.load(std::memory_order_acquire)) != num_wanted_;) num_done_.wait(done);
}

void ThreadPool::work(size_t thread) {
  while (!stopping_.load(std::memory_order_relaxed)) {
    const int seen = signal_.load(std::memory_order_acquire);
    while (do_one_task(thread)) {
    }
    if (!stopping_.load()) sleep_until_signal(seen);
  }
}

void ThreadPool::sleep_until_signal(int seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (signal_.load(std::memory_order_acquire) != seen) return;
    pause_briefly();
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
