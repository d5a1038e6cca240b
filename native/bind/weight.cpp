#include "bind/weight.h"

namespace headway {

std::optional<size_t> group_format_of(std::string_view layout) {
  for (size_t index = 0; index < kNumGroupFormats; ++index) {
    if (layout == kGroupFormats[index].layout) return index;
  }
  return std::nullopt;
}

namespace {

WeightFormat format_of(std::string_view layout) {
  if (layout == kLayoutF32) return WeightFormat::kF32;
  if (layout == kLayoutBf16) return WeightFormat::kBf16;
  if (layout == kLayoutInt8) return WeightFormat::kInt8;
  if (layout == kLayoutInt4) return WeightFormat::kInt4;
  if (group_format_of(layout)) return WeightFormat::kGrouped;
  fail("the weight is packed as '", layout, "', this backend reads '", kLayoutF32, "', '", kLayoutBf16, "', '",
       kLayoutInt8, "', '", kLayoutInt4, "' and those with groups");
}

constexpr size_t kMaxFeatures = size_t{1} << 31;  // so that no number of words overflows

Kind kind_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32: return Kind::kFloat32;
    case WeightFormat::kBf16: return Kind::kUint16;
    default: return Kind::kInt32;
  }
}

size_t panel_words(std::string_view layout, size_t in_features) {
  switch (format_of(layout)) {
    case WeightFormat::kF32: return steps_of(in_features, false) * kPanelColumns;
    case WeightFormat::kBf16: return steps_of(in_features, true) * kPanelColumns;
    case WeightFormat::kInt8: return int8_panel_words(int8_groups_of(in_features));
    case WeightFormat::kInt4: return int4_panel_words(in_features);
    case WeightFormat::kGrouped: return kGroupFormats[*group_format_of(layout)].panel_words(in_features);
  }
  return 0;
}

}  // namespace

size_t packed_words(std::string_view layout, size_t out_features, size_t in_features) {
  need(0 < out_features && out_features <= kMaxFeatures && 0 < in_features && in_features <= kMaxFeatures,
       "a weight has 1 to ", kMaxFeatures, " rows and columns, got ", out_features, " and ", in_features);
  return panels_of(out_features) * panel_words(layout, in_features);
}

WeightView::WeightView(nb::handle packed, const OptionalArray& scales, const OptionalArray& bias, size_t out_features,
                       size_t in_features, const char* layout)
    : group_format_(group_format_of(layout)),
      format_(format_of(layout)),
      out_features_(out_features),
      in_features_(in_features),
      packed_("weight.data", packed),
      scales_("weight.scales", scales, out_features),
      bias_("weight.bias", bias, out_features) {
  const size_t words = packed_words(layout, out_features, in_features);
  packed_.need_kind(kind_of(format_));
  packed_.need_shape({extent(format_ == WeightFormat::kBf16 ? 2 * words : words)});
  const bool has_whole_numbers = format_ != WeightFormat::kF32 && format_ != WeightFormat::kBf16;
  need(!has_whole_numbers || scales_.data() != nullptr, "weight.scales must be given with '", layout, "', got None");
}

LinearWeight WeightView::weight() const {
  return {format_,        group_format_.value_or(0), packed_.as<const uint32_t>(), scales_.data(), bias_.data(),
          in_features_, out_features_};
}

}  // namespace headway
