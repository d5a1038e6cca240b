#include "bind/weight.h"

#include <string_view>

namespace headway {
namespace {

WeightFormat format_of(std::string_view layout) {
  if (layout == kLayoutF32) return WeightFormat::kF32;
  if (layout == kLayoutBf16) return WeightFormat::kBf16;
  if (layout == kLayoutInt8) return WeightFormat::kInt8;
  fail("the weight is packed as '", layout, "', this backend reads '", kLayoutF32, "', '", kLayoutBf16, "' and '",
       kLayoutInt8, "'");
}

Kind kind_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32: return Kind::kFloat32;
    case WeightFormat::kBf16: return Kind::kUint16;
    default: return Kind::kInt32;
  }
}

}  // namespace

size_t packed_words(size_t out_features, size_t in_features, WeightFormat format) {
  if (format == WeightFormat::kInt8) return panels_of(out_features) * int8_panel_words(int8_groups_of(in_features));
  return panels_of(out_features) * steps_of(in_features, format == WeightFormat::kBf16) * kPanelColumns;
}

WeightView::WeightView(nb::handle packed, const OptionalArray& scales, const OptionalArray& bias, size_t out_features,
                       size_t in_features, const char* layout)
    : format_(format_of(layout)),
      out_features_(out_features),
      in_features_(in_features),
      packed_("weight.data", packed),
      scales_("weight.scales", scales, out_features),
      bias_("weight.bias", bias, out_features) {
  packed_.need_kind(kind_of(format_));
  const size_t words = packed_words(out_features, in_features, format_);
  packed_.need_shape({extent(format_ == WeightFormat::kBf16 ? 2 * words : words)});
  need(format_ != WeightFormat::kInt8 || scales_.data() != nullptr, "weight.scales must be given with int8, got None");
}

LinearWeight WeightView::weight() const {
  return {format_, packed_.as<const uint32_t>(), scales_.data(), bias_.data(), in_features_, out_features_};
}

}  // namespace headway
