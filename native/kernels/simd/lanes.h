// Sixteen 32-bit lanes, in as many registers as the instruction set needs: one, two or four.
//
// Every kernel is written against these, so that all instruction sets share its source. Included
// only by files that are compiled once per instruction set (HEADWAY_ISA names the namespace).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

#define HEADWAY_INLINE static inline __attribute__((always_inline))
#define HEADWAY_MEMBER inline __attribute__((always_inline))
#define HEADWAY_APART [[maybe_unused]] static __attribute__((noinline))
#define HEADWAY_UNROLL _Pragma("GCC unroll 16")

namespace headway::HEADWAY_ISA {

inline constexpr size_t kLanes = 16;
#if defined(__AVX512F__)
inline constexpr size_t kPartLanes = 16;
#elif defined(__AVX2__)
inline constexpr size_t kPartLanes = 8;
#else
inline constexpr size_t kPartLanes = 4;
#endif
inline constexpr size_t kParts = kLanes / kPartLanes;

typedef float f32_part __attribute__((vector_size(kPartLanes * 4)));
typedef uint32_t u32_part __attribute__((vector_size(kPartLanes * 4)));
typedef int32_t i32_part __attribute__((vector_size(kPartLanes * 4)));
typedef float f32_memory __attribute__((vector_size(kPartLanes * 4), aligned(4), may_alias));
typedef uint32_t u32_memory __attribute__((vector_size(kPartLanes * 4), aligned(4), may_alias));

struct f32x16 {
  f32_part part[kParts];
};
struct u32x16 {  // also a mask: all bits of a lane set or none
  u32_part part[kParts];
};

// The statement once for each part `i`. No loop: the compiler splits small structures into registers
// before it unrolls loops, and does so only if every index is a constant by then.
#define HEADWAY_EACH_PART(STATEMENT)                                            \
  {                                                                             \
    HEADWAY_ONE_PART(0, STATEMENT)                                              \
    HEADWAY_ONE_PART(1, STATEMENT)                                              \
    HEADWAY_ONE_PART(2, STATEMENT)                                              \
    HEADWAY_ONE_PART(3, STATEMENT)                                              \
  }
#define HEADWAY_ONE_PART(INDEX, STATEMENT)                                      \
  if constexpr (INDEX < kParts) {                                               \
    constexpr size_t i = INDEX < kParts ? INDEX : 0;                            \
    STATEMENT;                                                                  \
  }

#define HEADWAY_OPERATOR(TYPE, OP)                          \
  HEADWAY_INLINE TYPE operator OP(TYPE a, TYPE b) {         \
    HEADWAY_EACH_PART(a.part[i] = a.part[i] OP b.part[i])   \
    return a;                                               \
  }
HEADWAY_OPERATOR(f32x16, +)
HEADWAY_OPERATOR(f32x16, -)
HEADWAY_OPERATOR(f32x16, *)
HEADWAY_OPERATOR(f32x16, /)
HEADWAY_OPERATOR(u32x16, +)
HEADWAY_OPERATOR(u32x16, -)
HEADWAY_OPERATOR(u32x16, &)
HEADWAY_OPERATOR(u32x16, |)
#undef HEADWAY_OPERATOR

#define HEADWAY_COMPARISON(TYPE, OP)                                                        \
  HEADWAY_INLINE u32x16 operator OP(TYPE a, TYPE b) {                                       \
    u32x16 mask;                                                                            \
    HEADWAY_EACH_PART(mask.part[i] = (u32_part)(a.part[i] OP b.part[i]))                    \
    return mask;                                                                            \
  }
HEADWAY_COMPARISON(f32x16, >)
HEADWAY_COMPARISON(f32x16, <)
HEADWAY_COMPARISON(f32x16, ==)
HEADWAY_COMPARISON(f32x16, !=)
HEADWAY_COMPARISON(u32x16, >=)
HEADWAY_COMPARISON(u32x16, <=)
#undef HEADWAY_COMPARISON

// Whole lanes, part by part: a copy of the whole structure would go through the stack.
HEADWAY_INLINE f32x16 load_f32(const void* from) {
  f32x16 v;
  const f32_memory* parts = static_cast<const f32_memory*>(from);
  HEADWAY_EACH_PART(v.part[i] = parts[i])
  return v;
}

HEADWAY_INLINE u32x16 load_u32(const void* from) {
  u32x16 v;
  const u32_memory* parts = static_cast<const u32_memory*>(from);
  HEADWAY_EACH_PART(v.part[i] = parts[i])
  return v;
}

HEADWAY_INLINE void store(void* to, f32x16 v) {
  f32_memory* parts = static_cast<f32_memory*>(to);
  HEADWAY_EACH_PART(parts[i] = v.part[i])
}

HEADWAY_INLINE void store(void* to, u32x16 v) {
  u32_memory* parts = static_cast<u32_memory*>(to);
  HEADWAY_EACH_PART(parts[i] = v.part[i])
}

// The upper halves of the lanes, two to a word: bfloat16 pairs where the lanes are rounded float32.
HEADWAY_INLINE void store_high_halves(uint32_t* to, u32x16 v) {
#if defined(__AVX512F__)
  const __m512i upper = (__m512i)(v.part[0] >> 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_maskz_cvtepi32_epi16(0xFFFF, upper));
#else
  alignas(64) uint32_t lanes[kLanes];
  store(lanes, v);
  for (size_t i = 0; i < kLanes; i += 2) to[i / 2] = lanes[i] >> 16 | (lanes[i + 1] & 0xFFFF0000u);
#endif
}

// The low byte of each lane.
HEADWAY_INLINE void store_low_bytes(int8_t* to, u32x16 v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_maskz_cvtepi32_epi8(0xFFFF, (__m512i)v.part[0]));
#elif defined(__AVX2__)
  const __m256i low = _mm256_set1_epi32(0xFF);
  const __m256i halves = _mm256_packus_epi32((__m256i)v.part[0] & low, (__m256i)v.part[1] & low);
  const __m256i bytes = _mm256_packus_epi16(halves, halves);  // four of one part, four of the other, in each half
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
#else
  alignas(64) uint32_t lanes[kLanes];
  store(lanes, v);
  for (size_t i = 0; i < kLanes; ++i) to[i] = static_cast<int8_t>(lanes[i]);
#endif
}

