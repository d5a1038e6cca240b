#include "bind/linear_grouped.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bind/array_view.h"
#include "bind/weight.h"

namespace headway {
namespace {

size_t format_of(const std::string& layout) {
  const std::optional<size_t> index = group_format_of(layout);
  need(index.has_value(), "the weight is packed as '", layout, "', which is not a layout with groups");
  return *index;
}

void pack(Backend& backend, const std::string& layout, nb::handle numbers, nb::handle scales,
          const OptionalArray& minimums, nb::handle packed) {
  const size_t index = format_of(layout);
  const GroupFormat& format = kGroupFormats[index];
  const ArrayView from("numbers", numbers, Kind::kUint8, {kAny, kAny});
  const size_t rows = from.size(0), in_features = from.size(1);
  const Py_ssize_t groups = extent(format.groups_of(in_features));
  const ArrayView factors("scales", scales, Kind::kUint16, {extent(rows), groups});
  need(minimums.has_value() == format.has_minimum, "minimums ", format.has_minimum ? "must" : "must not", " be given");
  std::optional<ArrayView> offsets;
  if (minimums) {
    offsets.emplace("minimums", *minimums, Kind::kUint16, std::initializer_list<Py_ssize_t>{extent(rows), groups});
  }
  const ArrayView to("packed", packed, Kind::kInt32, {extent(packed_words(layout, rows, in_features))}, Access::kWrite);
  const GroupedPackArgs args{index, from.as<const uint8_t>(), factors.as<const uint16_t>(),
                             offsets ? offsets->as<const uint16_t>() : nullptr, rows, in_features, to.as<uint32_t>()};
  const nb::gil_scoped_release unlocked;
  backend.pack_grouped(args);
}

}  // namespace

void bind_linear_grouped(nb::class_<Backend>& backend) { backend.def("pack_linear_grouped", pack); }

}  // namespace headway
