// Arrays of other libraries, taken in place by DLPack or the buffer protocol, and arrays handed to NumPy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <tessera/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera::python {

namespace nb = nanobind;

/// Throws TypeError with this message.
[[noreturn]] void type_error(const std::string& message);

/// The value of an argument that is an integer of Python or NumPy. Throws TypeError for anything else,
/// ValueError unless it is from `least` to `most`; both name the argument.
uint64_t whole_number(nb::handle value, const char* name, uint64_t least = 0, uint64_t most = UINT32_MAX);

/// Maximum number of threads.
inline constexpr uint32_t kMostThreads = 4096;

/// Arrays of any type and shape in main memory. Throw TypeError, naming the argument, for anything else, for
/// a tensor that requires gradients, since products are not differentiated here, and ValueError for a
/// read-only array that is to be written.
nb::ndarray<nb::ro> array_of(nb::handle object, const char* name);
nb::ndarray<> writable_array_of(nb::handle object, const char* name);

/// Whether elements lie in row-major order without gaps.
bool is_contiguous(const auto& array) {
  int64_t stride = 1;
  for (size_t d = array.ndim(); d-- > 0; stride *= static_cast<int64_t>(array.shape(d)))
    if (array.shape(d) > 1 && array.stride(d) != stride) return false;
  return true;
}

/// "float32", "int64", …
std::string name_of(nb::dlpack::dtype type);

/// The addresses of arrays that the caller has checked.
template <class T>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}
template <class T>
std::vector<T*> pointers(const std::vector<uintptr_t>& addresses) {
  std::vector<T*> found;
  found.reserve(addresses.size());
  for (const uintptr_t address : addresses) found.push_back(pointer<T>(address));
  return found;
}

/// A matrix of floats with one contiguous dimension, in the caller's memory.
struct Operand {
  float* data = nullptr;
  Layout layout = Layout::row_major;
  int64_t leading = 0;  ///< the stride that is not 1
  uint64_t span = 0;    ///< number of elements from the first to the last, inclusive

  bool overlaps(const Operand& other) const {
    return data < other.data + other.span && other.data < data + span;
  }
};

/// A float32 matrix of rows × cols. Throw TypeError for another type, ValueError for another shape and if no
/// stride is 1. The array must stay alive during the call, as its caller guarantees.
Operand operand_of(nb::handle object, const char* name, uint64_t rows, uint64_t cols);
Operand result_of(nb::handle object, const char* name, uint64_t rows, uint64_t cols);

/// A contiguous one-dimensional float32 array of any length.
std::span<const float> floats_of(nb::handle object, const char* name);
std::span<float> writable_floats_of(nb::handle object, const char* name);

/// An array of 32 or 64-bit integers, one-dimensional or with rows of `width`, converted. Throws ValueError,
/// naming the first value that is negative or too large.
template <class T>
std::vector<T> integers_of(nb::handle object, const char* name, uint32_t width = 1);

/// A one-dimensional NumPy array, and an array of rows.
template <class T>
using Numbers = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
template <class T>
using Rows = nb::ndarray<nb::numpy, T, nb::ndim<2>>;

/// Return policy of properties that return such an array, which keeps its owner alive.
inline constexpr auto kOwned = nb::rv_policy::automatic;

/// An array in memory that lives as long as `owner`.
template <class T>
Numbers<T> view_of(std::span<T> values, nb::handle owner) {
  return Numbers<T>(values.data(), {values.size()}, owner);
}

/// A capsule that owns an object, for arrays in its memory.
template <class Owned>
nb::capsule keep(Owned* owned) {
  return nb::capsule(owned, [](void* p) noexcept { delete static_cast<Owned*>(p); });
}

/// An array that takes a vector over.
template <class T>
Numbers<T> array_from(std::vector<T> values) {
  auto* kept = new std::vector<T>(std::move(values));
  return Numbers<T>(kept->data(), {kept->size()}, keep(kept));
}

/// An array in rows of `width` that takes a vector over.
template <class T>
Rows<T> rows_from(std::vector<T> values, size_t width) {
  auto* kept = new std::vector<T>(std::move(values));
  return Rows<T>(kept->data(), {kept->size() / width, width}, keep(kept));
}

}  // namespace tessera::python
