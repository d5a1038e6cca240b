// The order in which a product of many rows goes through rows and panels, and what it fetches meanwhile.
//
// Panels in chunks, rows in blocks within a chunk: the chunk's weights come from memory once and stay
// in the L2 cache for all rows, a block of x stays near for all of the chunk, and a row of the output
// grows by the chunk's whole width at a time. (Panel by panel, rows that lie a multiple of 4 KiB
// apart, as those of logits do, throw each other out of the cache half written.) While a chunk is
// computed the next comes into the L2 cache, evenly over the time.
#pragma once

#include "kernels/linear/linear.h"
#include "kernels/simd/lanes.h"

namespace headway::HEADWAY_ISA {

inline constexpr size_t kVectorsPerPanel = kPanelColumns / kLanes;
inline constexpr size_t kStepBytes = kPanelColumns * sizeof(uint32_t);  // of a panel: two lines
inline constexpr size_t kChunkBytes = 384 * 1024;

// A block's share in fetching what comes next, spread over its steps: at most one step of a panel for
// each of its own. With few blocks memory is the wall, and it is asked from several fronts at once:
// hardware that fetches ahead follows each of them, while lines of one sequence wait for each other.
struct FetchAhead {
  const char* start;
  unsigned front_bits;  // of `turn`; the number of fronts is a power of two
  size_t apart;         // bytes from one front to the next
  size_t turn;          // steps fetched before this block
  size_t due, steps;
  size_t credit = 0;

  HEADWAY_MEMBER void step() {
    credit += due;
    if (credit < steps) return;
    credit -= steps;
    const size_t front = turn & ((size_t{1} << front_bits) - 1), along = turn >> front_bits;
    const char* line = start + front * apart + along * kStepBytes;
    ++turn;
    prefetch_to_l2(line);
    prefetch_to_l2(line + kLineBytes);
  }
};

inline constexpr size_t kFewBlocks = 2;
inline constexpr unsigned kFrontBits = 2;

// The weights of a block itself, which are in the L2 cache by then, some steps before use.
inline constexpr size_t kStepsToL1 = 16;

struct OtherPanels {
  FetchAhead fetch;

  HEADWAY_MEMBER void word(const uint32_t* at) const { prefetch(at + kStepsToL1 * kPanelColumns); }
  HEADWAY_MEMBER void step() { fetch.step(); }
};

// How many panels of a chunk: no more than fit, nor than there are blocks to hide the first chunk in.
inline size_t panels_per_chunk(size_t panel_bytes, size_t chunk_bytes, size_t blocks) {
  const size_t fitting = chunk_bytes / panel_bytes, most = fitting < blocks ? fitting : blocks;
  return most > 0 ? most : 1;
}

// block(row, num_rows, vector, OtherPanels) for all blocks of a chunk, V vectors of 16 columns each.
template <size_t V, class Block>
HEADWAY_INLINE void walk_chunk(const uint32_t* weight, size_t steps, Range rows, size_t blocks, Range panels,
                               const Block& block) {
  const size_t count = rows.end - rows.begin, to_fetch = (panels.end - panels.begin) * steps;
  const size_t calls = blocks * (panels.end - panels.begin) * kVectorsPerPanel / V;
  const char* next = reinterpret_cast<const char*>(weight) + panels.end * steps * kStepBytes;
  const unsigned front_bits = blocks <= kFewBlocks ? kFrontBits : 0;
  const size_t apart = (to_fetch >> front_bits) * kStepBytes;
  size_t call = 0;
  for (size_t i = 0; i < blocks; ++i) {
    const size_t begin = rows.begin + count * i / blocks, end = rows.begin + count * (i + 1) / blocks;
    for (size_t vector = panels.begin * kVectorsPerPanel; vector < panels.end * kVectorsPerPanel; vector += V) {
      const size_t done = to_fetch * call / calls, due = to_fetch * (call + 1) / calls - done;
      block(begin, end - begin, vector, OtherPanels{{next, front_bits, apart, done, due, steps}});
      ++call;
    }
  }
}

inline size_t blocks_of(Range rows, size_t max_rows) { return (rows.end - rows.begin + max_rows - 1) / max_rows; }

// Row blocks are of nearly equal size; enter(panels) comes before those of a chunk.
template <size_t kMaxRows, size_t V, class Enter, class Block>
HEADWAY_INLINE void walk(const uint32_t* weight, size_t steps, size_t chunk_bytes, Range rows, Range panels,
                         const Enter& enter, const Block& block) {
  const size_t blocks = blocks_of(rows, kMaxRows);
  const size_t chunk = panels_per_chunk(steps * kStepBytes, chunk_bytes, blocks);
  for (size_t first = panels.begin; first < panels.end; first += chunk) {
    const size_t past = first + chunk < panels.end ? first + chunk : panels.end;
    enter(Range{first, past});
    walk_chunk<V>(weight, steps, rows, blocks, {first, past}, block);
  }
}

template <size_t kMaxRows, size_t V, class Block>
HEADWAY_INLINE void walk(const uint32_t* weight, size_t steps, Range rows, Range panels, const Block& block) {
  walk<kMaxRows, V>(weight, steps, kChunkBytes, rows, panels, [](Range) {}, block);
}

}  // namespace headway::HEADWAY_ISA
