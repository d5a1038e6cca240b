// The part of sampling that touches every id of the vocabulary.
#include "kernels/kernel_table.h"
#include "kernels/simd/exp.h"

namespace headway::HEADWAY_ISA {

void sample_weights(const WeightArgs& args) {
  const f32x16 zero = broadcast(0.0f), largest = broadcast(args.largest);
  const f32x16 last = broadcast(static_cast<float>(kBuckets - 1));
  for (size_t i = 0; i < args.width; i += kLanes) {
    const size_t count = args.width - i < kLanes ? args.width - i : kLanes;
    const f32x16 logits = load_f32(args.logits + i, count, 0.0f);
    const f32x16 distance = (largest - logits) * broadcast(args.inverse_temperature);
    const f32x16 below = select(logits == largest, zero, distance);
    const f32x16 weights = select(below == below, exp(zero - below), zero);
    const f32x16 place = below * broadcast(kBucketsPerUnit);
    alignas(64) uint32_t buckets[kLanes];
    store(buckets, to_int(select(place < last, place, last)));
    store(args.weights + i, weights, count);
    for (size_t lane = 0; lane < count; ++lane) args.buckets[i + lane] = static_cast<uint16_t>(buckets[lane]);
  }
}

}  // namespace headway::HEADWAY_ISA
