// What this machine can do at best: bytes read, and multiplications of each kind, per second.
// Built and run by benchmarks/roofline.py; prints one "name threads value" a line. With `whole` as its argument
// it prints only how much of two cores two threads have right now, in some 40 milliseconds.
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

namespace {

constexpr size_t kBytes = size_t{1} << 30, kHugePage = size_t{2} << 20;
constexpr int kRuns = 5, kChains = 12;  // more chains than latency times ports
constexpr long kRounds = 2'000'000, kFewRounds = 1'000'000;
volatile float sink;

double own_seconds() {
  timespec spent;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) * 1e-9;
}

// Of the slowest thread, in time it had a core: others may use the machine, too.
template <class Function>
double seconds_of(int threads, Function function) {
  std::vector<double> spent(static_cast<size_t>(threads));
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i) {
    pool.emplace_back([=, &spent] {
      const double start = own_seconds();
      function(i);
      spent[static_cast<size_t>(i)] = own_seconds() - start;
    });
  }
  for (std::thread& thread : pool) thread.join();
  return *std::max_element(spent.begin(), spent.end());
}

template <class Function>
double best_seconds(int threads, Function function) {
  double best = 1e9;
  for (int run = 0; run < kRuns; ++run) best = std::min(best, seconds_of(threads, function));
  return best;
}

void read_all(const char* from, size_t count) {
  __m512i seen[4] = {};
  for (size_t i = 0; i < count; i += 256) {
    for (int k = 0; k < 4; ++k) seen[k] = _mm512_or_si512(seen[k], _mm512_load_si512(from + i + 64 * k));
  }
  sink = static_cast<float>(_mm512_reduce_or_epi32(
      _mm512_or_si512(_mm512_or_si512(seen[0], seen[1]), _mm512_or_si512(seen[2], seen[3]))));
}

void measure_reads(bool huge) {
  void* mapped = mmap(nullptr, kBytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return;
  char* from = reinterpret_cast<char*>((reinterpret_cast<size_t>(mapped) + kHugePage - 1) & ~(kHugePage - 1));
  madvise(from, kBytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::memset(from, 1, kBytes);
  for (const int threads : {1, 2}) {
    const size_t part = kBytes / threads;
    const double seconds = best_seconds(threads, [=](int i) { read_all(from + i * part, part); });
    std::printf("read_%s %d %.2f\n", huge ? "huge_pages" : "small_pages", threads, kBytes / seconds / 1e9);
  }
  munmap(mapped, kBytes + kHugePage);
}

// kChains independent accumulators through `step`.
template <class Register, class Step>
void chain(long rounds, Register start, Step step) {
  Register sums[kChains];
#pragma GCC unroll 12
  for (Register& sum : sums) sum = start;
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (Register& sum : sums) {
      sum = step(sum);
      asm volatile("" : "+v"(sum));
    }
  }
#pragma GCC unroll 12
  for (Register& sum : sums) asm volatile("" : : "v"(sum));
}

// `step` does `operations` additions and products.
template <class Register, class Step>
void measure_products(const char* name, double operations, Register start, Step step) {
  for (const int threads : {1, 2}) {
    const double seconds = best_seconds(threads, [=](int) { chain(kRounds, start, step); });
    std::printf("%s %d %.1f\n", name, threads, kRounds * kChains * operations * threads / seconds / 1e9);
  }
}

// 1, or 0.5 where the two are halves of one core, or neighbours have half of each.
template <class Step>
double share_of_two_cores(__m512 start, Step step) {
  const auto work = [=](int) { chain(kFewRounds, start, step); };
  double both = 0;
  for (int run = 0; run < kRuns; ++run) both += seconds_of(2, work) / kRuns;
  return best_seconds(1, work) / both;
}

}  // namespace

int main(int count, char**) {
  const __m512 half = _mm512_set1_ps(0.5f);
  const auto fma = [=](__m512 sum) { return _mm512_fmadd_ps(sum, half, half); };
  if (count > 1) {
    std::printf("%.2f\n", share_of_two_cores(half, fma));
    return 0;
  }
  for (const bool huge : {false, true}) measure_reads(huge);
  measure_products("float32_fma", 32, half, fma);
#if defined(__AVX512BF16__)
  const __m512bh pairs = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3C00));
  measure_products("bfloat16_dot", 64, half, [=](__m512 sum) { return _mm512_dpbf16_ps(sum, pairs, pairs); });
#endif
#if defined(__AVX512VNNI__)
  const __m512i bytes = _mm512_set1_epi8(1);
  measure_products("int8_dot", 128, bytes, [=](__m512i sum) { return _mm512_dpbusd_epi32(sum, bytes, bytes); });
#endif
}
