// Whether a module's tensors are as they were, in one pass: by functions of PyTorch's libraries, which are
// looked up where they are loaded, since the extension is built without PyTorch.
#include <dlfcn.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "bindings.h"

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
                       find(library, "aoti_torch_delete_tensor_object", found.release);
  return has_all ? std::optional(found) : std::nullopt;
}

const std::optional<TensorFunctions>& tensor_functions() {
  static const std::optional<TensorFunctions> found = find_tensor_functions();
  return found;
}

struct TensorState {
  int64_t version = 0;
  void* address = nullptr;
  int32_t type = 0;
  bool operator==(const TensorState&) const = default;
};

/// Tensors, and their versions, addresses and types as they were.
class TensorStates {
 public:
  /// Takes over references to tensors that have versions, and whether each has an address.
  explicit TensorStates(const std::vector<std::pair<nb::capsule, bool>>& tensors)
      : functions_(*tensor_functions()) {
    for (const auto& [handle, has_address] : tensors) {
      Tensor added{handle.data(), has_address, {}};
      added.state = state_of(added);
      tensors_.push_back(added);
    }
  }
  TensorStates(const TensorStates&) = delete;
  TensorStates& operator=(const TensorStates&) = delete;
  ~TensorStates() {
    for (const Tensor& each : tensors_) functions_.release(each.handle);
  }

  bool are_unchanged() const {
    return std::ranges::all_of(tensors_, [&](const Tensor& each) { return state_of(each) == each.state; });
  }

  std::vector<bool> changed() const {
    std::vector<bool> changed;
    for (const Tensor& each : tensors_) changed.push_back(state_of(each) != each.state);
    return changed;
  }

 private:
  struct Tensor {
    Handle handle;
    bool has_address;
    TensorState state;
  };

  TensorState state_of(const Tensor& tensor) const {
    TensorState state;
    state.version = functions_.version(tensor.handle);
    functions_.type(tensor.handle, &state.type);
    if (tensor.has_address) functions_.address(tensor.handle, &state.address);
    return state;
  }

  TensorFunctions functions_;
  std::vector<Tensor> tensors_;
};

/// Whether dictionaries have just these values, by identity, one after another.
bool have_values(const AnyList& dictionaries, const AnyList& values) {
  const size_t count = values.size();
  size_t i = 0;
  for (const nb::handle each : dictionaries) {
    if (!PyDict_Check(each.ptr())) return false;
    PyObject* name = nullptr;
    PyObject* value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(each.ptr(), &at, &name, &value) != 0; ++i) {
      if (i == count || value != values[i].ptr()) return false;
    }
  }
  return i == count;
}

}  // namespace

void bind_held(nb::module_& m) {
  m.def("have_values", &have_values, "dictionaries"_a, "values"_a,
        "Whether dictionaries have just these values, by identity, one after another.");
  m.def(
      "reads_tensor_states", [] { return tensor_functions().has_value(); },
      "Whether TensorStates can be made with the PyTorch that is loaded.");
  nb::class_<TensorStates>(m, "TensorStates",
                           "Tensors, and their versions, addresses and types as they were.")
      .def(nb::init<const std::vector<std::pair<nb::capsule, bool>>&>(), "tensors"_a,
           "Takes over AtenTensorHandles of tensors that have versions, and whether each has an address.")
      .def("are_unchanged", &TensorStates::are_unchanged)
      .def("changed", &TensorStates::changed, "For each tensor, whether it is not as it was.");
}

}  // namespace tessera::python
