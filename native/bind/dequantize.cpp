#include "bind/dequantize.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bind/array_view.h"
#include "kernels/dequantize/dequantize.h"
#include "runtime/dispatch.h"

namespace headway {
namespace {

constexpr size_t kPartValues = 4096;  // wide values that stay in the first cache until they are rounded

// Whole numbers and two roundings in a fixed order: every instruction set gives the same bits.
const KernelTable& best_kernels() {
  for (const IsaChoice& choice : isa_choices()) {
    if (choice.can_run && choice.kernels != nullptr) return choice.kernels();
  }
  fail("this build has no kernels");
}

const BlockType& block_type(std::string_view name) {
  for (const BlockType& type : kBlockTypes) {
    if (type.name == name) return type;
  }
  fail("blocks of type '", name, "' are not decoded here");
}

std::vector<std::string> block_types() {
  std::vector<std::string> names;
  for (const BlockType& type : kBlockTypes) names.emplace_back(type.name);
  return names;
}

void narrow_parts(const KernelTable& kernels, const BlockType& type, const uint8_t* blocks, size_t count,
                  uint16_t* out) {
  alignas(64) float wide[kPartValues];
  const size_t step = kPartValues / type.num_values;
  for (size_t first = 0; first < count; first += step) {
    const size_t some = std::min(step, count - first);
    kernels.dequantize(type, blocks + first * type.num_bytes, some, wide);
    kernels.narrow(wide, some * type.num_values, out + first * type.num_values);
  }
}

void dequantize(const std::string& name, nb::handle blocks, nb::handle out) {
  const BlockType& type = block_type(name);
  const ArrayView from("blocks", blocks, Kind::kUint8, {kAny, extent(type.num_bytes)});
  const ArrayView to("out", out, Access::kWrite);
  to.need_float();
  to.need_shape({extent(from.size(0)), extent(type.num_values)});
  to.need_apart_from(from);
  const KernelTable& kernels = best_kernels();
  const nb::gil_scoped_release unlocked;
  if (to.is_bf16()) return narrow_parts(kernels, type, from.as<const uint8_t>(), from.size(0), to.as<uint16_t>());
  kernels.dequantize(type, from.as<const uint8_t>(), from.size(0), to.as<float>());
}

}  // namespace

void bind_dequantize(nb::module_& module) {
  module.def("block_types", block_types, "Types of blocks that `dequantize` decodes.");
  module.def("dequantize", dequantize, "Blocks uint8 [n, num_bytes] of a type to float32 or bfloat16 [n, num_values].");
}

}  // namespace headway
