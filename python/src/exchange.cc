#include "exchange.h"

#include "arrays.h"
#include "bindings.h"

namespace tessera::python {
namespace {

using namespace nb::literals;

// The layouts of DLPack, version 1 (dmlc/dlpack, dlpack.h).
constexpr uint32_t kMajorVersion = 1;
constexpr int32_t kCpu = 1;
constexpr uint8_t kFloat = 2;
constexpr uint8_t kFloatBits = 32;

struct ExchangeHeader {
  uint32_t major, minor;
  ExchangeHeader* previous;
};

/// The truth value that a method without arguments returned.
bool is_true(PyObject* result) {
  if (result == nullptr) throw nb::python_error();
  const int truth = PyObject_IsTrue(result);
  Py_DECREF(result);
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

/// Names of methods, made once: they live as long as the process.
PyObject* interned(const char* name) { return PyUnicode_InternFromString(name); }

}  // namespace

struct TensorReader::Raw {
  void* data;
  int32_t device_type, device_id;
  int32_t dimensions;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

TensorReader::TensorReader(nb::object tensors, nb::object parameters, nb::object empty_like,
                           nb::list watchers)
    : tensors_(std::move(tensors)), parameters_(std::move(parameters)), empty_like_(std::move(empty_like)) {
  struct Api {
    ExchangeHeader header;
    void* allocate;
    void* from_object;
    void* to_object;
    Read read;
    void* stream;
  };
  const nb::object capsule = nb::getattr(tensors_, "__dlpack_c_exchange_api__", nb::none());
  auto* api = static_cast<Api*>(
      capsule.is_none() ? nullptr : PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  PyErr_Clear();
  if (api == nullptr || api->header.major != kMajorVersion || api->read == nullptr)
    type_error("tensors have no DLPack exchange API of version 1");
  read_ = api->read;
  for (nb::handle watcher : watchers) watchers_.push_back(nb::borrow(watcher));
}

bool TensorReader::is_watched() const {
  for (const nb::object& watcher : watchers_)
    if (is_true(PyObject_CallNoArgs(watcher.ptr()))) return true;
  return false;
}

std::optional<FloatTensor> TensorReader::read(nb::handle object) const {
  static PyObject* const is_neg = interned("is_neg");
  const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  if (type != tensors_.ptr() && type != parameters_.ptr()) return {};
  Raw raw;
  if (read_(object.ptr(), &raw) != 0) {  // a tensor without memory of its own
    PyErr_Clear();
    return {};
  }
  if (raw.device_type != kCpu || raw.code != kFloat || raw.bits != kFloatBits || raw.lanes != 1 ||
      raw.data == nullptr)
    return {};
  const auto dimensions = static_cast<size_t>(raw.dimensions);
  int64_t stride = 1;
  for (size_t d = dimensions; d-- > 0; stride *= raw.shape[d])
    if (raw.shape[d] != 1 && raw.strides[d] != stride) return {};
  if (is_true(PyObject_CallMethodNoArgs(object.ptr(), is_neg))) return {};
  return FloatTensor{reinterpret_cast<float*>(static_cast<std::byte*>(raw.data) + raw.byte_offset),
                     {raw.shape, dimensions}};
}

nb::object TensorReader::make(nb::handle like) const {
  PyObject* made = PyObject_CallOneArg(empty_like_.ptr(), like.ptr());
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

nb::object TensorReader::make(nb::handle like, const nb::tuple& shape) {
  static PyObject* const new_empty = interned("new_empty");
  PyObject* made = PyObject_CallMethodOneArg(like.ptr(), new_empty, shape.ptr());
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

void bind_exchange(nb::module_& m) {
  nb::class_<TensorReader>(m, "TensorReader", "Reads tensors by DLPack's exchange API.")
      .def(nb::init<nb::object, nb::object, nb::object, nb::list>(), "tensors"_a, "parameters"_a,
           "empty_like"_a, "watchers"_a,
           nb::sig("def __init__(self, tensors: type, parameters: type, empty_like: object, "
                   "watchers: object) -> None"));
}

}  // namespace tessera::python
