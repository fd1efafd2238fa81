// Table 4: a network with one hidden layer of 1024 on grey CIFAR-10, by the structure of that layer: its
// parameters, and the time of a training step relative to the dense network's, since the paper does not say
// how many epochs it trained.
#include <fmt/format.h>
#include <tessera/gradients.h>

#include "studies/butterfly/layer_cell.h"
#include "studies/butterfly/study.h"
#include "studies/butterfly/training_cell.h"

namespace tessera::studies::butterfly {
namespace {

using graph::Form;
using graph::LayerStructure;

constexpr std::string_view kTable4Name = "table-4";

struct Method {
  LayerStructure structure;
  const char* remark;  ///< why the times differ
};

constexpr Method kMethods[] = {
    {LayerStructure::dense, ""},
    {LayerStructure::butterfly, ""},
    {LayerStructure::fastfood, ""},
    {LayerStructure::circulant,
     "the paper does not say how it ran without a Fourier transform; here the matrix is filled and "
     "multiplied"},
    {LayerStructure::low_rank, ""},
    {LayerStructure::pixelfly,
     "plain PyTorch gathers at run time by indices in memory; here the gather is planned as an exchange"},
};

LayerCase table_4_step_of(LayerStructure structure, Form form) {
  return published_step({.structure = structure,
                         .rank = structure == LayerStructure::pixelfly ? 32U : 1U,
                         .block_size = 32,
                         .butterfly_size = 16,
                         .scaled = false,
                         .form = form});
}

std::vector<TrainingCase> method_trainings(const Method& method, Recipe recipe, const Request& request) {
  return butterfly::trainings_of(table_4_step_of(method.structure, Form::fused).options, recipe, request);
}

std::string table_4_name_of(LayerStructure structure, Form form, const machine::Machine& machine) {
  return butterfly::name_of(table_4_step_of(structure, form), machine);
}

void table_4_add_trainings(const Request& request, std::vector<Cell>& cells) {
  for (const Method& method : kMethods)
    for (const Recipe recipe : {Recipe::paper, Recipe::best})
      for (const TrainingCase& training : method_trainings(method, recipe, request))
        cells.push_back(training_cell(std::string(graph::name_of(method.structure)), training, request));
}

std::vector<Cell> step_cells(const machine::Machine& machine) {
  std::vector<Cell> all;
  for (const Method& method : kMethods)
    for (const Form form : {Form::unfused, Form::fused}) {
      const std::string name = table_4_name_of(method.structure, form, machine);
      if (!all.empty() && all.back().name == name) continue;
      const Form built = machine.kind == machine::Kind::host ? Form::fused : form;
      all.push_back({name, 4, [structure = method.structure, built](const Setting& setting) {
                       return run_layer(table_4_step_of(structure, built), setting);
                     }});
    }
  return all;
}

std::vector<Cell> table_4_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all = step_cells(machine);
  if (trains(machine, request)) table_4_add_trainings(request, all);
  return all;
}

std::optional<double> table_4_published(const Study& study, LayerStructure structure, const char* column) {
  return study.published.number("table-4.csv", std::string(graph::name_of(structure)), column);
}

/// The ratio of a cell's value to the dense network's.
std::optional<double> ratio(const Part& part, const std::string& cell, const char* value) {
  const auto ours = part.value(kTable4Name, cell, value), dense = part.value(kTable4Name, "dense", value);
  return ours && dense ? std::optional(*ours / *dense) : std::nullopt;
}

std::optional<double> published_ratio(const Study& study, LayerStructure structure) {
  const auto ours = table_4_published(study, structure, "ipu_seconds"),
             dense = table_4_published(study, LayerStructure::dense, "ipu_seconds");
  return ours && dense ? std::optional(*ours / *dense) : std::nullopt;
}

std::string table_4_number(std::optional<double> value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

Figure parameters_figure(const Study& study) {
  Figure figure{"Parameters of the network 1024-1024-10 (table 4)",
                "Compressed: what the structure saves of the dense network's.",
                {"hidden layer", "published", "ours", "compressed"}};
  const Part* part = study.modelled() != nullptr ? study.modelled() : study.host();
  if (part == nullptr) return figure;
  const auto dense = part->value(kTable4Name, "dense", "parameters");
  for (const Method& method : kMethods) {
    const auto count =
        part->value(kTable4Name, table_4_name_of(method.structure, Form::fused, part->machine), "parameters");
    if (!count || !dense) continue;
    figure.rows.push_back({{std::string(graph::name_of(method.structure))},
                           {table_4_number(table_4_published(study, method.structure, "parameters"), 0)},
                           {table_4_number(count, 0)},
                           {fmt::format("{:.2f} %", 100 * (1 - *count / *dense))}});
  }
  return figure;
}

Figure step_figure(const Study& study, const Part& part) {
  Figure figure{
      fmt::format("Training steps of 50 images on {} (table 4)", part.machine.name),
      "SGD with momentum, FP32. Ratios are to the dense network. With transfers: images are sent to "
      "the machine for each step.",
      {"hidden layer", "µs", "ratio", "published"}};
  if (!part.is_host())
    figure.head.insert(figure.head.end(), {"with transfers, µs", "ratio", "compute sets", "memory, MB"});
  for (const Cell& cell : step_cells(part.machine)) {
    const Result* result = part.find(kTable4Name, cell.name);
    if (result == nullptr || !result->fits) continue;
    const Method* method = nullptr;
    for (const Method& m : kMethods)
      if (cell.name.starts_with(graph::name_of(m.structure))) method = &m;
    const auto micro = [&](const char* value) {
      const auto seconds = result->value(value);
      return table_4_number(seconds ? std::optional(1e6 * *seconds) : std::nullopt, 1);
    };
    std::vector<Figure::Entry> row = {{cell.name},
                                      {micro("seconds")},
                                      {table_4_number(ratio(part, cell.name, "seconds"), 2)},
                                      {table_4_number(published_ratio(study, method->structure), 2)}};
    if (!part.is_host()) {
      row.push_back({micro("seconds_with_transfers")});
      row.push_back({table_4_number(ratio(part, cell.name, "seconds_with_transfers"), 2)});
      row.push_back({table_4_number(result->value("compute_sets"), 0)});
      row.push_back({fmt::format("{:.1f}", 1e-6 * result->value("total_bytes").value_or(0))});
    }
    figure.rows.push_back(std::move(row));
  }
  return figure;
}

Figure table_4_accuracy_figure(const Study& study, const Part& part) {
  const TrainingCase first = method_trainings(kMethods[0], Recipe::paper, study.request).front();
  Figure figure{fmt::format("Accuracy on grey CIFAR-10, %, trained on {} (table 4)", part.machine.name),
                fmt::format("After {} epochs; ±: 95 % confidence interval over seeds. The paper does not say "
                            "how many epochs it trained. Its recipe: SGD with momentum, one learning rate; "
                            "ours: Adam, initial values and learning rates for each factor.",
                            first.epochs),
                {"hidden layer", "published, IPU", "published, GPU", "paper recipe", "best recipe"}};
  for (const Method& method : kMethods) {
    const std::string layer(graph::name_of(method.structure));
    const auto trained = [&](Recipe recipe) {
      return accuracy_of(part, kTable4Name, layer, method_trainings(method, recipe, study.request));
    };
    const auto paper = trained(Recipe::paper), best = trained(Recipe::best);
    if (!paper && !best) continue;
    figure.rows.push_back({{layer},
                           {table_4_number(table_4_published(study, method.structure, "ipu_accuracy"), 1)},
                           {table_4_number(table_4_published(study, method.structure, "gpu_accuracy"), 1)},
                           {accuracy_text(paper)},
                           {accuracy_text(best)}});
  }
  return figure;
}

std::vector<Figure> table_4_figures(const Study& study) {
  std::vector<Figure> all = {parameters_figure(study)};
  for (const Part& part : study.parts) {
    all.push_back(step_figure(study, part));
    if (trains(part.machine, study.request)) all.push_back(table_4_accuracy_figure(study, part));
  }
  return all;
}

void compare_with_model(const Study& study, const Part& part, std::vector<Comparison>& all) {
  const auto value = [&](LayerStructure structure, const char* name) {
    return part.value(kTable4Name, table_4_name_of(structure, Form::unfused, part.machine), name);
  };
  for (const Method& method : kMethods)
    if (const auto count = table_4_published(study, method.structure, "parameters"))
      all.push_back(Comparison{fmt::format("{}: parameters", graph::name_of(method.structure)), "", *count,
                               value(method.structure, "parameters")}
                        .within(0));
  const auto dense = value(LayerStructure::dense, "parameters");
  const auto few = value(LayerStructure::butterfly, "parameters");
  const auto all_of_dense = table_4_published(study, LayerStructure::dense, "parameters"),
             few_published = table_4_published(study, LayerStructure::butterfly, "parameters");
  if (all_of_dense && few_published)
    all.push_back(Comparison{"butterfly: compression of parameters", "%",
                             100 * (1 - *few_published / *all_of_dense),
                             dense && few ? std::optional(100 * (1 - *few / *dense)) : std::nullopt}
                      .within(0));
  for (const Method& method : kMethods) {
    const auto theirs = published_ratio(study, method.structure);
    if (!theirs || method.structure == LayerStructure::dense) continue;
    all.push_back({fmt::format("{}: step, relative to dense", graph::name_of(method.structure)), "", *theirs,
                   ratio(part, table_4_name_of(method.structure, Form::unfused, part.machine),
                         "seconds_with_transfers")});
    all.back().remark = method.remark;
  }
}

void compare_accuracies(const Study& study, const Part& part, std::vector<Comparison>& all) {
  for (const Method& method : kMethods) {
    const auto theirs = table_4_published(study, method.structure, "ipu_accuracy");
    const auto ours = accuracy_of(part, kTable4Name, std::string(graph::name_of(method.structure)),
                                  method_trainings(method, Recipe::paper, study.request));
    if (theirs && ours)
      all.push_back(
          {fmt::format("{}: accuracy", graph::name_of(method.structure)), "%", *theirs, ours->mean});
  }
}

std::vector<Comparison> table_4_comparisons(const Study& study) {
  std::vector<Comparison> all;
  if (study.modelled() != nullptr) compare_with_model(study, *study.modelled(), all);
  if (study.host() != nullptr) compare_accuracies(study, *study.host(), all);
  return all;
}

}  // namespace

Section table_4() {
  return {.name = kTable4Name,
          .title = "The network with one hidden layer (table 4)",
          .cells = table_4_cells,
          .figures = table_4_figures,
          .comparisons = table_4_comparisons};
}

}  // namespace tessera::studies::butterfly
