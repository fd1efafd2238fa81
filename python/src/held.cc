// Whether a module's tensors are as they were, in one pass: by functions of PyTorch's libraries, which are
// looked up where they are loaded, since the extension is built without PyTorch.
#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bindings.h"
#include "prefetch.h"

namespace tessera::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

/// What PyTorch calls AtenTensorHandle: a reference to a tensor.
using Handle = void*;

/// Functions on tensors; all but `version` belong to PyTorch's stable interface in C, where 0 says that all
/// is well.
struct TensorFunctions {
  int64_t (*version)(Handle) = nullptr;
  int32_t (*address)(Handle, void**) = nullptr;
  int32_t (*type)(Handle, int32_t*) = nullptr;
  int32_t (*dimensions)(Handle, int64_t*) = nullptr;
  int32_t (*sizes)(Handle, int64_t**) = nullptr;
  int32_t (*strides)(Handle, int64_t**) = nullptr;
  int32_t (*release)(Handle) = nullptr;
};

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

/// None if PyTorch is not loaded, or has no such functions.
std::optional<TensorFunctions> find_tensor_functions() {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return std::nullopt;
  TensorFunctions found;
  const bool has_all = find(library, "_ZNK2at10TensorBase8_versionEv", found.version) &&
                       find(library, "aoti_torch_get_data_ptr", found.address) &&
                       find(library, "aoti_torch_get_dtype", found.type) &&
                       find(library, "aoti_torch_get_dim", found.dimensions) &&
                       find(library, "aoti_torch_get_sizes", found.sizes) &&
                       find(library, "aoti_torch_get_strides", found.strides) &&
                       find(library, "aoti_torch_delete_tensor_object", found.release);
  return has_all ? std::optional(found) : std::nullopt;
}

const std::optional<TensorFunctions>& tensor_functions() {
  static const std::optional<TensorFunctions> found = find_tensor_functions();
  return found;
}

/// Tensors, and their versions, addresses, types, sizes and strides as they were. Code that writes to their
/// memory directly changes none of these.
class TensorStates {
 public:
  /// Takes over references to strided tensors that have versions.
  explicit TensorStates(const std::vector<nb::capsule>& tensors) : functions_(*tensor_functions()) {
    for (const nb::capsule& handle : tensors) add(handle.data());
  }
  TensorStates(const TensorStates&) = delete;
  TensorStates& operator=(const TensorStates&) = delete;
  ~TensorStates() {
    for (const Tensor& each : tensors_) functions_.release(each.handle);
  }

  bool are_unchanged() const {
    for (size_t i = 0; i < std::min(kAhead, tensors_.size()); ++i) tensors_[i].prefetch();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (i + kAhead < tensors_.size()) tensors_[i + kAhead].prefetch();
      if (is_changed(tensors_[i])) return false;
    }
    return true;
  }

  std::vector<bool> changed() const {
    std::vector<bool> changed;
    for (const Tensor& each : tensors_) changed.push_back(is_changed(each));
    return changed;
  }

 private:
  static constexpr size_t kAhead = 4;

  struct Tensor {
    Handle handle;
    int64_t version = 0;
    void* address = nullptr;
    int32_t type = 0;
    uint32_t dimensions = 0;
    size_t first = 0;  ///< of its sizes, which its strides follow
    /// Where its header lies, and what that points to: its storage and the counter of its versions.
    const void* header = nullptr;
    std::array<const void*, 4> parts{};

    /// If the tensor has other parts by now, the parts that it had.
    void prefetch() const {
      prefetch_bytes(handle, sizeof(void*));
      prefetch_bytes(header, kHeaderBytes);
      for (const void* part : parts)
        if (part != nullptr) prefetch_bytes(part, kLineBytes);
    }
  };

  /// Layout of PyTorch's TensorImpl: its size, and which of its words is the first address of a part. With
  /// another PyTorch other memory is prefetched, and no more.
  static constexpr size_t kHeaderBytes = 192, kFirstPart = 2;

  std::span<const int64_t> list_of(Handle handle, int32_t (*of)(Handle, int64_t**)) const {
    int64_t count = 0;
    int64_t* list = nullptr;
    functions_.dimensions(handle, &count);
    of(handle, &list);
    return {list, static_cast<size_t>(count)};
  }

  void* address_of(Handle handle) const {
    void* address = nullptr;
    functions_.address(handle, &address);
    return address;
  }

  int32_t type_of(Handle handle) const {
    int32_t type = 0;
    functions_.type(handle, &type);
    return type;
  }

  void add(Handle handle) {
    const auto sizes = list_of(handle, functions_.sizes), strides = list_of(handle, functions_.strides);
    Tensor tensor{.handle = handle,
                  .version = functions_.version(handle),
                  .address = address_of(handle),
                  .type = type_of(handle),
                  .dimensions = static_cast<uint32_t>(sizes.size()),
                  .first = lengths_.size(),
                  .header = address_in(handle, 0),
                  .parts = {}};
    for (size_t i = 0; tensor.header != nullptr && i < tensor.parts.size(); ++i)
      tensor.parts[i] = address_in(tensor.header, kFirstPart + i);
    lengths_.insert(lengths_.end(), sizes.begin(), sizes.end());
    lengths_.insert(lengths_.end(), strides.begin(), strides.end());
    tensors_.push_back(tensor);
  }

  bool is_changed(const Tensor& was) const {
    return functions_.version(was.handle) != was.version || address_of(was.handle) != was.address ||
           type_of(was.handle) != was.type ||
           !std::ranges::equal(list_of(was.handle, functions_.sizes), lengths_of(was, 0)) ||
           !std::ranges::equal(list_of(was.handle, functions_.strides), lengths_of(was, was.dimensions));
  }

  std::span<const int64_t> lengths_of(const Tensor& was, size_t from) const {
    return std::span(lengths_).subspan(was.first + from, was.dimensions);
  }

  TensorFunctions functions_;
  std::vector<Tensor> tensors_;
  std::vector<int64_t> lengths_;  ///< sizes and strides of all
};

