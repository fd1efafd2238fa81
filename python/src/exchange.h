// Tensors of PyTorch, read by the C functions of DLPack's exchange API: a call from Python takes longer than
// a small product.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera::python {

namespace nb = nanobind;

/// A contiguous tensor of float32 in main memory.
struct FloatTensor {
  float* data = nullptr;
  std::span<const int64_t> shape;  ///< the tensor's own
};

class TensorReader {
 public:
  /// A reader of instances of `tensors`, which has `__dlpack_c_exchange_api__`, and of its subclass
  /// `parameters`. `empty_like` is the library's function. `watchers` return a true value where PyTorch must
  /// see every operator. Throws TypeError for a type without that API, or with another version of it.
  TensorReader(nb::object tensors, nb::object parameters, nb::object empty_like, nb::list watchers);

  bool is_watched() const;

  /// The tensor of an object; none if it is not a contiguous float32 tensor in main memory, or is a lazily
  /// negated view.
  std::optional<FloatTensor> read(nb::handle object) const;

  /// A new tensor of the type of `like`, which was read before, with its shape, or with a shape given as a
  /// tuple.
  nb::object make(nb::handle like) const;
  static nb::object make(nb::handle like, const nb::tuple& shape);

 private:
  struct Raw;  // DLTensor
  using Read = int (*)(void* object, Raw* out);

  Read read_ = nullptr;
  nb::object tensors_, parameters_, empty_like_;
  std::vector<nb::object> watchers_;
};

}  // namespace tessera::python
