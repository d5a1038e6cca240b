// How work is cut into tasks. How it is cut never changes a result.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/linear/linear.h"

namespace headway {

inline constexpr size_t kMinWork = 16 * 1024;  // elements or multiplications below which one thread is faster
inline constexpr size_t kTasksPerThread = 4;   // so that a thread that was interrupted delays less

inline size_t tasks_for(size_t count, size_t cost, size_t num_threads) {
  if (num_threads == 1) return std::min<size_t>(count, 1);
  const size_t worthwhile = std::max<size_t>(1, count * std::max<size_t>(1, cost) / kMinWork);
  return std::min({count, worthwhile, num_threads * kTasksPerThread});
}

inline Range piece(size_t count, size_t index, size_t pieces) {
  return {count * index / pieces, count * (index + 1) / pieces};
}

}  // namespace headway
