#pragma once

#include <nanobind/nanobind.h>

namespace headway {

void bind_dequantize(nanobind::module_& module);

}  // namespace headway
