#include "bind/linear_int8.h"

#include "bind/array_view.h"
#include "bind/weight.h"

namespace headway {
namespace {

void pack(Backend& backend, nb::handle weight, nb::handle packed, nb::handle scales) {
  const ArrayView from("weight", weight);
  from.need_float();
  from.need_shape({kAny, kAny});
  const size_t words = packed_words(from.size(0), from.size(1), WeightFormat::kInt8);
  const ArrayView to("packed", packed, Kind::kInt32, {extent(words)}, Access::kWrite);
  const ArrayView factors("scales", scales, Kind::kFloat32, {extent(from.size(0))}, Access::kWrite);
  const Int8PackArgs args{from.as<void>(), from.is_bf16(),      from.size(0), from.size(1),
                          to.as<uint32_t>(), factors.as<float>()};
  const nb::gil_scoped_release unlocked;
  backend.pack_int8(args);
}

}  // namespace

void bind_linear_int8(nb::module_& module, nb::class_<Backend>& backend) {
  module.attr("LAYOUT_INT8") = kLayoutInt8;
  module.def(
      "packed_int8_words",
      [](size_t out_features, size_t in_features) {
        return packed_words(out_features, in_features, WeightFormat::kInt8);
      },
      "32-bit words of a weight packed as int8.");
  backend.def("pack_linear_int8", pack);
}

}  // namespace headway
