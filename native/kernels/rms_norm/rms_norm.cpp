#include "kernels/kernel_table.h"
#include "kernels/rms_norm/row.h"

namespace headway::HEADWAY_ISA {

void rms_norm(const RmsNormArgs& args, Range rows) {
  for (size_t row = rows.begin; row < rows.end; ++row) {
    const size_t start = row * args.width;
    rms_norm_row(args.x + start, args.weight, args.eps, args.width, args.out + start);
  }
}

}  // namespace headway::HEADWAY_ISA
