// Weights of 4 bits with a scale for each group.
#include "kernels/linear/grouped_block.h"
#include "kernels/kernel_table.h"

namespace headway::HEADWAY_ISA {

void linear_grouped4(const GroupedLinearArgs& args, Range rows, Range panels) {
  if (args.format == kInt4Format) return GroupedBlock<kInt4Format>::run(args, rows, panels);
  GroupedBlock<kInt4MinimumFormat>::run(args, rows, panels);
}

}  // namespace headway::HEADWAY_ISA
