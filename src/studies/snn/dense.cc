// Lists of spikes against dense products on the same machine.
#include <fmt/format.h>

#include <algorithm>

#include "studies/paper/product_cell.h"
#include "studies/snn/network_cell.h"
#include "studies/snn/study.h"

namespace tessera::studies::snn {
namespace {

constexpr std::string_view kDenseName = "dense";

NetworkCase network(double room) { return {.hidden = hidden_layers(2, 3), .room = room}; }
constexpr double kRooms[] = {0.2, 0.1, 0.05, 0.025, 0.0125};

/// A product of dense backpropagation through time, and the number of its runs in a training step.
struct DenseProduct {
  ProductCase product;
  uint32_t times;
};

std::string dense_name_of(const ProductCase& p) {
  return fmt::format("dense product {} × {} × {}", p.m, p.k, p.n);
}

/// For each layer, a forward product per step, whose inputs depend on the step before, and over all steps at
/// once, the gradients of weights and of inputs.
std::vector<DenseProduct> dense_products(const NetworkCase& what) {
  std::vector<DenseProduct> all;
  uint32_t inputs = kInputs;
  std::vector<uint32_t> layers = what.hidden;
  layers.push_back(kClasses);
  for (const uint32_t neurons : layers) {
    const uint32_t samples = what.steps * what.batch;
    all.push_back({{.m = neurons, .k = inputs, .n = what.batch}, what.steps});
    all.push_back({{.m = neurons, .k = samples, .n = inputs}, 1});
    if (inputs != kInputs) all.push_back({{.m = inputs, .k = neurons, .n = samples}, 1});
    inputs = neurons;
  }
  return all;
}

std::vector<Cell> dense_cells(const machine::Machine&, const Request&) {
  std::vector<Cell> all;
  for (const double room : kRooms)
    all.push_back({snn::name_of(network(room)), 3,
                   [what = network(room)](const Setting& setting) { return run_network(what, setting); }});
  for (const DenseProduct& dense : dense_products(network(kRooms[0]))) {
    const std::string name = dense_name_of(dense.product);
    if (std::ranges::find(all, name, &Cell::name) != all.end()) continue;
    all.push_back({name, 2, [product = dense.product](const Setting& setting) {
                     return run_product(product, {setting.machine, false, setting.threads});
                   }});
  }
  return all;
}

/// Seconds of all products; none if one is missing.
std::optional<double> dense_seconds(const Part& part) {
  double sum = 0;
  for (const DenseProduct& dense : dense_products(network(kRooms[0]))) {
    const auto seconds = part.value(kDenseName, dense_name_of(dense.product), "seconds");
    if (!seconds) return std::nullopt;
    sum += dense.times * *seconds;
  }
  return sum;
}

std::vector<Figure> dense_figures(const Study& study) {
  std::vector<Figure> all;
  for (const Part& part : study.parts) {
    const auto dense = dense_seconds(part);
    Figure figure{
        fmt::format("2942 neurons in 3 layers, T = 10, batch 48, on {}: lists against dense products",
                    part.machine.name),
        fmt::format(
            "The dense products of backpropagation through time, planned for the machine in FP32, take "
            "{}; its neurons' updates are not counted. Speed-up: of the whole step with lists.",
            dense ? fmt::format("{:.3g} ms", 1e3 * *dense) : "an unknown time"),
        {"capacity", "fired", "listed", "ms per batch", "speed-up"}};
    for (const double room : kRooms) {
      const Result* result = part.find(kDenseName, snn::name_of(network(room)));
      if (result == nullptr || !result->fits) continue;
      const double seconds = *result->value("seconds");
      figure.rows.push_back({{fmt::format("{:.3g} %", 100 * room)},
                             {fmt::format("{:.1f} %", 100 * *result->value("fired"))},
                             {fmt::format("{:.1f} %", 100 * *result->value("listed"))},
                             {fmt::format("{:.3g}", 1e3 * seconds)},
                             {dense ? fmt::format("{:.2f}", *dense / seconds) : "-"}});
    }
    all.push_back(std::move(figure));
  }
  return all;
}

/// The paper compares an IPU with a GPU; a speed-up over dense products of the same machine is something
/// else, and only stands beside it.
std::vector<Comparison> dense_comparisons(const Study& study) {
  std::vector<Comparison> all;
  for (const Part& part : study.parts) {
    const auto dense = dense_seconds(part);
    const auto sparse = part.value(kDenseName, snn::name_of(network(0.05)), "seconds");
    const auto published = study.published.number("gains.csv", "usual sparsity", "least");
    if (!published) continue;
    all.push_back({fmt::format("speed-up over dense products at a capacity of 5 %, {}", part.machine.name),
                   "", *published, dense && sparse ? std::optional(*dense / *sparse) : std::nullopt});
    all.back().remark = "published: one IPU against an A100, not against dense products on the same machine";
  }
  return all;
}

}  // namespace

Section dense() {
  return {.name = kDenseName,
          .title = "Lists of spikes against dense products",
          .cells = dense_cells,
          .figures = dense_figures,
          .comparisons = dense_comparisons};
}

}  // namespace tessera::studies::snn
