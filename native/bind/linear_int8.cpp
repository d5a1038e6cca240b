#include "bind/linear_int8.h"

#include "bind/array_view.h"
#include "bind/weight.h"

namespace headway {
namespace {

using Pack = void (Backend::*)(const WholePackArgs&);

template <Pack kPack>
void pack(Backend& backend, const char* layout, nb::handle weight, nb::handle packed, nb::handle scales) {
  const ArrayView from("weight", weight);
  from.need_float();
  from.need_shape({kAny, kAny});
  const size_t words = packed_words(layout, from.size(0), from.size(1));
  const ArrayView to("packed", packed, Kind::kInt32, {extent(words)}, Access::kWrite);
  const ArrayView factors("scales", scales, Kind::kFloat32, {extent(from.size(0))}, Access::kWrite);
  const WholePackArgs args{from.as<void>(), from.is_bf16(),      from.size(0), from.size(1),
                           to.as<uint32_t>(), factors.as<float>()};
  const nb::gil_scoped_release unlocked;
  (backend.*kPack)(args);
}

void pack_int8(Backend& backend, nb::handle weight, nb::handle packed, nb::handle scales) {
  pack<&Backend::pack_int8>(backend, kLayoutInt8, weight, packed, scales);
}

void pack_int4(Backend& backend, nb::handle weight, nb::handle packed, nb::handle scales) {
  pack<&Backend::pack_int4>(backend, kLayoutInt4, weight, packed, scales);
}

}  // namespace

void bind_linear_int8(nb::module_& module, nb::class_<Backend>& backend) {
  module.attr("LAYOUT_INT8") = kLayoutInt8;
  module.attr("LAYOUT_INT4") = kLayoutInt4;
  backend.def("pack_linear_int8", pack_int8).def("pack_linear_int4", pack_int4);
}

}  // namespace headway
