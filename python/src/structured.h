// Structured products in Python.
#pragma once

#include <nanobind/nanobind.h>
#include <tessera/structured.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::python {

namespace nb = nanobind;

class Product {
 public:
  Product(const Structure& structure, uint32_t batch, bool transposed, uint32_t threads, bool bias);

  const StructuredProduct& planned() const { return product_; }

  /// Of arrays of NumPy and others, which are checked.
  nb::object call(nb::object x, nb::args parameters) const;
  nb::tuple gradients(nb::object x, nb::object dy, nb::args parameters) const;

  /// Of addresses.
  void run(uintptr_t x, const std::vector<uintptr_t>& parameters, uintptr_t y) const;
  void run_gradients(uintptr_t x, uintptr_t dy, const std::vector<uintptr_t>& parameters, uintptr_t dx,
                     const std::vector<uintptr_t>& gradients) const;

 private:
  std::vector<size_t> samples_of(uint32_t features) const;
  std::vector<const float*> parameters_from(const nb::args& given) const;

  StructuredProduct product_;
  bool transposed_;
  uint32_t inputs_, outputs_;
};

}  // namespace tessera::python
