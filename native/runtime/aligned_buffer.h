// Memory at a cache line that grows when it must and is kept for the next call.
#pragma once

#include <cstddef>
#include <new>

namespace headway {

template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer() { release(); }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  // At least `count` elements; what was there before is lost when the memory grows.
  T* at_least(size_t count) {
    if (count > capacity_) {
      release();
      memory_ = static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
      capacity_ = count;
    }
    return memory_;
  }

 private:
  static constexpr std::align_val_t kAlignment{64};

  void release() {
    ::operator delete(memory_, kAlignment);
    memory_ = nullptr;
    capacity_ = 0;
  }

  T* memory_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace headway