/// Where a list has dictionaries, which are then read in this order.
class DictionariesAhead {
 public:
  explicit DictionariesAhead(const AnyList& dictionaries) : dictionaries_(dictionaries.ptr()) {}

  /// Fetches what is read soon after number `i`: first a dictionary, later the table of its entries.
  void prefetch(size_t i) const {
    constexpr size_t kTable = 4, kValues = 5, kTableBytes = 192;
    if (PyObject* far = number(i + 2 * kAhead)) prefetch_bytes(far, kLineBytes);
    PyObject* near = number(i + kAhead);
    if (near == nullptr || PyDict_Check(near) == 0) return;
    // Dictionaries of objects of one class share a table, and have their values apart.
    for (const size_t part : {kTable, kValues})
      if (const void* at = address_in(near, part)) prefetch_bytes(at, kTableBytes);
  }

 private:
  static constexpr size_t kAhead = 8;

  /// Null if there are not as many.
  PyObject* number(size_t i) const {
    const auto count = static_cast<size_t>(PyList_Size(dictionaries_));
    return i < count ? PyList_GetItem(dictionaries_, static_cast<Py_ssize_t>(i)) : nullptr;
  }

  PyObject* dictionaries_;
};

/// Whether dictionaries have just these values, by identity, one after another.
bool have_values(const AnyList& dictionaries, const AnyList& values) {
  const size_t count = values.size();
  size_t i = 0, place = 0;
  const DictionariesAhead ahead(dictionaries);
  for (const nb::handle each : dictionaries) {
    ahead.prefetch(place++);
    if (!PyDict_Check(each.ptr())) return false;
    PyObject* name = nullptr;
    PyObject* value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(each.ptr(), &at, &name, &value) != 0; ++i) {
      if (i == count || value != values[i].ptr()) return false;
    }
  }
  return i == count;
}

/// Whether a setting is what it was. If it was None, which often reserves a place for a computed value, only
/// a plain value counts as a change.
bool is_same_setting(PyObject* now, PyObject* was) {
  if (now == was || now == nullptr) return now == was;
  if (was == Py_None)
    return !(PyBool_Check(now) || PyLong_CheckExact(now) || PyFloat_CheckExact(now) ||
             PyUnicode_CheckExact(now));
  if (Py_TYPE(now) != Py_TYPE(was)) return false;
  const nb::object kept = nb::borrow(now);
  return PyObject_RichCompareBool(now, was, Py_EQ) == 1;
}

/// Whether dictionaries have these plain values by these names.
bool have_items(const AnyList& dictionaries, const AnyList& names, const AnyList& values) {
  const size_t count = std::min({dictionaries.size(), names.size(), values.size()});
  const DictionariesAhead ahead(dictionaries);
  for (size_t i = 0; i < count; ++i) {
    ahead.prefetch(i);
    const auto at = static_cast<Py_ssize_t>(i);
    PyObject* now =
        PyDict_GetItemWithError(PyList_GetItem(dictionaries.ptr(), at), PyList_GetItem(names.ptr(), at));
    if (is_same_setting(now, PyList_GetItem(values.ptr(), at))) continue;
    PyErr_Clear();
    return false;
  }
  return true;
}

}  // namespace

void bind_held(nb::module_& m) {
  m.def("have_values", &have_values, "dictionaries"_a, "values"_a,
        "Whether dictionaries have just these values, by identity, one after another.");
  m.def("have_items", &have_items, "dictionaries"_a, "names"_a, "values"_a,
        "Whether dictionaries have these plain values by these names.");
  m.def(
      "reads_tensor_states", [] { return tensor_functions().has_value(); },
      "Whether TensorStates can be made with the PyTorch that is loaded.");
  nb::class_<TensorStates>(m, "TensorStates",
                           "Tensors, and their versions, addresses, types, sizes and strides as they were.")
      .def(nb::init<const std::vector<nb::capsule>&>(), "tensors"_a,
           "Takes over AtenTensorHandles of strided tensors that have versions.")
      .def("are_unchanged", &TensorStates::are_unchanged)
      .def("changed", &TensorStates::changed,
           "For each tensor, whether it is another, or of another version.");
}

}  // namespace tessera::python
