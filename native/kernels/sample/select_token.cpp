#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "kernels/kernel_table.h"
#include "kernels/sample/bracket.h"

namespace headway {
namespace {

constexpr size_t kSampled = 128;
// Where in the sorted sample the brackets end: narrow ones at the top, where the weight is.
constexpr size_t kSampleRanks[kBrackets - 1] = {1, 4, 16, 32, 64};

BracketBounds bounds_of(const float* logits, size_t width) {
  float sample[kSampled];
  const size_t stride = std::max<size_t>(1, width / kSampled), count = std::min(width, kSampled);
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  for (size_t i = 0; i < count; ++i) {
    const float logit = logits[i * stride];
    // What is masked is no place to cut; the lowest of all numbers has the masked below it.
    sample[i] = logit > kLowest ? logit : kLowest;
  }
  std::sort(sample, sample + count, std::greater<float>());
  BracketBounds cut;
  for (size_t b = 0; b + 1 < kBrackets; ++b) cut.bounds[b] = sample[kSampleRanks[b] * count / kSampled];
  cut.bounds[kBrackets - 1] = -std::numeric_limits<float>::infinity();
  const float* end = std::lower_bound(sample, sample + count, kLowest, std::greater<float>());
  cut.lowest = end[end == sample ? 0 : -1];
  return cut;
}

// The ids of one row in order of falling logit; brackets are opened when something ends in them.
class FallingOrder {
 public:
  struct Prefix {
    size_t bracket, count;  // all of the brackets before, and so many of this one
    double mass;
    bool operator<(const Prefix& other) const {
      return bracket != other.bracket ? bracket < other.bracket : count < other.count;
    }
  };

  FallingOrder(const KernelTable& kernels, const SampleRow& row, SampleScratch& scratch)
      : kernels_(kernels), row_(row), scratch_(scratch), cut_(bounds_of(row.logits, row.width)) {
    constexpr size_t kSlack = 16;
    scratch.ids.resize(row.width + kSlack);
    scratch.logits.resize(row.width + kSlack);
    scratch.weights.resize(row.width + kSlack);
    scratch.candidates.resize(row.width);
    scratch.places.resize(row.width);
  }

  Prefix everything() {
    kernels_.bracket_masses(row_, cut_, masses_);
    return {kBrackets - 1, row_.width, masses_[kBrackets - 1]};
  }

  // The first `count` ids. Needs no sum over the whole row.
  Prefix first(size_t count) {
    double before = 0;
    for (size_t b = 0; b < kBrackets; ++b) {
      Bracket& bracket = opened(b);
      if (count <= bracket.count()) return {b, count, masses_[b] = before + bracket.mass_of(count)};
      count -= bracket.count();
      masses_[b] = before += bracket.mass();
    }
    return {kBrackets - 1, row_.width, before};
  }

  // The shortest prefix whose weights sum to at least `wanted`, or to more if `strictly`.
  Prefix reaching(double wanted, bool strictly, const Prefix& kept) {
    const auto reached = [&](double mass) { return strictly ? mass > wanted : mass >= wanted; };
    size_t b = 0;
    while (b < kept.bracket && !reached(masses_[b])) ++b;
    while (b > 0 && masses_[b] == masses_[b - 1]) --b;  // nothing weighs anything there
    const double before = b ? masses_[b - 1] : 0;
    const size_t count = opened(b).prefix_reaching(before, reached);
    return {b, count, before + opened(b).mass_of(count)};
  }

  // Of a prefix, what weighs at least so much.
  Prefix at_least(float weight, const Prefix& kept) {
    Prefix found{0, 0, 0};
    for (size_t b = 0; b <= kept.bracket; ++b) {
      Bracket& bracket = opened(b);
      const size_t count = bracket.count_at_least(weight);
      if (count) found = {b, count, (b ? masses_[b - 1] : 0) + bracket.mass_of(count)};
      if (count < bracket.count()) break;
    }
    return std::min(found, kept);
  }

  int32_t last_of(const Prefix& prefix) { return opened(prefix.bracket).at(prefix.count - 1).id; }

 private:
  Bracket& opened(size_t b) {
    Bracket& bracket = brackets_[b];
    if (bracket.is_open()) return bracket;
    const float above = b ? cut_.bounds[b - 1] : std::numeric_limits<float>::quiet_NaN();
    const Candidates found{scratch_.ids.data(), scratch_.logits.data(), scratch_.weights.data()};
    const size_t count = kernels_.collect(row_, cut_.bounds[b], above, found);
    const float highest = b ? cut_.bounds[b - 1] : row_.largest, lowest = std::max(cut_.bounds[b], cut_.lowest);
    bracket.open(found, count, lowest, highest, scratch_.candidates.data() + num_opened_, scratch_.places.data());
    num_opened_ += count;
    return bracket;
  }

  const KernelTable& kernels_;
  const SampleRow& row_;
  SampleScratch& scratch_;
  const BracketBounds cut_;
  size_t num_opened_ = 0;
  double masses_[kBrackets] = {};  // of brackets 0 to b
  std::array<Bracket, kBrackets> brackets_;
};

}  // namespace

int32_t select_token(const KernelTable& kernels, const SampleRow& row, const SampleParams& params,
                     SampleScratch& scratch) {
  FallingOrder order(kernels, row, scratch);
  const bool cuts = params.top_k > 0 && static_cast<size_t>(params.top_k) < row.width;
  FallingOrder::Prefix kept = cuts ? order.first(static_cast<size_t>(params.top_k)) : order.everything();
  if (params.top_p < 1) {
    const double wanted = static_cast<double>(params.top_p) * kept.mass;
    kept = std::min(kept, order.reaching(wanted, false, kept));
  }
  if (params.min_p > 0) kept = order.at_least(params.min_p, kept);
  const double draw = philox_uniform(params.seed, params.position) * kept.mass;
  return order.last_of(std::min(kept, order.reaching(draw, true, kept)));
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
