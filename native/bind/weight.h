// A packed weight, whatever its layout, checked.
#pragma once

#include <optional>
#include <string_view>

#include "bind/array_view.h"
#include "runtime/stages.h"

namespace headway {

// Of the formats that have one number for a whole matrix.
size_t packed_words(size_t out_features, size_t in_features, WeightFormat format);

// Index into kGroupFormats.
std::optional<size_t> group_format_of(std::string_view layout);

class WeightView {
 public:
  WeightView(nb::handle packed, const OptionalArray& scales, const OptionalArray& bias, size_t out_features,
             size_t in_features, const char* layout);

  LinearWeight weight() const;

 private:
  size_t num_words() const;

  std::optional<size_t> group_format_;
  WeightFormat format_;
  size_t out_features_, in_features_;
  ArrayView packed_;
  OptionalView scales_, bias_;
};

}  // namespace headway
