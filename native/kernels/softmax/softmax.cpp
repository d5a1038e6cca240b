// argmax and log_softmax. Twins: src/headway/ops/reference/{argmax,log_softmax}.py.
#include <cmath>

#include "kernels/kernel_table.h"
#include "kernels/simd/exp.h"

namespace headway::HEADWAY_ISA {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr size_t kBlock = 1024;  // summed in float32; blocks are then summed in float64

double sum_of_exp(const float* x, size_t width, float largest) {
  double total = 0;
  for (size_t block = 0; block < width; block += kBlock) {
    const size_t end = block + kBlock < width ? block + kBlock : width;
    f32x16 sums = broadcast(0.0f);
    for (size_t i = block; i < end; i += kLanes) {
      sums = sums + exp(load_f32(x + i, end - i, kMinusInfinity) - broadcast(largest));
    }
    total += sum_lanes(sums);
  }
  return total;
}

}  // namespace

// Four chains: one maximum waits for the one before it.
float largest_of(const float* x, size_t width) {
  constexpr size_t kChains = 4;
  f32x16 best[kChains];
  HEADWAY_UNROLL
  for (size_t chain = 0; chain < kChains; ++chain) best[chain] = broadcast(kMinusInfinity);
  size_t i = 0;
  for (; i + kChains * kLanes <= width; i += kChains * kLanes) {
    HEADWAY_UNROLL
    for (size_t chain = 0; chain < kChains; ++chain) {
      best[chain] = larger(load_f32(x + i + chain * kLanes), best[chain]);
    }
  }
  for (; i < width; i += kLanes) best[0] = larger(load_f32(x + i, width - i, kMinusInfinity), best[0]);
  return max_lane(larger(larger(best[0], best[1]), larger(best[2], best[3])));
}

void argmax(const ArgmaxArgs& args, Range rows) {
  for (size_t row = rows.begin; row < rows.end; ++row) {
    const float* x = args.logits + row * args.width;
    float largest = kMinusInfinity;
    size_t found = 0;
    for (size_t block = 0; block < args.width; block += kBlock) {
      const float candidate = largest_of(x + block, args.width - block < kBlock ? args.width - block : kBlock);
      if (candidate > largest) {
        largest = candidate;
        found = block;
      }
    }
    // NaN counts as -inf: a row of nothing else has its largest at 0.
    if (largest != kMinusInfinity) {
      while (x[found] != largest) ++found;
    }
    args.out[row] = static_cast<int32_t>(found);
  }
}

void log_softmax(const LogSoftmaxArgs& args, Range rows) {
  const f32x16 minus_infinity = broadcast(kMinusInfinity);
  for (size_t row = rows.begin; row < rows.end; ++row) {
    const float* x = args.logits + row * args.width;
    float* out = args.out + row * args.width;
    const float largest = largest_of(x, args.width);
    const float shift = largest == kMinusInfinity ? 0.0f : largest;
    const f32x16 log_total = broadcast(static_cast<float>(std::log(sum_of_exp(x, args.width, shift))));
    for (size_t i = 0; i < args.width; i += kLanes) {
      const f32x16 shifted = load_f32(x + i, args.width - i, 0.0f) - broadcast(shift);
      const f32x16 result = select(shifted == minus_infinity, shifted, shifted - log_total);
      store(out + i, result, args.width - i);
    }
  }
}

}  // namespace headway::HEADWAY_ISA
