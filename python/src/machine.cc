// Machines, and products that are run or estimated on them, as `tessera spmm` does.
#include "machine.h"

#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <tessera/error.h>
#include <tessera/machine.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "bound/product.h"
#include "studies/spmm/product.h"
#include "studies/spmm/report.h"
#include "studies/spmm/show.h"

namespace tessera::python {
namespace {

using namespace nb::literals;
namespace spmm = studies::spmm;
using spmm::SpmmCase;
using spmm::SpmmRequest;
using spmm::SpmmResult;

ChosenMachine choose(const std::string& name, const nb::object& threads, const nb::kwargs& figures) {
  const auto count = static_cast<uint32_t>(whole_number(threads, "threads", 0, kMostThreads));
  ChosenMachine chosen{Machine::find(name, count), name, {}};
  for (const auto& [key, value] : figures) {
    const auto figure = nb::cast<std::string>(key);
    if (nb::isinstance<nb::str>(value))
      throw UsageError(
          fmt::format("{} is '{}', a text; figures given here are numbers: set it in a machine's .toml file",
                      figure, nb::cast<std::string>(value)));
    const auto number = nb::cast<double>(nb::float_(value));
    chosen.machine = chosen.machine.with(figure, number);
    chosen.settings.push_back({figure, number});
  }
  return chosen;
}

/// The member of `all` with that name; throws ValueError that lists them.
template <class All>
auto named(const std::string& name, const char* what, const All& all) {
  std::string names;
  for (const auto& each : all) {
    if (name_of(each) == name) return each;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(each));
  }
  throw UsageError(fmt::format("unknown {} '{}' (choose from {})", what, name, names));
}

ProductKind product_named(const std::string& name) {
  for (const ProductKind product : {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm})
    if (spmm::flag_of(product) == name) return product;
  throw UsageError(fmt::format("unknown product '{}' (choose from forward, input_gradient, sddmm)", name));
}

/// A product that was run or estimated.
struct ProductResult {
  SpmmRequest request;
  std::vector<SpmmResult> results;  ///< one

  const SpmmResult& operator*() const { return results.front(); }
};

ProductResult run_product(const SparseMatrix& matrix, uint32_t n, const ChosenMachine& machine,
                          const std::string& dtype, const std::string& mode, const std::string& planner,
                          const std::string& product, bool execute, const std::string& verify,
                          uint64_t seed) {
  const machine::Machine& model = machine.machine.model();
  ProductResult result;
  SpmmRequest& request = result.request;
  request.weights = "weights in memory";
  request.seed = seed;
  request.estimate = !execute;
  request.keep_runs = true;
  request.print = "plan";
  if (!spmm::kPlanners.contains(planner))
    throw UsageError(fmt::format("unknown planner '{}' (choose from best, vendor)", planner));
  request.planner = spmm::kPlanners.at(planner);
  const std::map<std::string, spmm::Verify> extents = {{"auto", spmm::Verify::automatic},
                                                       {"full", spmm::Verify::full},
                                                       {"sample", spmm::Verify::sample},
                                                       {"none", spmm::Verify::none}};
  if (!extents.contains(verify))
    throw UsageError(
        fmt::format("unknown extent of verification '{}' (choose from auto, full, sample, none)", verify));
  request.verify = extents.at(verify);
  request.threads = machine.machine.is_host() ? machine.machine.tiles() : 0;
  const SpmmCase what{.machine = machine.name,
                      .settings = machine.settings,
                      .mode = named(mode, "mode", ops::kModes),
                      .product = product_named(product),
                      .precision = named(dtype, "type", ops::kPrecisions),
                      .density = std::nullopt,
                      .block = matrix.pattern.block_size,
                      .n = n};
  if (machine.machine.is_host() && what.precision.f32_partials)
    throw UsageError("f16-f32 is for tiled machines; a host sums in FP32 with every type");
  const uint64_t blocks = matrix.pattern.blocks();
  bound::check(spmm::problem_of(request, what, model, blocks), what.block, model, {});
  spmm::ProductRuns runs;
  result.results.push_back(runs.run(request, what, matrix, model, {}));
  return result;
}

std::map<std::string, double> phases_of(const SpmmResult& result) {
  std::map<std::string, double> phases;
  for (size_t p = 0; p < program::kPhases; ++p)
    phases.emplace(name_of(static_cast<program::Phase>(p)), result.phases.at[p]);
  return phases;
}

Rows<uint64_t> memory_of(const SpmmResult& result) {
  std::vector<uint64_t> bytes;
  for (const compiler::TileMemory& tile : result.memory.tiles) {
    uint64_t other = tile.total();
    for (const uint64_t data : tile.purposes) {
      bytes.push_back(data);
      other -= data;
    }
    bytes.push_back(other);
  }
  return rows_from(std::move(bytes), program::kPurposes + 1);
}

}  // namespace

