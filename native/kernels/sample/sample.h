// Draw a token id from one row of logits. Twin: src/headway/ops/reference/sample.py.
//
// No sort of the vocabulary. A sample of the row says where to cut it into brackets of falling logit;
// one pass sums the weights of each; only brackets in which a filter or the draw ends are looked into,
// and of these only a few neighbours are sorted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headway {

struct KernelTable;

inline constexpr size_t kBrackets = 6;

// The weight of an id is exp((logit - largest) / temperature): 1 for the largest, 0 for NaN.
struct SampleRow {
  const float* logits;
  size_t width;
  float largest, inverse_temperature;
};

// Bracket b holds the logits from bounds[b] up to, and without, bounds[b - 1]; NaN is in none.
struct BracketBounds {
  float bounds[kBrackets];  // falling; the last is -inf
};

// Ids in ascending order, as three arrays with room for sixteen more than there are.
struct Candidates {
  int32_t* ids;
  float *logits, *weights;
};

struct SampleParams {
  int32_t top_k;
  float top_p, min_p;
  uint64_t seed;
  int64_t position;
};

struct Candidate {
  float logit, weight;
  int32_t id;
};

// One thread's memory for sampling, grown once and kept.
struct SampleScratch {
  std::vector<int32_t> ids;
  std::vector<float> logits, weights;
  std::vector<Candidate> candidates;
  std::vector<uint32_t> places;
};

// A double in [0, 1) by Philox-4x32-10; which words make it is told in reference/philox.py.
double philox_uniform(uint64_t seed, int64_t position);

// The drawn id; `row.largest` is a number, not -inf.
int32_t select_token(const KernelTable& kernels, const SampleRow& row, const SampleParams& params,
                     SampleScratch& scratch);

}  // namespace headway
