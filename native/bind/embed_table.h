// What `embed` takes rows from: a table [vocabulary, width], or a packed weight seen as its panels,
// [panels, steps, 32] float32 or [panels, steps, 32, 2] bfloat16, without padding.
#pragma once

#include "bind/array_view.h"
#include "kernels/kernel_table.h"

namespace headway {

struct EmbedTable {
  explicit EmbedTable(nb::handle table) : array("table", table) {
    array.need_float();
    const size_t pair = array.is_bf16() ? 2 : 1;
    if (array.rank() == (array.is_bf16() ? 4 : 3)) {
      if (array.is_bf16()) {
        array.need_shape({kAny, kAny, extent(kPanelColumns), 2});
      } else {
        array.need_shape({kAny, kAny, extent(kPanelColumns)});
      }
      panel_steps = array.size(1);
      vocabulary = array.size(0) * kPanelColumns;
      width = panel_steps * pair;
      return;
    }
    array.need_shape({kAny, kAny});
    vocabulary = array.size(0);
    width = array.size(1);
  }

  EmbedArgs args(const int32_t* token_ids, float* out) const {
    return {array.as<void>(), panel_steps, array.is_bf16(), token_ids, width, out};
  }

  ArrayView array;
  size_t vocabulary = 0, width = 0, panel_steps = 0;
};

}  // namespace headway
