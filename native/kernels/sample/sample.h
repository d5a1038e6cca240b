// Draw a token id from one row of logits. Twin: src/headway/ops/reference/sample.py.
//
// No sort of the vocabulary: ids are thrown into buckets of falling logit, and only those buckets in
// which a filter or the draw ends are sorted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headway {

inline constexpr size_t kBuckets = 1024;
inline constexpr float kBucketsPerUnit = 8.0f;  // of (largest - logit) / temperature

struct WeightArgs {
  const float* logits;
  size_t width;
  float largest, inverse_temperature;
  float* weights;     // exp((logit - largest) / temperature), 1 for the largest, 0 for NaN
  uint16_t* buckets;  // 0 holds the largest; NaN and -inf fall into the last
};

struct SampleParams {
  float temperature;
  int32_t top_k;
  float top_p, min_p;
  uint64_t seed;
  int64_t position;
};

// One thread's memory for sampling, grown once and kept.
struct SampleScratch {
  std::vector<float> weights;
  std::vector<uint16_t> buckets;
  std::vector<int32_t> order;
};

// A double in [0, 1) by Philox-4x32-10; which words make it is told in reference/philox.py.
double philox_uniform(uint64_t seed, int64_t position);

// The drawn id, given the weights and buckets in `scratch`.
int32_t select_token(const float* logits, size_t width, const SampleParams& params, SampleScratch& scratch);

}  // namespace headway
