#pragma once

#include <nanobind/nanobind.h>

#include "runtime/backend.h"

namespace headway {

// Packing of weights with a scale for each group.
void bind_linear_grouped(nanobind::class_<Backend>& backend);

}  // namespace headway
