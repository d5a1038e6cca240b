// The ids of one bracket in order of falling logit, lower id first on a tie; sorted where looked at.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sample/sample.h"

namespace headway {

class Bracket {
 public:
  bool is_open() const { return is_open_; }
  size_t count() const { return count_; }
  double mass() const { return mass_; }

  // Throw `count` candidates into buckets of falling logit; `into` and `places` are memory for as many.
  void open(const Candidates& from, size_t count, Candidate* into, uint32_t* places);

  // Sum of the weights of the first `count` ids.
  double mass_of(size_t count);

  // Length of the shortest prefix of which `reached(mass)` holds, `mass` being that of the prefix and
  // `before`. Where none does, for rounding, it ends at the last id of any weight.
  template <class Reached>
  size_t prefix_reaching(double before, const Reached& reached);

  size_t count_at_least(float weight) const;
  const Candidate& at(size_t index);

 private:
  static constexpr size_t kMaxBuckets = 1024;
  static constexpr size_t kIdsPerBucket = 4;

  size_t bucket_of(float logit) const;
  const Candidate* sorted(size_t bucket);

  Candidate* all_ = nullptr;
  size_t count_ = 0, num_buckets_ = 0;
  bool is_open_ = false;
  float highest_ = 0, buckets_per_unit_ = 0;
  double mass_ = 0;
  uint32_t ends_[kMaxBuckets];
  double masses_[kMaxBuckets];
  bool is_sorted_[kMaxBuckets];
};

template <class Reached>
size_t Bracket::prefix_reaching(double before, const Reached& reached) {
  size_t begin = 0, last = 0;
  for (size_t bucket = 0; bucket < num_buckets_; begin = ends_[bucket++]) {
    if (masses_[bucket] > 0) last = bucket;
    if (!reached(before + masses_[bucket])) {
      before += masses_[bucket];
      continue;
    }
    const Candidate* ids = sorted(bucket);
    for (size_t i = 0; begin + i < ends_[bucket]; ++i) {
      before += static_cast<double>(ids[i].weight);
      if (reached(before)) return begin + i + 1;
    }
  }
  const Candidate* first = sorted(last) - (last ? ends_[last - 1] : 0);
  size_t length = ends_[last];
  while (length > 1 && first[length - 1].weight == 0) --length;
  return length;
}

}  // namespace headway
