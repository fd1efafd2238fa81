// tessera._tessera: the library's classes for the Python half of the package.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <nanobind/typing.h>
#include <tessera/error.h>
#include <tessera/machine.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "arguments.h"
#include "arrays.h"
#include "base/isa.h"
#include "bindings.h"
#include "machine/host/detect.h"

namespace nb = nanobind;
using namespace nb::literals;

NB_MODULE(_tessera, m) {
#ifdef NDEBUG
  // What scripts leave alive when the interpreter ends is no concern of their users.
  nb::set_leak_warnings(false);
#endif
  m.attr("T") = nb::type_var("T");  // for stubs
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
  m.def(
      "whole_number",
      [](const char* name, nb::object value, uint64_t least, uint64_t most) {
        return tessera::python::whole_number(value, name, least, most);
      },
      "name"_a, "value"_a.none(), "least"_a = 0, "most"_a = UINT32_MAX,
      nb::sig("def whole_number(name: str, value: object, least: int = 0, most: int = 4294967295) -> int"),
      "The value of an argument that is a whole number; raises TypeError or ValueError that name it.");
  m.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const tessera::Isa isa : tessera::available_isas()) names.emplace_back(tessera::name_of(isa));
    return names;
  });
  m.def("missing_instruction_set", [] { return std::string(tessera::missing_isa()); });
  m.def("instruction_set", [] { return std::string(tessera::name_of(tessera::active_isa())); });
  m.def("describe_host", [] { return tessera::machine::describe(tessera::machine::detect_host()); });
  m.def("default_threads", &tessera::default_threads);
  m.def("set_default_threads", &tessera::set_default_threads, "threads"_a);
  m.def(
      "use_openmp",
      [](uintptr_t parallel, uintptr_t thread_number, uintptr_t team_size) {
        using tessera::OpenMpRuntime;
        tessera::use_openmp({reinterpret_cast<decltype(OpenMpRuntime::parallel)>(parallel),
                             reinterpret_cast<decltype(OpenMpRuntime::thread_number)>(thread_number),
                             reinterpret_cast<decltype(OpenMpRuntime::team_size)>(team_size)});
      },
      "parallel"_a, "thread_number"_a, "team_size"_a,
      "Compute on the threads of a loaded OpenMP runtime, given the addresses of GOMP_parallel, "
      "omp_get_thread_num and omp_get_num_threads; with 0, on the library's own threads.");
  tessera::python::bind_matrix(m);
  tessera::python::bind_weight(m);
  tessera::python::bind_products(m);
  tessera::python::bind_machine(m);
  tessera::python::bind_packing(m);
  tessera::python::bind_text(m);
  tessera::python::bind_spiking(m);
  tessera::python::bind_graph(m);
  tessera::python::bind_contents(m);
  tessera::python::bind_held(m);
  tessera::python::bind_images(m);
  tessera::python::bind_inspect(m);
  tessera::python::bind_onnx(m);
  tessera::python::bind_ranks(m);
  tessera::python::bind_recordings(m);
  tessera::python::bind_session(m);
  tessera::python::bind_bert_trainer(m);
  tessera::python::bind_bert_plan(m);
  tessera::python::bind_resnet_trainer(m);
  tessera::python::bind_structured(m);
  tessera::python::bind_exchange(m);
  tessera::python::bind_structured_calls(m);
  tessera::python::explain_wrong_arguments(m);
}
