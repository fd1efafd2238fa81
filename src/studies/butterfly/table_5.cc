// Table 5: pixelfly as the hidden layer, with one of its three parameters varied: mean and sample standard
// deviation of the network's parameters and of the time of a training step.
#include <fmt/format.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "report/interval.h"
#include "studies/butterfly/layer_cell.h"
#include "studies/butterfly/study.h"
#include "studies/butterfly/training_cell.h"

namespace tessera::studies::butterfly {
namespace {

using graph::Form;
using graph::LayerStructure;
using report::Moments;

constexpr std::string_view kTable5Name = "table-5";
// Largest block of sparse products; a larger block is a square of such blocks.
constexpr uint32_t kLargestBlock = 32;

struct Pixelfly {
  uint32_t butterfly = 0;
  uint32_t block = 0;
  uint32_t rank = 0;
};

/// A row of the table: which parameter takes the powers of two from `first` to `last`.
struct Table5Sweep {
  const char* name;  ///< its row in table-5.csv
  Pixelfly fixed;
  uint32_t Pixelfly::*varied;
  uint32_t first;
  uint32_t last;
};

constexpr Table5Sweep kSweeps[] = {
    {"butterfly size", {0, 32, 2}, &Pixelfly::butterfly, 2, 256},
    {"block size", {128, 0, 2}, &Pixelfly::block, 8, 128},
    {"low-rank size", {16, 16, 0}, &Pixelfly::rank, 2, 256},
};

std::vector<Pixelfly> points_of(const Table5Sweep& sweep) {
  std::vector<Pixelfly> points;
  for (uint32_t size = sweep.first; size <= sweep.last; size *= 2) {
    points.push_back(sweep.fixed);
    points.back().*sweep.varied = size;
  }
  return points;
}

/// The merged form of large blocks stores the same elements in smaller blocks: then the cells of its pattern
/// are as large as the original blocks.
LayerCase table_5_step_of(Pixelfly p, Form form) {
  if (form == Form::fused && p.block > kLargestBlock) {
    p.butterfly = std::min(p.butterfly, kPublishedFeatures / p.block);
    p.block = kLargestBlock;
  }
  return published_step({.structure = LayerStructure::pixelfly,
                         .rank = p.rank,
                         .block_size = p.block,
                         .butterfly_size = p.butterfly,
                         .scaled = false,
                         .form = form});
}

std::string text(const Pixelfly& p) {
  return fmt::format("butterfly size {}, block size {}, rank {}", p.butterfly, p.block, p.rank);
}

std::string table_5_cell_name(const Pixelfly& p, Form form, const machine::Machine& machine) {
  return fmt::format("{}, {}", name_of(table_5_step_of(p, form), machine), text(p));
}

std::vector<Form> forms_of(const machine::Machine& machine) {
  if (machine.kind == machine::Kind::host) return {Form::fused};
  return {Form::unfused, Form::fused};
}

/// A training with one seed; deviations are taken over the sweep.
TrainingCase training_of(const Pixelfly& point, const Request& request) {
  return trainings_of(table_5_step_of(point, Form::fused).options, Recipe::paper, request).front();
}

std::string layer_name(const Pixelfly& point) { return fmt::format("pixelfly, {}", text(point)); }

/// Table 4 executes and verifies such a step on a modelled machine.
Cell step_cell(const Pixelfly& point, Form form, const machine::Machine& machine) {
  return {table_5_cell_name(point, form, machine), 3, [point, form](const Setting& setting) {
            return run_layer(table_5_step_of(point, form),
                             {setting.machine, setting.verify && setting.on_host(), setting.threads});
          }};
}

/// Sweeps cross in one point.
void add_unless_there(Cell cell, std::vector<Cell>& cells) {
  if (std::ranges::find(cells, cell.name, &Cell::name) == cells.end()) cells.push_back(std::move(cell));
}

void table_5_add_trainings(const Request& request, std::vector<Cell>& cells) {
  for (const Table5Sweep& sweep : kSweeps)
    for (const Pixelfly& point : points_of(sweep))
      add_unless_there(training_cell(layer_name(point), training_of(point, request), request), cells);
}

std::vector<Cell> table_5_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all;
  for (const Table5Sweep& sweep : kSweeps)
    for (const Pixelfly& point : points_of(sweep))
      for (const Form form : forms_of(machine)) add_unless_there(step_cell(point, form, machine), all);
  if (trains(machine, request)) table_5_add_trainings(request, all);
  return all;
}

/// Moments over a sweep; none if a point lacks a value.
template <class ValueOf>
std::optional<Moments> moments_over(const Table5Sweep& sweep, ValueOf value_of) {
  std::vector<double> values;
  for (const Pixelfly& point : points_of(sweep)) {
    const std::optional<double> found = value_of(point);
    if (!found) return std::nullopt;
    values.push_back(*found);
  }
  return report::moments_of(values);
}

std::optional<Moments> moments(const Part& part, const Table5Sweep& sweep, Form form, const char* value) {
  return moments_over(sweep, [&](const Pixelfly& point) {
    return part.value(kTable5Name, table_5_cell_name(point, form, part.machine), value);
  });
}

std::optional<double> accuracy(const Study& study, const Part& part, const Pixelfly& point) {
  return part.value(kTable5Name, name_of(layer_name(point), training_of(point, study.request)), "accuracy");
}

std::optional<Moments> table_5_published(const Study& study, const Table5Sweep& sweep, const char* value) {
  const auto mean = study.published.number("table-5.csv", sweep.name, fmt::format("{}_mean", value));
  const auto deviation = study.published.number("table-5.csv", sweep.name, fmt::format("{}_std", value));
  return mean && deviation ? std::optional(Moments{*mean, *deviation}) : std::nullopt;
}

std::string text(const std::optional<Moments>& m, double scale, int digits) {
  return m ? fmt::format("{:.{}f} ± {:.{}f}", scale * m->mean, digits, scale * m->deviation, digits) : "-";
}

std::string relative(const std::optional<Moments>& m) {
  return m ? fmt::format("{:.2f}", m->deviation / m->mean) : "-";
}

Figure sweeps_figure(const Study& study, const Part& part) {
  Figure figure{
      fmt::format("Pixelfly's sweeps on {}: mean ± deviation (table 5)", part.machine.name),
      "Of the network 1024-1024-10 and a training step of 50 images. Spread: deviation / mean. The "
      "printed means of parameters are each sweep's first point, with a second bias of 1024.",
      {"varied", "form", "parameters", "published", "step, µs", "spread", "published, s", "spread"}};
  for (const Table5Sweep& sweep : kSweeps)
    for (const Form form : forms_of(part.machine)) {
      const auto parameters = moments(part, sweep, form, "parameters");
      const auto seconds = moments(part, sweep, form, "seconds");
      if (!parameters) continue;
      const auto of_paper = [&](const char* value) { return table_5_published(study, sweep, value); };
      figure.rows.push_back({{sweep.name},
                             {std::string(graph::name_of(form))},
                             {text(parameters, 1, 0)},
                             {text(of_paper("parameters"), 1, 0)},
                             {text(seconds, 1e6, 1)},
                             {relative(seconds)},
                             {text(of_paper("seconds"), 1, 0)},
                             {relative(of_paper("seconds"))}});
    }
  return figure;
}

Figure table_5_accuracy_figure(const Study& study, const Part& part) {
  Figure figure{
      fmt::format("Pixelfly's accuracy on grey CIFAR-10, %, trained on {}: mean ± deviation (table 5)",
                  part.machine.name),
      fmt::format("Over the points of each sweep, after {} epochs with the paper's recipe and one seed. The "
                  "paper does not say how many epochs it trained.",
                  training_of(points_of(kSweeps[0])[0], study.request).epochs),
      {"varied", "published", "ours"}};
  for (const Table5Sweep& sweep : kSweeps) {
    const auto ours =
        moments_over(sweep, [&](const Pixelfly& point) { return accuracy(study, part, point); });
    if (ours)
      figure.rows.push_back(
          {{sweep.name}, {text(table_5_published(study, sweep, "accuracy"), 1, 1)}, {text(ours, 1, 1)}});
  }
  return figure;
}

Figure points_figure(const Study& study, const Part& part) {
  Figure figure{fmt::format("Their points on {}", part.machine.name), "-: does not fit.", {"varied", "to"}};
  figure.head.push_back("parameters");
  for (const Form form : forms_of(part.machine))
    figure.head.push_back(
        fmt::format("step, µs{}", part.is_host() ? "" : fmt::format(", {}", graph::name_of(form))));
  const bool trained = trains(part.machine, study.request);
  if (trained) figure.head.push_back("accuracy, %");
  for (const Table5Sweep& sweep : kSweeps)
    for (const Pixelfly& point : points_of(sweep)) {
      std::vector<Figure::Entry> row = {{sweep.name}, {fmt::format("{}", point.*sweep.varied)}};
      const auto parameters =
          part.value(kTable5Name, table_5_cell_name(point, Form::fused, part.machine), "parameters");
      if (!parameters) continue;
      row.push_back({fmt::format("{:.0f}", *parameters)});
      for (const Form form : forms_of(part.machine)) {
        const auto seconds = part.value(kTable5Name, table_5_cell_name(point, form, part.machine), "seconds");
        row.push_back({seconds ? fmt::format("{:.1f}", 1e6 * *seconds) : "-"});
      }
      if (const auto percent = accuracy(study, part, point); trained)
        row.push_back({percent ? fmt::format("{:.1f}", *percent) : "-"});
      figure.rows.push_back(std::move(row));
    }
  return figure;
}

std::vector<Figure> table_5_figures(const Study& study) {
  std::vector<Figure> all;
  for (const Part& part : study.parts) {
    all.push_back(sweeps_figure(study, part));
    all.push_back(table_5_accuracy_figure(study, part));
    all.push_back(points_figure(study, part));
  }
  return all;
}

std::vector<Comparison> table_5_comparisons(const Study& study) {
  std::vector<Comparison> all;
  const Part* part = study.modelled();
  if (part == nullptr) return all;
  for (const Table5Sweep& sweep : kSweeps) {
    const auto published = study.published.number("table-5.csv", sweep.name, "parameters_std");
    const auto ours = moments(*part, sweep, Form::unfused, "parameters");
    if (published)
      all.push_back(Comparison{fmt::format("deviation of parameters over the {}", sweep.name), "", *published,
                               ours ? std::optional(std::round(ours->deviation)) : std::nullopt}
                        .within(0));
  }
  for (const Table5Sweep& sweep : kSweeps) {
    const auto mean = study.published.number("table-5.csv", sweep.name, "seconds_mean");
    const auto deviation = study.published.number("table-5.csv", sweep.name, "seconds_std");
    const auto ours = moments(*part, sweep, Form::unfused, "seconds");
    if (!mean || !deviation) continue;
    all.push_back({fmt::format("spread of the time over the {}", sweep.name), "deviation / mean",
                   *deviation / *mean, ours ? std::optional(ours->deviation / ours->mean) : std::nullopt});
    all.back().remark = "the paper's deviation is the largest of several sweeps, beside the mean of one";
  }
  return all;
}

}  // namespace

Section table_5() {
  return {.name = kTable5Name,
          .title = "Pixelfly's parameters (table 5)",
          .cells = table_5_cells,
          .figures = table_5_figures,
          .comparisons = table_5_comparisons};
}

}  // namespace tessera::studies::butterfly
