#pragma once

#include <nanobind/nanobind.h>

#include "runtime/backend.h"

namespace headway {

// The methods and names of products whose weights have a scale for each group.
void bind_linear_grouped(nanobind::module_& module, nanobind::class_<Backend>& backend);

}  // namespace headway
