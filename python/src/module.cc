// tessera._tessera: the library's classes for the Python half of the package.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <tessera/error.h>
#include <tessera/machine.h>

#include <exception>

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

NB_MODULE(_tessera, m) {
  m.doc() = "Native half of the package tessera. Not public: names may change.";
  nb::register_exception_translator([](const std::exception_ptr& failure, void*) {
    try {
      std::rethrow_exception(failure);
    } catch (const tessera::UsageError& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    } catch (const tessera::Error& e) {
      PyErr_SetString(PyExc_RuntimeError, e.what());
    }
  });
  m.def("default_threads", &tessera::default_threads);
  m.def("set_default_threads", &tessera::set_default_threads, "threads"_a);
  tessera::python::bind_matrix(m);
  tessera::python::bind_weight(m);
  tessera::python::bind_products(m);
  tessera::python::bind_packing(m);
}
