// A packed weight, whatever its layout, checked.
#pragma once

#include "bind/array_view.h"
#include "runtime/stages.h"

namespace headway {

size_t packed_words(size_t out_features, size_t in_features, WeightFormat format);

class WeightView {
 public:
  WeightView(nb::handle packed, const OptionalArray& scales, const OptionalArray& bias, size_t out_features,
             size_t in_features, const char* layout);

  LinearWeight weight() const;

 private:
  WeightFormat format_;
  size_t out_features_, in_features_;
  ArrayView packed_;
  OptionalView scales_, bias_;
};

}  // namespace headway
