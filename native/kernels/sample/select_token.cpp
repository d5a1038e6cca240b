#include <algorithm>

#include "kernels/sample/sample.h"

namespace headway {
namespace {

// The ids of one row in order of falling logit, lower id first on a tie; sorted where looked at.
class FallingOrder {
 public:
  FallingOrder(const float* logits, size_t width, SampleScratch& scratch)
      : logits_(logits), width_(width), scratch_(scratch) {
    scratch_.order.resize(width);
    for (size_t i = 0; i < width; ++i) {
      const size_t bucket = scratch_.buckets[i];
      counts_[bucket] += 1;
      masses_[bucket] += scratch_.weights[i];
    }
  }

  // Sum of the weights of the first `count` ids.
  double mass_of(size_t count) {
    double mass = 0;
    for (size_t bucket = 0, begin = 0; begin < count; begin += counts_[bucket++]) {
      if (begin + counts_[bucket] <= count) {
        mass += masses_[bucket];
        continue;
      }
      const int32_t* ids = sorted(bucket, begin);
      for (size_t i = 0; begin + i < count; ++i) mass += scratch_.weights[ids[i]];
      break;
    }
    return mass;
  }

  // Length of the shortest prefix whose weights sum to at least `wanted`, or to more if `strictly`.
  size_t prefix_reaching(double wanted, bool strictly) {
    double mass = 0;
    const auto reached = [&](double m) { return strictly ? m > wanted : m >= wanted; };
    for (size_t bucket = 0, begin = 0; bucket < kBuckets; begin += counts_[bucket++]) {
      if (counts_[bucket] == 0) continue;
      if (!reached(mass + masses_[bucket])) {
        mass += masses_[bucket];
        continue;
      }
      const int32_t* ids = sorted(bucket, begin);
      for (size_t i = 0; i < counts_[bucket]; ++i) {
        mass += scratch_.weights[ids[i]];
        if (reached(mass)) return begin + i + 1;
      }
      return begin + counts_[bucket];
    }
    return width_;
  }

  int32_t id_at(size_t index) {
    size_t bucket = 0, begin = 0;
    while (begin + counts_[bucket] <= index) begin += counts_[bucket++];
    return sorted(bucket, begin)[index - begin];
  }

 private:
  const int32_t* sorted(size_t bucket, size_t begin) {
    int32_t* ids = scratch_.order.data() + begin;
    if (is_sorted_[bucket]) return ids;
    size_t found = 0;
    for (size_t i = 0; found < counts_[bucket]; ++i) {
      if (scratch_.buckets[i] == bucket) ids[found++] = static_cast<int32_t>(i);
    }
    std::sort(ids, ids + found, [this](int32_t a, int32_t b) { return comes_first(a, b); });
    is_sorted_[bucket] = true;
    return ids;
  }

  bool comes_first(int32_t a, int32_t b) const {
    const float x = number(logits_[a]), y = number(logits_[b]);
    return x != y ? x > y : a < b;
  }

  static float number(float logit) { return logit == logit ? logit : -__builtin_inff(); }

  const float* logits_;
  size_t width_;
  SampleScratch& scratch_;
  size_t counts_[kBuckets] = {};
  double masses_[kBuckets] = {};
  bool is_sorted_[kBuckets] = {};
};

size_t count_at_least(const SampleScratch& scratch, size_t width, float least) {
  return static_cast<size_t>(std::count_if(scratch.weights.begin(), scratch.weights.begin() + width,
                                           [least](float weight) { return weight >= least; }));
}

}  // namespace

int32_t select_token(const float* logits, size_t width, const SampleParams& params, SampleScratch& scratch) {
  FallingOrder order(logits, width, scratch);
  size_t kept = params.top_k > 0 ? std::min(width, static_cast<size_t>(params.top_k)) : width;
  if (params.top_p < 1) {
    const double wanted = static_cast<double>(params.top_p) * order.mass_of(kept);
    kept = std::min(kept, order.prefix_reaching(wanted, false));
  }
  if (params.min_p > 0) kept = std::min(kept, count_at_least(scratch, width, params.min_p));
  const double draw = philox_uniform(params.seed, params.position) * order.mass_of(kept);
  const size_t length = std::min(kept, order.prefix_reaching(draw, true));
  return order.id_at(length - 1);
}

double philox_uniform(uint64_t seed, int64_t position) {
  constexpr uint64_t kMultipliers[2] = {0xD2511F53, 0xCD9E8D57};
  constexpr uint32_t kKeySteps[2] = {0x9E3779B9, 0xBB67AE85};
  const uint64_t index = static_cast<uint64_t>(position);
  uint32_t words[4] = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0};
  uint32_t keys[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultipliers[0] * words[0], product1 = kMultipliers[1] * words[2];
    words[0] = static_cast<uint32_t>(product1 >> 32) ^ words[1] ^ keys[0];
    words[1] = static_cast<uint32_t>(product1);
    words[2] = static_cast<uint32_t>(product0 >> 32) ^ words[3] ^ keys[1];
    words[3] = static_cast<uint32_t>(product0);
    keys[0] += kKeySteps[0];
    keys[1] += kKeySteps[1];
  }
  const uint64_t joined = static_cast<uint64_t>(words[1]) << 32 | words[0];
  return static_cast<double>(joined >> 11) * 0x1.0p-53;
}

}  // namespace headway
