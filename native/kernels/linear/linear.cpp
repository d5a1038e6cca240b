// Register blocks of R rows by V vectors of 16 columns, on any instruction set without tiles.
//
// Few rows: memory is the wall, so several panels run side by side to keep enough loads in flight, or one,
// where hardware does that better alone.
// Many rows: as many accumulators as there are registers. Blocks differ, sums do not (see linear.h).
//
// A pair of bfloat16 is widened once per block and used for all its rows, so that nearly all vector
// instructions are float32 FMAs, of which Intel issues two a cycle, but one dot product of pairs in two.
// Of many blocks of rows the first leaves what it widened to the others.
#include "kernels/kernel_table.h"
#include "kernels/linear/epilogue.h"
#include "kernels/linear/walk.h"
#include "kernels/simd/words.h"

namespace headway::HEADWAY_ISA {
namespace {

#if defined(__AVX512F__)
constexpr size_t kMaxRows = 13, kMaxVectors = kPanelsSideBySide * 2;
#else
constexpr size_t kMaxRows = 4, kMaxVectors = 2;
#endif

// How many vectors such a block has: the fewer rows, the more loads must be in flight.
constexpr size_t wide_vectors(size_t rows) {
  if (kFollowsStreams) return rows <= 2 ? kVectorsPerPanel : 2 * kVectorsPerPanel;
  return rows <= 2 ? kMaxVectors : kMaxVectors / 2;
}
constexpr size_t kManyVectors = kMaxVectors / 4 > 0 ? kMaxVectors / 4 : 1;
constexpr size_t kBlocksToWiden = 5;  // from how many on the stores pay

template <class Words>
const uint32_t* vector_start(const LinearArgs& args, size_t vector) {
  const size_t panel = vector / kVectorsPerPanel, part = vector % kVectorsPerPanel;
  return args.weight + (panel * args.steps * kPanelColumns + part * kLanes) * Words::kVectors;
}

// What a block asks memory for while it computes. The streams of its own V vectors, so far ahead that
// 8 kB are on the way:
template <size_t V>
struct OwnStreams {
  static constexpr size_t kLeadSteps = 128 / V;
  HEADWAY_MEMBER void word(const uint32_t* at) const {
    if (!kFollowsStreams) prefetch(at + kLeadSteps * kPanelColumns);
  }
  HEADWAY_MEMBER void step() const {}
};

// Rows of x at equal distances: three share an address in a register, as the instructions can add once
// or twice the distance to it. A register for each row would be more than there are.
template <size_t R>
struct Rows {
  static constexpr size_t kPerAddress = 3, kAddresses = (R + kPerAddress - 1) / kPerAddress;
  const char* at[kAddresses];
  size_t distance;

  HEADWAY_MEMBER Rows(const LinearArgs& args, size_t row) : distance(args.x_stride * sizeof(uint32_t)) {
    HEADWAY_UNROLL
    for (size_t i = 0; i < kAddresses; ++i) {
      at[i] = reinterpret_cast<const char*>(args.x + (row + kPerAddress * i) * args.x_stride);
    }
  }
  HEADWAY_MEMBER const uint32_t* row(size_t r) const {
    return reinterpret_cast<const uint32_t*>(at[r / kPerAddress] + r % kPerAddress * distance);
  }
  HEADWAY_MEMBER void move(size_t words) {
    HEADWAY_UNROLL
    for (size_t i = 0; i < kAddresses; ++i) {
      at[i] += words * sizeof(uint32_t);
      asm("" : "+r"(at[i]));  // or the compiler makes it one register a row again
    }
  }
};

template <class Words, size_t R, size_t V, class Ahead>
void block(const LinearArgs& args, size_t row, size_t vector, Ahead ahead) {
  constexpr size_t kPerPanel = V < kVectorsPerPanel ? V : kVectorsPerPanel;
  Rows<R> x(args, row);
  const uint32_t* w[V / kPerPanel];
  f32x16 sums[R][V];
  HEADWAY_UNROLL
  for (size_t p = 0; p < V / kPerPanel; ++p) w[p] = vector_start<Words>(args, vector + p * kPerPanel);
  HEADWAY_UNROLL
  for (size_t r = 0; r < R; ++r) {
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) sums[r][v] = broadcast(0.0f);
  }
  fetch_out<R, V>(args, row, vector);
  for (size_t step = 0; step < args.steps; ++step) {
    u32x16 weights[V][Words::kVectors];
    ahead.step();
    HEADWAY_UNROLL
    for (size_t v = 0; v < V; ++v) {
      const uint32_t* at = w[v / kPerPanel] + (v % kPerPanel * kLanes + step * kPanelColumns) * Words::kVectors;
      HEADWAY_UNROLL
      for (size_t i = 0; i < Words::kVectors; ++i) {
        weights[v][i] = load_u32(at + i * kLanes);
        ahead.word(at + i * kLanes);
      }
    }
    HEADWAY_UNROLL
    for (size_t part = 0; part < Words::kParts; ++part) {
      HEADWAY_UNROLL
      for (size_t r = 0; r < R; ++r) {
        HEADWAY_UNROLL
        for (size_t v = 0; v < V; ++v) {
          sums[r][v] = Words::multiply_add(sums[r][v], x.row(r), weights[v][part % Words::kVectors], part);
        }
      }
    }
    x.move(Words::kParts);
  }
  finish_block<R, V>(args, row, vector, sums);
}

template <class Words, size_t R, class Ahead>
void block_of(const LinearArgs& args, size_t rows, size_t row, size_t vector, Ahead next) {
  if (rows == R) return block<Words, R, kManyVectors>(args, row, vector, next);
  if constexpr (R > 1) block_of<Words, R - 1>(args, rows, row, vector, next);
}

// Wide blocks first, then whatever vectors are left.
template <class Words, size_t R>
void few_rows(const LinearArgs& args, size_t row, Range vectors) {
  constexpr size_t kWide = wide_vectors(R);
  size_t vector = vectors.begin;
  for (; vector + kWide <= vectors.end; vector += kWide) {
    block<Words, R, kWide>(args, row, vector, OwnStreams<kWide>{});
  }
  for (; vector < vectors.end; vector += kManyVectors) {
    block<Words, R, kManyVectors>(args, row, vector, OwnStreams<kManyVectors>{});
  }
}

template <class Words>
void many_rows(const LinearArgs& args, Range rows, Range panels) {
  walk<kMaxRows, kManyVectors>(args.weight, args.steps, rows, panels,
                               [&](size_t row, size_t num_rows, size_t vector, OtherPanels next) {
                                 block_of<Words, kMaxRows>(args, num_rows, row, vector, next);
                               });
}

// What the first block of rows does besides: its weights, widened, from `to` on.
struct WideningPanels {
  OtherPanels next;
  const uint32_t* from;
  uint32_t* to;

