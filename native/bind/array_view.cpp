#include "bind/array_view.h"

#include <cstring>

namespace headway {
namespace {

struct KindNames {
  const char* name;
  const char* formats;  // codes of the buffer protocol
  Py_ssize_t bytes;
};

const KindNames& names_of(Kind kind) {
  static const KindNames names[] = {
      {"float32", "f", 4}, {"uint16", "H", 2},   {"int32", "il", 4},
      {"int64", "lq", 8},  {"uint64", "LQ", 8}, {"uint8", "B", 1}};
  return names[static_cast<size_t>(kind)];
}

}  // namespace

ArrayView::ArrayView(const char* name, nb::handle array, Access access)
    : name_(name), array_(array) {
  if (PyObject_GetBuffer(array.ptr(), &buffer_, PyBUF_STRIDED_RO | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    throw nb::type_error((std::string(name) + " must be a numpy array").c_str());
  }
  const char* problem = nullptr;
  if (!PyBuffer_IsContiguous(&buffer_, 'C')) {
    problem = " must be C-contiguous: pass np.ascontiguousarray of it";
  } else if (access == Access::kWrite && buffer_.readonly) {
    problem = " must be writable";
  }
  if (problem == nullptr) return;
  PyBuffer_Release(&buffer_);  // the destructor does not run when a constructor throws
  fail(name, problem);
}

ArrayView::ArrayView(const char* name, nb::handle array, Kind kind, std::initializer_list<Py_ssize_t> shape,
                     Access access)
    : ArrayView(name, array, access) {
  need_kind(kind);
  need_shape(shape);
}

bool ArrayView::is(Kind kind) const {
  const KindNames& wanted = names_of(kind);
  const char* format = buffer_.format;
  return format[0] != '\0' && format[1] == '\0' && std::strchr(wanted.formats, format[0]) != nullptr &&
         buffer_.itemsize == wanted.bytes;
}

void ArrayView::need_kind(Kind kind) const {
  if (is(kind)) return;
  const std::string sentence =
      std::string(name_) + " must be a " + names_of(kind).name + " array, got " + dtype();
  throw nb::type_error(sentence.c_str());
}

void ArrayView::need_float() const {
  if (is(Kind::kFloat32) || is(Kind::kUint16)) return;
  const std::string sentence =
      std::string(name_) + " must be a float32 array, or uint16 holding bfloat16, got " + dtype();
  throw nb::type_error(sentence.c_str());
}

std::string ArrayView::dtype() const {
  if (nb::hasattr(array_, "dtype")) {
    const nb::object dtype = array_.attr("dtype");
    return nb::str(nb::handle(dtype)).c_str();
  }
  return std::string("format ") + buffer_.format;
}

void ArrayView::need_shape(std::initializer_list<Py_ssize_t> shape) const {
  bool fits = shape.size() == rank();
  size_t axis = 0;
  for (const Py_ssize_t wanted : shape) {
    if (!fits) break;
    fits = wanted == kAny || wanted == buffer_.shape[axis];
    ++axis;
  }
  if (fits) return;
  std::ostringstream sentence;
  sentence << name_ << " must have shape [";
  const char* comma = "";
  for (const Py_ssize_t wanted : shape) {
    sentence << comma << (wanted == kAny ? "any" : std::to_string(wanted));
    comma = ", ";
  }
  sentence << "], got [";
  for (size_t i = 0; i < rank(); ++i) sentence << (i > 0 ? ", " : "") << buffer_.shape[i];
  fail(sentence.str(), "]");
}

template <class T>
void ArrayView::check_range(int64_t low, int64_t high) const {
  const T* values = as<T>();
  for (size_t i = 0; i < count(); ++i) {
    need(low <= values[i] && values[i] < high, name_, " must lie in [", low, ", ", high, "), got ", values[i]);
  }
}

void ArrayView::need_in_range(int64_t low, int64_t high) const {
  is(Kind::kInt32) ? check_range<int32_t>(low, high) : check_range<int64_t>(low, high);
}

void ArrayView::need_apart_from(const ArrayView& other) const {
  const char *begin = as<const char>(), *other_begin = other.as<const char>();
  const bool apart = begin + buffer_.len <= other_begin || other_begin + other.buffer_.len <= begin;
  need(apart, name_, " and ", other.name_, " must not overlap");
}

}  // namespace headway
