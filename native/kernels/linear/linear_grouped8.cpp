// Weights of 8 bits with a scale for each group.
#include "kernels/linear/grouped_block.h"
#include "kernels/kernel_table.h"

namespace headway::HEADWAY_ISA {

void linear_grouped8(const GroupedLinearArgs& args, Range rows, Range panels) {
  if (args.format == kInt8Format) return GroupedBlock<kInt8Format>::run(args, rows, panels);
  if (args.format == kInt8MinimumFormat) return GroupedBlock<kInt8MinimumFormat>::run(args, rows, panels);
  if (args.format == kInt8Group16Format) return GroupedBlock<kInt8Group16Format>::run(args, rows, panels);
  GroupedBlock<kInt8Group16MinimumFormat>::run(args, rows, panels);
}

}  // namespace headway::HEADWAY_ISA