  HEADWAY_MEMBER void word(const uint32_t* at) const {
    const u32x16 pairs = load_u32(at);
    uint32_t* wide = to + (at - from) * Bf16Widened::kVectors;
    HEADWAY_UNROLL
    for (size_t part = 0; part < Bf16Parts::kParts; ++part) {
      store(wide + part * kLanes, Bf16Parts::widened(pairs, part));
    }
    next.word(at);
  }
  HEADWAY_MEMBER void step() { next.step(); }
};

// Each chunk's weights are widened once, into args.widened.
[[maybe_unused]] void very_many_rows(const LinearArgs& args, Range rows, Range panels) {
  const size_t panel_words = args.steps * kPanelColumns * Bf16Widened::kVectors;
  LinearArgs wide = args;
  walk<kMaxRows, kManyVectors>(
      args.weight, args.steps, kWidenedBytes, rows, panels,
      [&](Range chunk) { wide.weight = args.widened - chunk.begin * panel_words; },
      [&](size_t row, size_t num_rows, size_t vector, OtherPanels next) {
        if (row != rows.begin) return block_of<Bf16Widened, kMaxRows>(wide, num_rows, row, vector, next);
        uint32_t* to = const_cast<uint32_t*>(vector_start<Bf16Widened>(wide, vector));
        const WideningPanels ahead{next, vector_start<Bf16Parts>(args, vector), to};
        block_of<Bf16Parts, kMaxRows>(args, num_rows, row, vector, ahead);
      });
}

template <class Words>
void linear(const LinearArgs& args, Range rows, Range panels) {
  const Range vectors{panels.begin * kVectorsPerPanel, panels.end * kVectorsPerPanel};
  switch (rows.end - rows.begin) {
    case 0: return;
    case 1: return few_rows<Words, 1>(args, rows.begin, vectors);
    case 2: return few_rows<Words, 2>(args, rows.begin, vectors);
    case 3: return few_rows<Words, 3>(args, rows.begin, vectors);
    case 4: return few_rows<Words, 4>(args, rows.begin, vectors);
    default: return many_rows<Words>(args, rows, panels);
  }
}

}  // namespace

void linear_f32(const LinearArgs& args, Range rows, Range panels) {
  linear<F32Words>(args, rows, panels);
}

void linear_bf16(const LinearArgs& args, Range rows, Range panels) {
  constexpr bool kWidens = Bf16Words::kParts > 1;
  if (kWidens && blocks_of(rows, kMaxRows) >= kBlocksToWiden) return very_many_rows(args, rows, panels);
  linear<Bf16Words>(args, rows, panels);
}

void round_bf16(const float* from, size_t count, uint32_t* to) { Bf16Words::round(from, count, to); }

}  // namespace headway::HEADWAY_ISA
