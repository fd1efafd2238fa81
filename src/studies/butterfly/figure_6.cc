// Figures 6 and 7: linear, butterfly and pixelfly layers of N inputs and outputs on N samples in FP32: their
// time, where structure begins to pay, and the programs' compute sets and memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/page.h"
#include "studies/butterfly/layer_cell.h"
#include "studies/butterfly/study.h"
#include "studies/common/curves.h"

namespace tessera::studies::butterfly {
namespace {

using graph::Form;
using graph::LayerStructure;

constexpr std::string_view kFigure6Name = "figure-6";
constexpr const char* kFigure6WithTransfers = "seconds_with_transfers";
// Pixelfly's parameters in table 4; the paper names none for its figure.
constexpr uint32_t kRank = 32;
constexpr uint32_t kBlock = 32;
constexpr uint32_t kButterfly = 16;

LayerCase layer_of(LayerStructure structure, Form form, uint32_t size) {
  return {.options = {.structure = structure,
                      .rank = structure == LayerStructure::pixelfly ? kRank : 1,
                      .block_size = kBlock,
                      .butterfly_size = kButterfly,
                      .scaled = false,
                      .form = form},
          .inputs = size,
          .outputs = size,
          .batch = size};
}

/// The layers of a machine, first the dense one.
std::vector<std::pair<LayerStructure, Form>> figure_6_layers_of(const machine::Machine& machine) {
  std::vector<std::pair<LayerStructure, Form>> layers = {{LayerStructure::dense, Form::fused}};
  for (const LayerStructure structure : {LayerStructure::butterfly, LayerStructure::pixelfly}) {
    if (machine.kind == machine::Kind::tiled) layers.emplace_back(structure, Form::unfused);
    layers.emplace_back(structure, Form::fused);
  }
  return layers;
}

std::string figure_6_name_of(const machine::Machine& machine, LayerStructure structure, Form form) {
  return butterfly::name_of(layer_of(structure, form, 1), machine);
}
std::string figure_6_cell_name(const std::string& layer, uint32_t size) {
  return fmt::format("{}, N = {}", layer, size);
}

/// N = 8192 fits in no form, and takes half a minute to plan.
std::vector<uint32_t> figure_6_sizes_of(const machine::Machine& machine, const Request& request) {
  const bool on_host = machine.kind == machine::Kind::host;
  const uint32_t last = on_host ? (request.full ? 4096 : 2048) : (request.full ? 8192 : 4096);
  std::vector<uint32_t> sizes;
  for (uint32_t size = 128; size <= last; size *= 2) sizes.push_back(size);
  return sizes;
}

std::vector<Cell> figure_6_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all;
  for (const uint32_t size : figure_6_sizes_of(machine, request))
    for (const auto& [structure, form] : figure_6_layers_of(machine)) {
      const double large = size / 4096.0;
      all.push_back({figure_6_cell_name(figure_6_name_of(machine, structure, form), size),
                     0.5 + 6 * large * large,
                     [structure = structure, form = form, size](const Setting& setting) {
                       return run_layer(layer_of(structure, form, size), setting);
                     }});
    }
  return all;
}

/// One layer on one machine, over N.
struct Figure6Curve {
  std::string layer;
  std::vector<std::pair<uint32_t, double>> points;

