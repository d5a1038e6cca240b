#include "runtime/linear_input.h"

#include <cstring>

namespace headway {

void LinearInput::shape(const KernelTable& kernels, WeightFormat format, const float* x, size_t rows,
                        size_t in_features) {
  kernels_ = &kernels;
  format_ = format;
  x_ = x;
  in_features_ = in_features;
  if (format == WeightFormat::kF32) {
    words_ = reinterpret_cast<const uint32_t*>(x);
  } else if (format == WeightFormat::kBf16) {
    steps_ = steps_of(in_features, true);
    words_ = word_buffer_.at_least(rows * steps_ * kernels.bf16_parts);
  } else {
    const size_t groups = rows * int8_groups_of(in_features);
    int8_ = {bytes_.at_least(groups * kInt8Group), scales_.at_least(groups), starts_.at_least(groups), rows};
    words_ = reinterpret_cast<const uint32_t*>(int8_.bytes);
  }
}

void LinearInput::put(size_t row) {
  if (format_ == WeightFormat::kBf16) put_bf16(row);
  if (format_ == WeightFormat::kInt8) kernels_->quantize_row(x_ + row * in_features_, in_features_, int8_, row);
}

// Rounded, and filled up with zeros to whole steps.
void LinearInput::put_bf16(size_t row) {
  const size_t width = steps_ * kernels_->bf16_parts;
  const size_t used = kernels_->bf16_parts == 2 ? in_features_ : (in_features_ + 1) / 2;
  uint32_t* to = const_cast<uint32_t*>(words_) + row * width;
  kernels_->round_bf16(x_ + row * in_features_, in_features_, to);
  std::memset(to + used, 0, (width - used) * sizeof *to);
}

}  // namespace headway
