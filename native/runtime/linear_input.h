// Rows of activations in the form that the kernel of a weight multiplies.
#pragma once

#include "kernels/kernel_table.h"
#include "runtime/aligned_buffer.h"

namespace headway {

enum class WeightFormat { kF32, kBf16, kInt8 };

class LinearInput {
 public:
  // Make room for `rows` rows of x, [rows][in_features]; what was there is lost.
  void shape(const KernelTable& kernels, WeightFormat format, const float* x, size_t rows, size_t in_features);

  // Take row `row` of x as it is now. float32 is read where it lies.
  void put(size_t row);

  const uint32_t* words() const { return words_; }
  const Int8Rows& int8_rows() const { return int8_; }

 private:
  void put_bf16(size_t row);

  const KernelTable* kernels_ = nullptr;
  WeightFormat format_ = WeightFormat::kF32;
  const float* x_ = nullptr;
  size_t in_features_ = 0, steps_ = 0;
  const uint32_t* words_ = nullptr;
  Int8Rows int8_{};
  AlignedBuffer<uint32_t> word_buffer_;
  AlignedBuffer<int8_t> bytes_;
  AlignedBuffer<float> scales_;
  AlignedBuffer<int32_t> starts_;
};

}  // namespace headway
