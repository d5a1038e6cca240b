#pragma once

#include <nanobind/nanobind.h>

#include "runtime/backend.h"

namespace headway {

// The int8 product's methods and names.
void bind_linear_int8(nanobind::module_& module, nanobind::class_<Backend>& backend);

}  // namespace headway
