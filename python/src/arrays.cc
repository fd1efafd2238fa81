#include "arrays.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <limits>

namespace tessera::python {
namespace {

constexpr nb::dlpack::dtype kFloat32 = nb::dtype<float>();

/// Whether it is a tensor of PyTorch that requires gradients: not every version refuses to export one.
bool requires_grad(nb::handle object) {
  if (PyObject_CheckBuffer(object.ptr()) != 0) return false;  // NumPy's arrays: saves them the look-up
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");  // lives as long as the process
  PyObject* found = PyObject_GetAttr(object.ptr(), name);
  PyErr_Clear();
  const bool required = found == Py_True;
  Py_XDECREF(found);
  return required;
}

template <class Array>
Array import_array(nb::handle object, const char* name) {
  Array array;
  if (!nb::ndarray_check(object))
    type_error(fmt::format("{} must be an array: of NumPy, a CPU tensor of PyTorch, or any other with DLPack",
                           name));
  if (requires_grad(object))
    type_error(fmt::format("{} requires gradients, which this call does not compute: detach it", name));
  if (!nb::try_cast(object, array)) {
    nb::ndarray<nb::ro> readable;
    if (nb::try_cast(object, readable)) throw UsageError(fmt::format("{} is read-only", name));
    type_error(
        fmt::format("{} cannot be read in place: it must be a dense array in memory, of numbers in this "
                    "computer's byte order",
                    name));
  }
  if (array.device_type() != nb::device::cpu::value)
    type_error(
        fmt::format("{} lies on another device (DLPack type {}); Tessera's kernels run on the CPU: "
                    "copy it to main memory",
                    name, array.device_type()));
  return array;
}

template <class Array>
Operand matrix_of(const Array& array, const char* name, uint64_t rows, uint64_t cols) {
  if (array.dtype() != kFloat32)
    type_error(fmt::format("{} has elements of type {}; they must be float32", name, name_of(array.dtype())));
  if (array.ndim() != 2 || array.shape(0) != rows || array.shape(1) != cols) {
    std::string shape;
    for (size_t d = 0; d < array.ndim(); ++d)
      shape += fmt::format("{}{}", d == 0 ? "" : " × ", array.shape(d));
    throw UsageError(fmt::format("{} is {}; it must be {} × {}", name, array.ndim() == 0 ? "a scalar" : shape,
                                 rows, cols));
  }
  float* data = static_cast<float*>(const_cast<void*>(static_cast<const void*>(array.data())));
  const int64_t down = array.stride(0), across = array.stride(1);
  if (rows == 0 || cols == 0) return {data, Layout::row_major, 0, 0};
  const auto span = static_cast<uint64_t>(static_cast<int64_t>(rows - 1) * down +
                                          static_cast<int64_t>(cols - 1) * across + 1);
  if ((across == 1 || cols == 1) && (down >= static_cast<int64_t>(cols) || rows == 1))
    return {data, Layout::row_major, rows == 1 ? 0 : down, span};
  if ((down == 1 || rows == 1) && (across >= static_cast<int64_t>(rows) || cols == 1))
    return {data, Layout::column_major, cols == 1 ? 0 : across, span};
  throw UsageError(
      fmt::format("{} has strides of {} and {} elements; one must be 1 and the other at least as "
                  "long as a row or column: make it contiguous",
                  name, down, across));
}

template <class Array>
auto* vector_of(const Array& array, const char* name) {
  if (array.dtype() != kFloat32)
    type_error(fmt::format("{} has elements of type {}; they must be float32", name, name_of(array.dtype())));
  if (array.ndim() != 1 || !is_contiguous(array))
    throw UsageError(fmt::format("{} must be one-dimensional and contiguous", name));
  return array.data();
}

template <class From, class To>
void convert(const nb::ndarray<nb::ro>& array, const char* name, std::vector<To>& out) {
  const auto* from = static_cast<const From*>(array.data());
  const int64_t down = array.stride(0), across = array.ndim() == 2 ? array.stride(1) : 0;
  const size_t width = array.ndim() == 2 ? array.shape(1) : 1;
  for (size_t i = 0; i < out.size(); ++i) {
    const From value =
        from[static_cast<int64_t>(i / width) * down + static_cast<int64_t>(i % width) * across];
    if (!std::in_range<To>(value))
      throw UsageError(fmt::format("{}: entry {} is {}; entries must be from 0 to {}", name, i, value,
                                   std::numeric_limits<To>::max()));
    out[i] = static_cast<To>(value);
  }
}

}  // namespace

void type_error(const std::string& message) { throw nb::type_error(message.c_str()); }

uint64_t whole_number(nb::handle value, const char* name, uint64_t least, uint64_t most) {
  nb::object number;
  if (!PyBool_Check(value.ptr()) && PyIndex_Check(value.ptr()) != 0)
    number = nb::steal(PyNumber_Index(value.ptr()));
  PyErr_Clear();
  if (!number.is_valid())
    type_error(fmt::format("{} must be a whole number, not {}", name, nb::repr(value).c_str()));
  const uint64_t found = PyLong_AsUnsignedLongLong(number.ptr());
  const bool is_outside = PyErr_Occurred() != nullptr;
  PyErr_Clear();
  if (is_outside || found < least || found > most)
    throw UsageError(
        fmt::format("{} is {}; it must be from {} to {}", name, nb::repr(number).c_str(), least, most));
  return found;
}

std::string name_of(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  const char* kind = "";
  switch (static_cast<Code>(type.code)) {
    case Code::Int: kind = "int"; break;
    case Code::UInt: kind = "uint"; break;
    case Code::Float: kind = "float"; break;
    case Code::Bfloat: kind = "bfloat"; break;
    case Code::Complex: kind = "complex"; break;
    case Code::Bool: return "bool";
    default: return fmt::format("DLPack code {}", type.code);
  }
  return fmt::format("{}{}", kind, type.bits);
}

nb::ndarray<nb::ro> array_of(nb::handle object, const char* name) {
  return import_array<nb::ndarray<nb::ro>>(object, name);
}

nb::ndarray<> writable_array_of(nb::handle object, const char* name) {
  return import_array<nb::ndarray<>>(object, name);
}

Operand operand_of(nb::handle object, const char* name, uint64_t rows, uint64_t cols) {
  return matrix_of(array_of(object, name), name, rows, cols);
}

Operand result_of(nb::handle object, const char* name, uint64_t rows, uint64_t cols) {
  return matrix_of(writable_array_of(object, name), name, rows, cols);
}

std::span<const float> floats_of(nb::handle object, const char* name) {
  const auto array = array_of(object, name);
  return {static_cast<const float*>(vector_of(array, name)), array.size()};
}

std::span<float> writable_floats_of(nb::handle object, const char* name) {
  const auto array = writable_array_of(object, name);
  return {static_cast<float*>(vector_of(array, name)), array.size()};
}

template <class T>
std::vector<T> integers_of(nb::handle object, const char* name, uint32_t width) {
  const nb::ndarray<nb::ro> array = array_of(object, name);
  if (width == 1 && array.ndim() != 1) throw UsageError(fmt::format("{} must be one-dimensional", name));
  if (width != 1 && (array.ndim() != 2 || array.shape(1) != width))
    throw UsageError(fmt::format("{} must be a matrix of {} columns", name, width));
  std::vector<T> out(array.size());
  const nb::dlpack::dtype type = array.dtype();
  if (type == nb::dtype<int32_t>())
    convert<int32_t>(array, name, out);
  else if (type == nb::dtype<int64_t>())
    convert<int64_t>(array, name, out);
  else if (type == nb::dtype<uint32_t>())
    convert<uint32_t>(array, name, out);
  else if (type == nb::dtype<uint64_t>())
    convert<uint64_t>(array, name, out);
  else
    type_error(fmt::format("{} has elements of type {}; they must be integers of 32 or 64 bits", name,
                           name_of(type)));
  return out;
}

template std::vector<uint32_t> integers_of(nb::handle, const char*, uint32_t);
template std::vector<uint64_t> integers_of(nb::handle, const char*, uint32_t);

}  // namespace tessera::python