std::vector<std::string> memory_columns() {
  std::vector<std::string> names;
  for (size_t p = 0; p < program::kPurposes; ++p)
    names.emplace_back(name_of(static_cast<program::Purpose>(p)));
  names.emplace_back("other");  // code, vertex state, stacks, padding
  return names;
}

void bind_machine(nb::module_& m) {
  nb::class_<ChosenMachine>(
      m, "Machine",
      "The host (\"host\", the CPU of this process), a built-in machine, or the machine of a TOML file.\n\n"
      "Built-in machines are the chips \"gc2\", \"gc200\" and \"bow\", and machines of 4 to 256 chips, "
      "\"m2000\", "
      "\"pod16\" to\n\"pod256\", \"bow2000\" and \"bow_pod16\" to \"bow_pod256\". "
      "`threads` is the number of threads of the host (0: the "
      "default, at most 4096). `figures` change figures of a\nmodelled machine, such as "
      "`tiles=2944`; docs/machines.md lists them.")
      .def(
          "__init__",
          [](ChosenMachine* self, const std::string& name, const nb::object& threads,
             const nb::kwargs& figures) { new (self) ChosenMachine(choose(name, threads, figures)); },
          "name"_a, nb::kw_only(), "threads"_a = 0, "figures"_a,
          nb::sig("def __init__(self, name: str, *, threads: int = 0, **figures: float) -> None"))
      .def_ro("name", &ChosenMachine::name)
      .def_prop_ro("is_host", [](const ChosenMachine& c) { return c.machine.is_host(); })
      .def_prop_ro("tiles", [](const ChosenMachine& c) { return c.machine.tiles(); })
      .def_prop_ro("chips", [](const ChosenMachine& c) { return c.machine.chips(); })
      .def_prop_ro("tile_bytes", [](const ChosenMachine& c) { return c.machine.tile_bytes(); })
      .def_prop_ro("clock_hz", [](const ChosenMachine& c) { return c.machine.clock_hz(); })
      .def("__repr__", [](const ChosenMachine& c) {
        SpmmCase of;
        of.machine = c.name;
        of.settings = c.settings;
        return fmt::format("<machine {}: {} tiles>", spmm::machine_title(of), c.machine.tiles());
      });

  nb::class_<ProductResult>(m, "ProductResult", "A product that was run or estimated on a machine.")
      .def_prop_ro("fits", [](const ProductResult& r) { return (*r).fits; })
      .def_prop_ro("seconds", [](const ProductResult& r) { return (*r).seconds; })
      .def_prop_ro("predicted_seconds", [](const ProductResult& r) { return (*r).predicted_seconds; })
      .def_prop_ro("cycles", [](const ProductResult& r) { return (*r).cycles; })
      .def_prop_ro("phases", [](const ProductResult& r) { return phases_of(*r); })
      .def_prop_ro(
          "memory", [](const ProductResult& r) { return memory_of(*r); }, kOwned)
      .def_prop_ro("purposes", [](const ProductResult&) { return memory_columns(); })
      .def_prop_ro("verified", [](const ProductResult& r) { return (*r).verified; })
      .def_prop_ro("error", [](const ProductResult& r) { return (*r).max_rel_error; })
      .def_prop_ro("tolerance", [](const ProductResult& r) { return (*r).tolerance; })
      .def_prop_ro("plan", [](const ProductResult& r) { return (*r).printed; })
      .def_prop_ro("overflow", [](const ProductResult& r) { return (*r).fits ? "" : spmm::overflow(*r); })
      .def("details", [](const ProductResult& r) { return spmm::details(*r); })
      .def("to_json", [](const ProductResult& r) { return spmm::json(r.results); })
      .def(
          "page", [](const ProductResult& r) { return spmm::page_of(r.request, r.results); },
          nb::call_guard<nb::gil_scoped_release>());
  m.def("run_product", &run_product, "matrix"_a, "n"_a, "machine"_a, "dtype"_a, "mode"_a, "planner"_a,
        "product"_a, "execute"_a, "verify"_a, "seed"_a, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace tessera::python
