#include "runtime/threads.h"

#include <pthread.h>
#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headway {
namespace {

constexpr int kSpins = 400;
constexpr uint64_t kTaskMask = 0xFFFFFFFFu;

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
      workers_(std::make_unique<std::vector<std::thread>>()) {
  for (size_t i = 1; i < num_threads_; ++i) workers_->emplace_back([this] { work(); });
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
  job_ = job;
  num_done_.store(0, std::memory_order_relaxed);
  const uint64_t number = (claims_.load(std::memory_order_relaxed) >> 32) + 1;
  claims_.store(number << 32 | job.num_tasks, std::memory_order_release);
  signal_.fetch_add(1);
  signal_.notify_all();
  while (do_one_task()) {
  }
  wait_until_done();
}

bool ThreadPool::do_one_task() {
  uint64_t claims = claims_.load(std::memory_order_acquire);
  do {
    if ((claims & kTaskMask) == 0) return false;
  } while (!claims_.compare_exchange_weak(claims, claims - 1, std::memory_order_acq_rel));
  const int num_tasks = static_cast<int>(job_.num_tasks);
  job_.call(job_.object, job_.num_tasks - (claims & kTaskMask));
  if (num_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_tasks) num_done_.notify_one();
  return true;
}

void ThreadPool::wait_until_done() {
  const int wanted = static_cast<int>(job_.num_tasks);
  for (int spin = 0; spin < kSpins; ++spin) {
    if (num_done_.load(std::memory_order_acquire) == wanted) return;
    pause_briefly();
  }
  for (int done; (done = num_done_.load(std::memory_order_acquire)) != wanted;) num_done_.wait(done);
}

void ThreadPool::work() {
  while (!stopping_.load(std::memory_order_relaxed)) {
    const int seen = signal_.load(std::memory_order_acquire);
    while (do_one_task()) {
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
