// Whether a module's tensors are as they were, in one pass: by functions of PyTorch's libraries, which are
// looked up where they are loaded, since the extension is built without PyTorch.
#include <dlfcn.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "arrays.h"
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

/// Address and bytes of a tensor's memory; 0 bytes: it is not read.
using TensorMemory = std::pair<uintptr_t, uint64_t>;

/// A word of a tensor's memory as it was.
struct SampledWord {
  const std::byte* at = nullptr;
  uint64_t bytes = 0;
  uint64_t value = 0;

  uint64_t now() const {
    uint64_t word = 0;
    if (bytes < sizeof word)
      std::memcpy(&word, at, bytes);
    else
      std::memcpy(&word, at, sizeof word);
    return word;
  }
  bool is_changed() const { return now() != value; }
};

/// Words at equal distances, each moved on to the next that is not zero: factors and masks leave zeros
/// as they are. Words hold whole elements: low bytes alone stay as they are when a factor is a power of 2.
std::vector<SampledWord> words_of(const TensorMemory& memory, uint64_t count) {
  constexpr uint64_t kWord = sizeof(uint64_t), kMostZeros = 4096 * kWord;
  const auto* begin = pointer<const std::byte>(memory.first);
  const uint64_t bytes = memory.second, last = bytes < kWord ? 0 : bytes - kWord;
  const auto word_at = [&](uint64_t place) {
    SampledWord word{begin + place, std::min(bytes, kWord), 0};
    word.value = word.now();
    return word;
  };
  std::vector<SampledWord> words;
  for (uint64_t i = 0; i < (bytes == 0 ? 0 : count); ++i) {
    const uint64_t start = i + 1 < count ? last * i / (count - 1) / kWord * kWord : last;
    const uint64_t end = std::min({last, last * (i + 1) / (count - 1), start + kMostZeros});
    SampledWord word = word_at(start);
    for (uint64_t place = start + kWord; word.value == 0 && place < end; place += kWord)
      word = word_at(place);
    words.push_back(word.value == 0 ? word_at(start) : word);
  }
  return words;
}

/// A number that changes with most contents of some memory, by a few of its words and where they lie.
uint64_t fingerprint(const std::vector<TensorMemory>& memory) {
  constexpr uint64_t kWords = 32, kFactor = 0x9E3779B97F4A7C15;
  uint64_t mixed = memory.size();
  const auto mix = [&](uint64_t word) { mixed = (std::rotl(mixed, 27) ^ word) * kFactor; };
  for (const TensorMemory& each : memory)
    for (const SampledWord& word : words_of(each, kWords)) {
      mix(reinterpret_cast<uintptr_t>(word.at));
      mix(word.value);
    }
  return mixed;
}

/// Tensors, and their versions, addresses, types, sizes and strides as they were, and a few words of their
/// memory: what writes to that by itself leaves the version as it is.
class TensorStates {
 public:
  /// Takes over references to strided tensors that have versions.
  TensorStates(const std::vector<nb::capsule>& tensors, const std::vector<TensorMemory>& memory)
      : functions_(*tensor_functions()) {
    for (const nb::capsule& handle : tensors) tensors_.push_back(state_of(handle.data()));
    for (size_t i = 0; i < std::min(tensors_.size(), memory.size()); ++i)
      tensors_[i].words = words_of(memory[i], kWords);
  }
  TensorStates(const TensorStates&) = delete;
  TensorStates& operator=(const TensorStates&) = delete;
  ~TensorStates() {
    for (const Tensor& each : tensors_) functions_.release(each.handle);
  }

  bool are_unchanged() const {
    return std::ranges::none_of(tensors_,
                                [&](const Tensor& each) { return is_changed(each) || is_written(each); });
  }

  /// Whether the memory of a tensor that is the same has other contents.
  bool are_written() const {
    return std::ranges::any_of(tensors_,
                               [&](const Tensor& each) { return !is_changed(each) && is_written(each); });
  }

  std::vector<bool> changed() const {
    std::vector<bool> changed;
    for (const Tensor& each : tensors_) changed.push_back(is_changed(each));
    return changed;
  }

 private:
  static constexpr uint64_t kWords = 6;  // of each tensor

  struct Tensor {
    Handle handle;
    int64_t version = 0;
    void* address = nullptr;
    int32_t type = 0;
    std::vector<int64_t> sizes, strides;
    std::vector<SampledWord> words;
  };

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

  Tensor state_of(Handle handle) const {
    const auto sizes = list_of(handle, functions_.sizes), strides = list_of(handle, functions_.strides);
    return {.handle = handle,
            .version = functions_.version(handle),
            .address = address_of(handle),
            .type = type_of(handle),
            .sizes = {sizes.begin(), sizes.end()},
            .strides = {strides.begin(), strides.end()},
            .words = {}};
  }

  bool is_changed(const Tensor& was) const {
    return functions_.version(was.handle) != was.version || address_of(was.handle) != was.address ||
           type_of(was.handle) != was.type ||
           !std::ranges::equal(list_of(was.handle, functions_.sizes), was.sizes) ||
           !std::ranges::equal(list_of(was.handle, functions_.strides), was.strides);
  }

  /// Whether the memory of a tensor that is not changed has other contents.
  static bool is_written(const Tensor& was) {
    return std::ranges::any_of(was.words, &SampledWord::is_changed);
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
  m.def("fingerprint", &fingerprint, "memory"_a,
        "A number that changes with most contents of memory, given by addresses and bytes.");
  m.def(
      "reads_tensor_states", [] { return tensor_functions().has_value(); },
      "Whether TensorStates can be made with the PyTorch that is loaded.");
  nb::class_<TensorStates>(
      m, "TensorStates",
      "Tensors, and their versions, addresses, types, sizes and strides as they were, and "
      "some of their contents.")
      .def(nb::init<const std::vector<nb::capsule>&, const std::vector<TensorMemory>&>(), "tensors"_a,
           "memory"_a,
           "Takes over AtenTensorHandles of strided tensors that have versions; `memory` has their addresses "
           "and bytes.")
      .def("are_unchanged", &TensorStates::are_unchanged)
      .def("are_written", &TensorStates::are_written,
           "Whether a tensor that is as it was has other contents.")
      .def("changed", &TensorStates::changed,
           "For each tensor, whether it is another, or of another version.");
}

}  // namespace tessera::python
