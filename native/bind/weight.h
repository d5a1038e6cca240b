// A packed weight, whatever its layout, checked.
#pragma once

#include <optional>
#include <string_view>

#include "bind/array_view.h"
#include "runtime/stages.h"

namespace headway {

// 32-bit words of a weight in this layout. Refuses layouts that there are not, and sizes whose words overflow.
size_t packed_words(std::string_view layout, size_t out_features, size_t in_features);

// Index into kGroupFormats.
std::optional<size_t> group_format_of(std::string_view layout);

class WeightView {
 public:
  WeightView(nb::handle packed, const OptionalArray& scales, const OptionalArray& bias, size_t out_features,
             size_t in_features, const char* layout);

  LinearWeight weight() const;

 private:
  std::optional<size_t> group_format_;
  WeightFormat format_;
  size_t out_features_, in_features_;
  ArrayView packed_;
  OptionalView scales_, bias_;
};

}  // namespace headway
