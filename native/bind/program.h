#pragma once

#include <nanobind/nanobind.h>

namespace headway {

void bind_program(nanobind::module_& module);

}  // namespace headway