// The first `count` lanes from memory, the rest `fill`: a row's tail runs through the same code.
HEADWAY_INLINE f32x16 load_f32(const void* from, size_t count, float fill) {
  if (count >= kLanes) return load_f32(from);
  alignas(64) float lanes[kLanes];
  for (float& lane : lanes) lane = fill;
  __builtin_memcpy(lanes, from, count * 4);
  return load_f32(lanes);
}

HEADWAY_INLINE u32x16 load_u32(const void* from, size_t count) {
  if (count >= kLanes) return load_u32(from);
  alignas(64) uint32_t lanes[kLanes] = {};
  __builtin_memcpy(lanes, from, count * 4);
  return load_u32(lanes);
}

HEADWAY_INLINE void store(void* to, f32x16 v, size_t count) {
  if (count >= kLanes) return store(to, v);
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  __builtin_memcpy(to, lanes, count * 4);
}

HEADWAY_INLINE void store(void* to, u32x16 v, size_t count) {
  if (count >= kLanes) return store(to, v);
  alignas(64) uint32_t lanes[kLanes];
  store(lanes, v);
  __builtin_memcpy(to, lanes, count * 4);
}

HEADWAY_INLINE f32x16 broadcast(float value) {
  f32x16 v;
  // - 0 keeps every value, -0 too
  HEADWAY_EACH_PART(v.part[i] = value - f32_part{})
  return v;
}

HEADWAY_INLINE u32x16 broadcast(uint32_t value) {
  u32x16 v;
  HEADWAY_EACH_PART(v.part[i] = value - u32_part{})
  return v;
}

HEADWAY_INLINE f32x16 as_f32(u32x16 v) {
  f32x16 result;
  HEADWAY_EACH_PART(result.part[i] = (f32_part)v.part[i])
  return result;
}

HEADWAY_INLINE u32x16 as_u32(f32x16 v) {
  u32x16 result;
  HEADWAY_EACH_PART(result.part[i] = (u32_part)v.part[i])
  return result;
}

HEADWAY_INLINE u32x16 shift_left(u32x16 v, int bits) {
  HEADWAY_EACH_PART(v.part[i] = v.part[i] << bits)
  return v;
}

HEADWAY_INLINE u32x16 shift_right(u32x16 v, int bits) {
  HEADWAY_EACH_PART(v.part[i] = v.part[i] >> bits)
  return v;
}

