// The one place that chooses an instruction set.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/kernel_table.h"

namespace headway {

struct IsaChoice {
  const char* name;
  const KernelTable& (*kernels)();  // null: not in this build; to be called only if it can run
  bool can_run;                     // on this machine
};

// Best first. The last, amx_emulated, is for tests: tiles in plain C++, on any machine.
const std::vector<IsaChoice>& isa_choices();

// Null when there is no set of this name.
const IsaChoice* find_isa(std::string_view name);

}  // namespace headway
