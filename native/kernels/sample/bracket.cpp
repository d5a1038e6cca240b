#include "kernels/sample/bracket.h"

#include <algorithm>

namespace headway {
namespace {

bool comes_first(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

}  // namespace

void Bracket::open(const Candidates& from, size_t count, float lowest, float highest, Candidate* into,
                   uint32_t* places) {
  is_open_ = true;
  all_ = into;
  count_ = count;
  num_buckets_ = std::clamp<size_t>(count / kIdsPerBucket, 1, kMaxBuckets);
  std::fill_n(ends_, num_buckets_, 0u);
  std::fill_n(masses_, num_buckets_, 0.0);
  std::fill_n(is_sorted_, num_buckets_, false);
  highest_ = highest;
  const float range = highest - lowest;
  buckets_per_unit_ = range > 0 ? static_cast<float>(num_buckets_ - 1) / range : 0.0f;
  mass_ = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t bucket = bucket_of(from.logits[i]);
    places[i] = static_cast<uint32_t>(bucket);
    ends_[bucket] += 1;
    masses_[bucket] += static_cast<double>(from.weights[i]);
  }
  uint32_t begin = 0;
  for (size_t bucket = 0; bucket < num_buckets_; ++bucket) {
    const uint32_t size = ends_[bucket];
    ends_[bucket] = begin;  // moves to its end as the bucket is filled
    begin += size;
    mass_ += masses_[bucket];
  }
  for (size_t i = 0; i < count; ++i) all_[ends_[places[i]]++] = {from.logits[i], from.weights[i], from.ids[i]};
}

size_t Bracket::bucket_of(float logit) const {
  if (logit >= highest_) return 0;
  const float place = (highest_ - logit) * buckets_per_unit_;
  return place < static_cast<float>(num_buckets_ - 1) ? static_cast<size_t>(place) : num_buckets_ - 1;
}

const Candidate* Bracket::sorted(size_t bucket) {
  Candidate* begin = all_ + (bucket ? ends_[bucket - 1] : 0);
  Candidate* end = all_ + ends_[bucket];
  // Equal logits, of which there may be very many, are in order as they came.
  if (!is_sorted_[bucket] && !std::is_sorted(begin, end, comes_first)) std::sort(begin, end, comes_first);
  is_sorted_[bucket] = true;
  return begin;
}

double Bracket::mass_of(size_t count) {
  double mass = 0;
  size_t begin = 0;
  for (size_t bucket = 0; begin < count; begin = ends_[bucket++]) {
    if (ends_[bucket] <= count) {
      mass += masses_[bucket];
      continue;
    }
    const Candidate* ids = sorted(bucket);
    for (size_t i = 0; begin + i < count; ++i) mass += static_cast<double>(ids[i].weight);
    break;
  }
  return mass;
}

size_t Bracket::count_at_least(float weight) const {
  return static_cast<size_t>(
      std::count_if(all_, all_ + count_, [weight](const Candidate& candidate) { return candidate.weight >= weight; }));
}

const Candidate& Bracket::at(size_t index) {
  const size_t bucket = static_cast<size_t>(std::upper_bound(ends_, ends_ + num_buckets_, index) - ends_);
  return sorted(bucket)[index - (bucket ? ends_[bucket - 1] : 0)];
}

}  // namespace headway
