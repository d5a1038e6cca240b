// Rows of activations in the form that the kernel of a weight multiplies.
#pragma once

#include "kernels/kernel_table.h"
#include "runtime/aligned_buffer.h"

namespace headway {

enum class WeightFormat { kF32, kBf16, kInt8, kInt4, kGrouped };

struct LinearWeight {
  WeightFormat format;
  size_t group_format;  // of kGrouped: index into kGroupFormats
  const uint32_t* words;
  const float *scales, *bias;  // scales: of whole numbers; bias: or null
  size_t in_features, out_features;
};

class LinearInput {
 public:
  // Make room for `rows` rows of x, [rows][in_features of the weight]; what was there is lost.
  void shape(const KernelTable& kernels, const LinearWeight& weight, const float* x, size_t rows);

  // Take row `row` of x as it is now. float32 is read where it lies.
  void put(size_t row);

  const uint32_t* words() const { return words_; }
  size_t stride() const { return stride_; }  // words from row to row, of float32 and bfloat16
  const Int8Rows& int8_rows() const { return int8_; }
  const GroupedRows& grouped_rows() const { return grouped_; }

 private:
  void shape_whole_numbers(const LinearWeight& weight, size_t rows);
  void put_bf16(size_t row);

  const KernelTable* kernels_ = nullptr;
  WeightFormat format_ = WeightFormat::kF32;
  size_t group_format_ = 0;
  const float* x_ = nullptr;
  size_t in_features_ = 0, steps_ = 0, stride_ = 0;
  const uint32_t* words_ = nullptr;
  Int8Rows int8_{};
  GroupedRows grouped_{};
  AlignedBuffer<uint32_t> word_buffer_;
  AlignedBuffer<int8_t> bytes_;
  AlignedBuffer<float> scales_, sums_;
  AlignedBuffer<int32_t> starts_;
};

}  // namespace headway
