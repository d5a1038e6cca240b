#pragma once

#include <nanobind/nanobind.h>

#include "runtime/backend.h"

namespace headway {

// The methods and names of weights rounded to int8 or int4.
void bind_linear_int8(nanobind::module_& module, nanobind::class_<Backend>& backend);

}  // namespace headway
