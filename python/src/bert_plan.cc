// The search for the best division of a step of the pre-training of BERT.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <tessera/pretraining.h>
#include <tessera/pretraining_plan.h>
#include <tessera/token_text.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "arrays.h"
#include "bindings.h"
#include "machine.h"

namespace tessera::python {
namespace {

using namespace nb::literals;

/// Signals and exceptions of `progress`, unless it is None, end the search.
PretrainingPlan plan_with_progress(const PretrainingSettings& settings, const TextSplit& text,
                                   const Machine& machine, PretrainingPlanOptions options,
                                   const nb::object& progress) {
  std::exception_ptr interruption;
  options.progress = [&](size_t done, size_t most, const std::string& next) {
    const nb::gil_scoped_acquire acquired;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      return progress.is_none() || progress(done, most, next).ptr() != Py_False;
    } catch (const nb::python_error&) {
      interruption = std::current_exception();
      return false;
    }
  };
  PretrainingPlan plan;
  {
    const nb::gil_scoped_release released;
    plan = plan_pretraining(settings, text, machine, options);
  }
  if (interruption) std::rethrow_exception(interruption);
  return plan;
}

}  // namespace

void bind_bert_plan(nb::module_& m) {
  using Cost = PretrainingCost;
  using Division = PretrainingDivision;
  using Plan = PretrainingPlan;
  nb::class_<Cost>(m, "PretrainingCost")
      .def_ro("seconds", &Cost::seconds)
      .def_ro("fullest_tile_bytes", &Cost::fullest_tile_bytes)
      .def_ro("streaming_bytes", &Cost::streaming_bytes)
      .def_ro("lacking_tile_bytes", &Cost::lacking_tile_bytes)
      .def_ro("lacking_streaming_bytes", &Cost::lacking_streaming_bytes)
      .def_ro("fits", &Cost::fits)
      .def_ro("overflow", &Cost::overflow)
      .def_prop_ro("has_figures", &Cost::has_figures);
  nb::class_<Division>(m, "PretrainingDivision")
      .def_ro("settings", &Division::settings)
      .def_ro("extrapolated", &Division::extrapolated)
      .def_ro("estimated", &Division::estimated);
  nb::class_<Plan>(m, "PretrainingPlan")
      .def_ro("frontier", &Plan::frontier)
      .def_ro("estimated", &Plan::estimated)
      .def_ro("chosen", &Plan::chosen)
      .def_ro("overflow", &Plan::overflow)
      .def_ro("considered", &Plan::considered)
      .def_ro("small_estimates", &Plan::small_estimates)
      .def_ro("tile_bytes", &Plan::tile_bytes)
      .def_ro("stopped", &Plan::stopped)
      .def_ro("out_of_time", &Plan::out_of_time);
  m.def(
      "plan_pretraining",
      [](const PretrainingSettings& settings, const std::shared_ptr<TokenText>& train,
         const std::shared_ptr<TokenText>& held_out, const ChosenMachine& machine, uint32_t estimates,
         bool compare, double margin, double time_limit, uint32_t threads, const nb::object& progress) {
        return plan_with_progress(settings, {train, held_out}, machine.machine,
                                  {.estimates = estimates,
                                   .compare = compare,
                                   .margin = margin,
                                   .threads = threads,
                                   .time_limit = time_limit},
                                  progress);
      },
      "settings"_a, "train"_a, "held_out"_a, "machine"_a, "estimates"_a, "compare"_a, "margin"_a,
      "time_limit"_a, "threads"_a, "progress"_a.none());
}

}  // namespace tessera::python
