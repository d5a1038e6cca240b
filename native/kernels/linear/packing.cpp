#include "kernels/linear/linear.h"

#include <algorithm>
#include <cstring>

#include "kernels/bfloat16.h"

namespace headway {
namespace {

// A step is read from every column before the next ones are: whole cache lines of each row, and
// what is written of them stays in the first cache.
constexpr size_t kBlockSteps = 16;

uint32_t half_of(uint16_t bf16) { return bf16; }
uint32_t half_of(float value) { return to_bf16(value); }
uint32_t whole_of(uint16_t bf16) { return __builtin_bit_cast(uint32_t, from_bf16(bf16)); }
uint32_t whole_of(float value) { return __builtin_bit_cast(uint32_t, value); }

struct Block {
  size_t count;  // steps
  uint32_t* words;
};

template <class Element>
void pack_pairs(const Element* row, const Block& block) {
  for (size_t step = 0; step < block.count; ++step) {
    block.words[step * kPanelColumns] = half_of(row[2 * step]) | half_of(row[2 * step + 1]) << 16;
  }
}

template <class Element>
void pack_singles(const Element* row, const Block& block) {
  for (size_t step = 0; step < block.count; ++step) block.words[step * kPanelColumns] = whole_of(row[step]);
}

template <class Element>
void pack_rows(const PackArgs& args, size_t first, size_t count, uint32_t* words) {
  const size_t per_step = args.to_bf16 ? 2 : 1, steps = args.in_features / per_step;
  const Element* rows = static_cast<const Element*>(args.weight) + first * args.in_features;
  for (size_t step = 0; step < steps; step += kBlockSteps) {
    for (size_t column = 0; column < count; ++column) {
      const Element* row = rows + column * args.in_features + step * per_step;
      const Block block{std::min(kBlockSteps, steps - step), words + step * kPanelColumns + column};
      args.to_bf16 ? pack_pairs(row, block) : pack_singles(row, block);
    }
  }
  if (steps * per_step == args.in_features) return;
  for (size_t column = 0; column < count; ++column) {  // the last has no partner
    words[steps * kPanelColumns + column] = half_of(rows[(column + 1) * args.in_features - 1]);
  }
}

}  // namespace

void pack_panel(const PackArgs& args, size_t panel) {
  const size_t panel_words = steps_of(args.in_features, args.to_bf16) * kPanelColumns;
  uint32_t* words = args.packed + panel * panel_words;
  const size_t first = panel * kPanelColumns, count = std::min(kPanelColumns, args.out_features - first);
  const size_t filled = args.to_bf16 ? args.in_features / 2 * kPanelColumns : panel_words;
  if (count < kPanelColumns) std::memset(words, 0, filled * sizeof *words);
  std::memset(words + filled, 0, (panel_words - filled) * sizeof *words);
  (args.from_bf16 ? pack_rows<uint16_t> : pack_rows<float>)(args, first, count, words);
}

}  // namespace headway