  std::optional<double> at(uint32_t size) const {
    for (const auto& [n, value] : points)
      if (n == size) return value;
    return {};
  }
};

Figure6Curve curve_of(const Study& study, const Part& part, const std::string& layer, const char* value) {
  Figure6Curve curve{layer, {}};
  for (const uint32_t size : figure_6_sizes_of(part.machine, study.request))
    if (const auto found = part.value(kFigure6Name, figure_6_cell_name(layer, size), value))
      curve.points.emplace_back(size, *found);
  return curve;
}

/// How many times faster than the dense layer.
Figure6Curve speed_up(const Study& study, const Part& part, const std::string& layer, const char* value) {
  const Figure6Curve dense = curve_of(study, part, "dense", value);
  Figure6Curve curve = curve_of(study, part, layer, value);
  std::erase_if(curve.points, [&](const auto& point) { return !dense.at(point.first); });
  for (auto& [size, seconds] : curve.points) seconds = *dense.at(size) / seconds;
  return curve;
}

/// Where a curve of speed-ups crosses 1 for the last time, on logarithmic axes; none if it does not.
std::optional<double> break_even(const Figure6Curve& curve) {
  std::optional<double> found;
  for (size_t i = 1; i < curve.points.size(); ++i) {
    const auto& [n, below] = curve.points[i - 1];
    const auto& [next, above] = curve.points[i];
    if (below < 1 && above >= 1)
      found = n * std::pow(double{1} * next / n, std::log(1 / below) / std::log(above / below));
  }
  return found;
}

std::optional<std::pair<uint32_t, double>> extreme(const Figure6Curve& curve, bool largest) {
  if (curve.points.empty()) return {};
  const auto by_value = [](const auto& a, const auto& b) { return a.second < b.second; };
  return largest ? *std::ranges::max_element(curve.points, by_value)
                 : *std::ranges::min_element(curve.points, by_value);
}

std::vector<std::string> layer_names(const Part& part) {
  std::vector<std::string> names;
  for (const auto& [structure, form] : figure_6_layers_of(part.machine))
    names.push_back(figure_6_name_of(part.machine, structure, form));
  return names;
}

/// A number of the cells of each layer, over N.
struct Quantity {
  const char* value;
  const char* title;  ///< without the machine
  const char* unit;
  double scale = 1;
  std::string (*words)(double number) = [](double number) { return fmt::format("{:.0f}", number); };
  bool is_on_hosts = false;
};

Curves figure_6_over_sizes(const Study& study, const Part& part, const Quantity& quantity) {
  Curves curves{.title = fmt::format("{} on {}", quantity.title, part.machine.name),
                .quantity = "N",
                .symbol = "N",
                .unit = quantity.unit,
                .words = quantity.words};
  for (const uint32_t size : figure_6_sizes_of(part.machine, study.request)) curves.xs.push_back(size);
  for (const std::string& layer : layer_names(part))
    curves.curves.push_back(
        {layer, [=, &part](double size) -> Curves::Value {
           const Result* result =
               part.find(kFigure6Name, figure_6_cell_name(layer, static_cast<uint32_t>(size)));
           if (result == nullptr) return {.missing = ""};
           const auto found = result->fits ? result->value(quantity.value) : std::nullopt;
           return {.ours = found ? std::optional(quantity.scale * *found) : found, .title = result->reason};
         }});
  return curves;
}

std::string tenths(double value) { return fmt::format("{:.1f}", value); }

const Quantity kQuantities[] = {
    {"seconds", "N × N layers on N samples, FP32: µs", "µs", 1e6, tenths, true},
    {kFigure6WithTransfers, "The same with transfers, µs", "µs", 1e6, tenths},
    {"compute_sets", "Compute sets (figure 7)", "compute sets"},
    {"total_bytes", "Memory that is alive at the peak, on all tiles, MB (figure 7)", "MB", 1e-6, tenths},
    {"vertices", "Vertices", "vertices"},
    {"edges", "Edges", "edges"},
};

/// The result of `make` for each quantity.
template <class Made>
std::vector<Made> for_each_quantity(const Study& study, Made (*make)(const Curves&)) {
  std::vector<Made> all;
  for (const Part& part : study.parts)
    for (const Quantity& quantity : kQuantities)
      if (quantity.is_on_hosts || !part.is_host())
        all.push_back(make(figure_6_over_sizes(study, part, quantity)));
  return all;
}

std::string times(double ratio) { return fmt::format("{:.2f} ×", ratio); }

Figure summary(const Study& study) {
  Figure figure{
      "Where structure pays, against the dense layer (figure 6)",
      "Break-even: N from which on the layer is faster, interpolated. With transfers: the samples are "
      "sent to the machine and the results fetched, as in the paper's measurements.",
      {"machine", "layer", "break-even N", "best speed-up", "worst", "with transfers: break-even N",
       "best speed-up", "worst"}};
  for (const Part& part : study.parts)
    for (const std::string& layer : layer_names(part)) {
      std::vector<Figure::Entry> row = {{part.machine.name}, {layer}};
      bool any = false;
      for (const char* value : {"seconds", kFigure6WithTransfers}) {
        const Figure6Curve curve = speed_up(study, part, layer, value);
        const auto even = break_even(curve);
        const auto best = extreme(curve, true), worst = extreme(curve, false);
        row.push_back({even ? fmt::format("{:.0f}", *even) : "-"});
        for (const auto& point : {best, worst})
          row.push_back(point ? Figure::Entry{times(point->second), fmt::format("N = {}", point->first)}
                              : Figure::Entry{"-"});
        any |= best.has_value();
      }
      if (any && layer != "dense") figure.rows.push_back(std::move(row));
    }
  return figure;
}

std::vector<Figure> figure_6_figures(const Study& study) {
  std::vector<Figure> all = for_each_quantity(study, figure_of);
  all.insert(all.begin(), summary(study));
  all.front().note +=
      fmt::format(" Pixelfly of block size {}, butterfly size {} and rank {}. Below, -: does not fit.",
                  kBlock, kButterfly, kRank);
  return all;
}

report::Html figure_6_charts(const Study& study) {
  return report::side_by_side(for_each_quantity(study, chart_of));
}

std::vector<Comparison> figure_6_comparisons(const Study& study) {
  std::vector<Comparison> all;
  const Part* part = study.modelled();
  if (part == nullptr) return all;
  const auto add = [&](std::string what, std::string_view row, std::string unit, std::optional<double> ours,
                       std::string remark) -> Comparison* {
    const auto published = study.published.number("section-4.csv", std::string(row), "value");
    if (!published) return nullptr;
    all.push_back({std::move(what), std::move(unit), *published, ours});
    all.back().remark = std::move(remark);
    return &all.back();
  };
  const auto second = [](const std::optional<std::pair<uint32_t, double>>& point) {
    return point ? std::optional(point->second) : std::nullopt;
  };
  const auto inverse = [&](const std::optional<std::pair<uint32_t, double>>& point) {
    return point ? std::optional(1 / point->second) : std::nullopt;
  };
  const Figure6Curve butterfly = speed_up(study, *part, "butterfly, unfused", kFigure6WithTransfers);
  const Figure6Curve pixelfly = speed_up(study, *part, "pixelfly, unfused", kFigure6WithTransfers);
  if (Comparison* c =
          add("butterfly, unfused: break-even", "IPU break-even N", "N", break_even(butterfly), ""))
    *c = std::move(*c).within_factor(2);
  if (Comparison* c =
          add("butterfly, unfused: best speed-up", "IPU best speed-up of butterfly", "×",
              second(extreme(butterfly, true)), "with transfers; section 4.1, where the abstract has 1.3"))
    *c = std::move(*c).within(0.25);
  add("butterfly, unfused: worst slow-down", "IPU worst slow-down of butterfly", "×",
      inverse(extreme(butterfly, false)),
      "with transfers; depends on the smallest N, which the paper does not name");
  add("pixelfly, unfused: best speed-up", "IPU best speed-up of pixelfly", "×",
      second(extreme(pixelfly, true)),
      "with transfers; block size, butterfly size and rank are not published; the abstract has 1.6");
  add("pixelfly, unfused: worst slow-down", "IPU worst slow-down of pixelfly", "×",
      inverse(extreme(pixelfly, false)), "with transfers");
  return all;
}

}  // namespace

Section figure_6() {
  return {.name = kFigure6Name,
          .title = "Dense, butterfly and pixelfly layers over N (figures 6 and 7)",
          .cells = figure_6_cells,
          .figures = figure_6_figures,
          .charts = figure_6_charts,
          .comparisons = figure_6_comparisons};
}

}  // namespace tessera::studies::butterfly
