// Blocks of GGUF files to float32, the kinds that most files are made of.
// Twin: src/headway/model/weights/dequantize.py, which knows the others, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headway {

enum class BlockKind { kQ4_0, kQ4_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };

struct BlockType {
  std::string_view name;
  BlockKind kind;
  size_t num_bytes, num_values;
};

inline constexpr BlockType kBlockTypes[] = {
    {"Q4_0", BlockKind::kQ4_0, 18, 32},   {"Q4_1", BlockKind::kQ4_1, 20, 32},   {"Q8_0", BlockKind::kQ8_0, 34, 32},
    {"Q4_K", BlockKind::kQ4_K, 144, 256}, {"Q5_K", BlockKind::kQ5_K, 176, 256}, {"Q6_K", BlockKind::kQ6_K, 210, 256}};

}  // namespace headway