HEADWAY_INLINE u32x16 lane_index() {
  static constexpr uint32_t kIndex[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load_u32(kIndex);
}

HEADWAY_INLINE f32x16 select(u32x16 mask, f32x16 yes, f32x16 no) {
  HEADWAY_EACH_PART(yes.part[i] = (i32_part)mask.part[i] < 0 ? yes.part[i] : no.part[i])
  return yes;
}

// The larger lane; where `candidate` is NaN, `best`.
HEADWAY_INLINE f32x16 larger(f32x16 candidate, f32x16 best) {
  HEADWAY_EACH_PART(best.part[i] = candidate.part[i] > best.part[i] ? candidate.part[i] : best.part[i])
  return best;
}

HEADWAY_INLINE u32x16 larger(u32x16 a, u32x16 b) {
  HEADWAY_EACH_PART(b.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i])
  return b;
}

// a * b + c, rounded once where the instruction set can.
HEADWAY_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
#if defined(__AVX512F__)
  c.part[0] = (f32_part)_mm512_fmadd_ps((__m512)a.part[0], (__m512)b.part[0], (__m512)c.part[0]);
#elif defined(__FMA__)
  HEADWAY_EACH_PART(c.part[i] = (f32_part)_mm256_fmadd_ps((__m256)a.part[i], (__m256)b.part[i], (__m256)c.part[i]))
#else
  c = a * b + c;
#endif
  return c;
}

// Truncation to int32, as raw lanes. The caller keeps the values in range.
HEADWAY_INLINE u32x16 to_int(f32x16 v) {
  u32x16 result;
  HEADWAY_EACH_PART(result.part[i] = (u32_part)__builtin_convertvector(v.part[i], i32_part))
  return result;
}

// Raw lanes as int32, rounded to the nearest float32.
HEADWAY_INLINE f32x16 from_int(u32x16 v) {
  f32x16 result;
  HEADWAY_EACH_PART(result.part[i] = __builtin_convertvector((i32_part)v.part[i], f32_part))
  return result;
}

inline constexpr size_t kLineBytes = 64;  // of a cache

// Whether hardware fetches a stream ahead best if it is one of few and nobody asks beside it.
#if defined(HEADWAY_FOLLOWS_STREAMS)
inline constexpr bool kFollowsStreams = true;
#else
inline constexpr bool kFollowsStreams = false;
#endif

// Hints that may point anywhere.
HEADWAY_INLINE void prefetch(const void* line) { __builtin_prefetch(line, 0, 3); }
HEADWAY_INLINE void prefetch_to_l2(const void* line) { __builtin_prefetch(line, 0, 2); }

HEADWAY_INLINE float first_lane(f32x16 v) { return v.part[0][0]; }

// Lanes [Width, 2 Width) of a register brought to [0, Width); the rest is not looked at. Indices are
// template arguments: from a loop the compiler would put them together one by one.
template <size_t Width, class Part, size_t... Lane>
HEADWAY_INLINE Part upper_lanes(Part v, std::index_sequence<Lane...>) {
  return __builtin_shufflevector(v, v, static_cast<int>((Lane + Width) % kPartLanes)...);
}

// op of each lane of the lower half with its fellow of the upper, until one is left.
template <size_t Width, class Part, class Op>
HEADWAY_INLINE auto fold_lanes(Part v, const Op& op) {
  if constexpr (Width == 0) {
    return v[0];
  } else {
    return fold_lanes<Width / 2>(op(v, upper_lanes<Width>(v, std::make_index_sequence<kPartLanes>{})), op);
  }
}

// The sum and the maximum of all lanes, always by the same tree. The candidate of a maximum comes from
// above: it loses if it is NaN.
template <class Lanes, class Op>
HEADWAY_INLINE auto fold(Lanes v, const Op& op) {
  if constexpr (kParts == 4) {
    v.part[0] = op(op(v.part[0], v.part[2 % kParts]), op(v.part[1 % kParts], v.part[3 % kParts]));
  }
  if constexpr (kParts == 2) v.part[0] = op(v.part[0], v.part[1 % kParts]);
  return fold_lanes<kPartLanes / 2>(v.part[0], op);
}

template <class Lanes>
HEADWAY_INLINE auto sum_lanes(Lanes v) {
  return fold(v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}

template <class Lanes>
HEADWAY_INLINE auto max_lane(Lanes v) {
  return fold(v, [](auto a, auto b) __attribute__((always_inline)) { return b > a ? b : a; });
}

}  // namespace headway::HEADWAY_ISA
