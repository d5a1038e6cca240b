// A checked look at a numpy array: dtype, shape, contiguity, writability, or a sentence why not.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>

namespace headway {

namespace nb = nanobind;

enum class Kind { kFloat32, kUint16, kInt32, kInt64, kUint64, kUint8 };
enum class Access { kRead, kWrite };

inline constexpr Py_ssize_t kAny = -1;

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream sentence;
  (sentence << ... << parts);
  throw nb::value_error(sentence.str().c_str());
}

template <class... Parts>
void need(bool holds, const Parts&... parts) {
  if (!holds) fail(parts...);
}

class ArrayView {
 public:
  ArrayView(const char* name, nb::handle array, Access access = Access::kRead);
  ArrayView(const char* name, nb::handle array, Kind kind, std::initializer_list<Py_ssize_t> shape,
            Access access = Access::kRead);
  ~ArrayView() { PyBuffer_Release(&buffer_); }
  ArrayView(const ArrayView&) = delete;
  ArrayView& operator=(const ArrayView&) = delete;

  bool is(Kind kind) const;
  void need_kind(Kind kind) const;
  void need_float() const;  // float32, or uint16 holding bfloat16
  void need_shape(std::initializer_list<Py_ssize_t> shape) const;
  void need_in_range(int64_t low, int64_t high) const;  // of int32 or int64: all in [low, high)
  void need_apart_from(const ArrayView& other) const;

  bool is_bf16() const { return is(Kind::kUint16); }
  size_t rank() const { return static_cast<size_t>(buffer_.ndim); }
  size_t size(size_t axis) const { return static_cast<size_t>(buffer_.shape[axis]); }
  size_t count() const { return static_cast<size_t>(buffer_.len / buffer_.itemsize); }
  template <class T>
  T* as() const {
    return static_cast<T*>(buffer_.buf);
  }

 private:
  template <class T>
  void check_range(int64_t low, int64_t high) const;
  std::string dtype() const;

  const char* name_;
  nb::handle array_;
  Py_buffer buffer_{};
};

inline Py_ssize_t extent(size_t size) { return static_cast<Py_ssize_t>(size); }

// An array, or None.
using OptionalArray = std::optional<nb::object>;

// A float32 vector of a known length, or null.
struct OptionalView {
  OptionalView(const char* name, const OptionalArray& array, size_t length) {
    if (!array) return;
    view.emplace(name, *array, Kind::kFloat32, std::initializer_list<Py_ssize_t>{extent(length)});
  }
  const float* data() const { return view ? view->as<const float>() : nullptr; }
  std::optional<ArrayView> view;
};

}  // namespace headway
