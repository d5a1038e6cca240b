// A stage is a part of a pass whose tasks may run on any threads at once; stages run one after another.
#pragma once

#include <cstddef>

namespace headway {

inline constexpr size_t kMaxTasks = (size_t{1} << 20) - 1;  // of a stage

struct Memory {
  const char* start = nullptr;
  size_t bytes = 0;
};

class Stage {
 public:
  virtual ~Stage() = default;

  virtual const char* name() const = 0;

  // How many tasks there are for so many threads, kMaxTasks at most. Called once the stages before are done.
  virtual size_t prepare(size_t num_threads) = 0;

  // On any thread, in any order, once for each task. May throw, as `prepare` may: memory can run out.
  virtual void run(size_t task) = 0;

  // What a thread will most likely read first, so that it can be fetched while the thread has nothing
  // else to do. Called before `prepare`.
  virtual Memory first_read(size_t /*thread*/, size_t /*num_threads*/) const { return {}; }
};

}  // namespace headway
