#include "bind/linear_int8.h"

#include <nanobind/stl/optional.h>

#include "bind/array_view.h"

namespace headway {
namespace {

size_t packed_words(size_t out_features, size_t in_features) {
  return panels_of(out_features) * int8_panel_words(int8_groups_of(in_features));
}

void pack(Backend& backend, nb::handle weight, nb::handle packed, nb::handle scales) {
  const ArrayView from("weight", weight);
  from.need_float();
  from.need_shape({kAny, kAny});
  const ArrayView to("packed", packed, Kind::kInt32, {extent(packed_words(from.size(0), from.size(1)))}, Access::kWrite);
  const ArrayView factors("scales", scales, Kind::kFloat32, {extent(from.size(0))}, Access::kWrite);
  const Int8PackArgs args{from.as<void>(), from.is_bf16(),      from.size(0), from.size(1),
                          to.as<uint32_t>(), factors.as<float>()};
  const nb::gil_scoped_release unlocked;
  backend.pack_int8(args);
}

void linear(Backend& backend, nb::handle x, nb::handle packed, nb::handle scales, const OptionalArray& bias,
            size_t in_features, nb::handle out, bool accumulate) {
  const ArrayView factors("weight.scales", scales, Kind::kFloat32, {kAny});
  const size_t out_features = factors.count();
  const ArrayView rows("x", x, Kind::kFloat32, {kAny, extent(in_features)});
  const ArrayView weight("weight.data", packed, Kind::kInt32, {extent(packed_words(out_features, in_features))});
  const OptionalView added("weight.bias", bias, out_features);
  const ArrayView result("out", out, Kind::kFloat32, {extent(rows.size(0)), extent(out_features)}, Access::kWrite);
  result.need_apart_from(rows);
  const LinearCall call{rows.as<const float>(),
                        {WeightFormat::kInt8, weight.as<const uint32_t>(), factors.as<const float>(), added.data(),
                         in_features, out_features},
                        result.as<float>(), rows.size(0), accumulate};
  const nb::gil_scoped_release unlocked;
  backend.linear(call);
}

}  // namespace

void bind_linear_int8(nb::module_& module, nb::class_<Backend>& backend) {
  module.attr("LAYOUT_INT8") = kLayoutInt8;
  module.def("packed_int8_words", packed_words, "32-bit words of a weight packed as int8.");
  backend.def("pack_linear_int8", pack).def("linear_int8", linear);
}

}  // namespace headway
