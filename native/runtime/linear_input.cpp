#include "runtime/linear_input.h"

#include <cstring>

namespace headway {

void LinearInput::shape(const KernelTable& kernels, const LinearWeight& weight, const float* x, size_t rows) {
  kernels_ = &kernels;
  format_ = weight.format;
  group_format_ = weight.group_format;
  x_ = x;
  in_features_ = weight.in_features;
  if (format_ == WeightFormat::kF32) {
    words_ = reinterpret_cast<const uint32_t*>(x);
    stride_ = in_features_;
  } else if (format_ == WeightFormat::kBf16) {
    steps_ = steps_of(in_features_, true);
    stride_ = padded_stride(steps_ * kernels.bf16_parts);
    words_ = word_buffer_.at_least(rows * stride_);
  } else {
    shape_whole_numbers(weight, rows);
  }
}

void LinearInput::shape_whole_numbers(const LinearWeight& weight, size_t rows) {
  const size_t places = int8_row_places(rows), parts = places * int8_groups_of(in_features_);
  int8_t* bytes = bytes_.at_least(parts * kInt8Group);
  float* scales = scales_.at_least(parts);
  if (format_ != WeightFormat::kGrouped) {
    int8_ = {bytes, scales, starts_.at_least(parts), places};
  } else {
    const size_t groups = places * kGroupFormats[weight.group_format].groups_of(in_features_);
    grouped_ = {bytes, scales, starts_.at_least(groups), sums_.at_least(groups), places};
  }
  words_ = reinterpret_cast<const uint32_t*>(bytes);
}

void LinearInput::put(size_t row) {
  const float* x = x_ + row * in_features_;
  switch (format_) {
    case WeightFormat::kF32: return;
    case WeightFormat::kBf16: return put_bf16(row);
    case WeightFormat::kInt8:
    case WeightFormat::kInt4: return kernels_->quantize_row(x, in_features_, int8_, row);
    case WeightFormat::kGrouped:
      return kernels_->quantize_grouped_row(x, in_features_, kGroupFormats[group_format_], grouped_, row);
  }
}

// Rounded, and filled up with zeros to whole steps.
void LinearInput::put_bf16(size_t row) {
  const size_t width = steps_ * kernels_->bf16_parts;
  const size_t used = kernels_->bf16_parts == 2 ? in_features_ : (in_features_ + 1) / 2;
  uint32_t* to = const_cast<uint32_t*>(words_) + row * stride_;
  kernels_->round_bf16(x_ + row * in_features_, in_features_, to);
  std::memset(to + used, 0, (width - used) * sizeof *to);
}

}  // namespace headway
