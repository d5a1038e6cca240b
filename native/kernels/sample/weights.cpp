// The parts of sampling that touch every id of the vocabulary.
#include "kernels/kernel_table.h"
#include "kernels/simd/exp.h"

namespace headway::HEADWAY_ISA {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr size_t kBlock = 1024;  // summed in float32; blocks are then summed in float64

HEADWAY_INLINE f32x16 weights_of(f32x16 logits, f32x16 largest, f32x16 inverse_temperature) {
  const f32x16 zero = broadcast(0.0f);
  const f32x16 below = select(logits == largest, zero, (largest - logits) * inverse_temperature);
  return select(below == below, exp(zero - below), zero);
}

// The ids from `first` on whose logits lie in [least, above), appended at `count`; the new count.
HEADWAY_INLINE size_t append(const float* logits, size_t width, size_t first, float least, float above,
                             const Candidates& out, size_t count) {
#if defined(__AVX512F__)
  if (width - first >= kLanes) {
    const __m512 x = _mm512_loadu_ps(logits + first);
    const __mmask16 too_high = _mm512_cmp_ps_mask(x, _mm512_set1_ps(above), _CMP_GE_OQ);
    const __mmask16 inside = _mm512_mask_cmp_ps_mask(~too_high, x, _mm512_set1_ps(least), _CMP_GE_OQ);
    if (!inside) return count;
    const __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i ids = _mm512_add_epi32(index, _mm512_set1_epi32(static_cast<int>(first)));
    _mm512_storeu_ps(out.logits + count, _mm512_maskz_compress_ps(inside, x));
    _mm512_storeu_si512(out.ids + count, _mm512_maskz_compress_epi32(inside, ids));
    return count + static_cast<size_t>(__builtin_popcount(inside));
  }
#endif
  const size_t end = width - first < kLanes ? width : first + kLanes;
  for (size_t i = first; i < end; ++i) {
    out.ids[count] = static_cast<int32_t>(i);
    out.logits[count] = logits[i];
    count += logits[i] >= least && !(logits[i] >= above);
  }
  return count;
}

}  // namespace

// masses[b]: the weights of brackets 0 to b. Nested sums, so that rounding leaves them in order.
void bracket_masses(const SampleRow& row, const BracketBounds& cut, double* masses) {
  const f32x16 largest = broadcast(row.largest), inverse = broadcast(row.inverse_temperature);
  for (size_t b = 0; b < kBrackets; ++b) masses[b] = 0;
  for (size_t block = 0; block < row.width; block += kBlock) {
    const size_t end = block + kBlock < row.width ? block + kBlock : row.width;
    f32x16 sums[kBrackets];
    HEADWAY_UNROLL
    for (size_t b = 0; b < kBrackets; ++b) sums[b] = broadcast(0.0f);
    for (size_t i = block; i < end; i += kLanes) {
      const f32x16 logits = load_f32(row.logits + i, end - i, kMinusInfinity);
      const f32x16 weights = weights_of(logits, largest, inverse);
      HEADWAY_UNROLL
      for (size_t b = 0; b + 1 < kBrackets; ++b) {
        // Not what is below, rather than what is not: NaN weighs nothing.
        sums[b] = sums[b] + select(logits < broadcast(cut.bounds[b]), broadcast(0.0f), weights);
      }
      sums[kBrackets - 1] = sums[kBrackets - 1] + weights;
    }
    HEADWAY_UNROLL
    for (size_t b = 0; b < kBrackets; ++b) masses[b] += static_cast<double>(sum_lanes(sums[b]));
  }
}

size_t collect(const SampleRow& row, float least, float above, const Candidates& out) {
  size_t count = 0;
  for (size_t i = 0; i < row.width; i += kLanes) count = append(row.logits, row.width, i, least, above, out, count);
  const f32x16 largest = broadcast(row.largest), inverse = broadcast(row.inverse_temperature);
  for (size_t i = 0; i < count; i += kLanes) {
    store(out.weights + i, weights_of(load_f32(out.logits + i), largest, inverse));
  }
  return count;
}

}  // namespace headway::HEADWAY_ISA
