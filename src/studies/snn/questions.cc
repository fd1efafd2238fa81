// The paper's open questions, answered by training: the effect of lists that are far too short for the
// neurons that pass a gradient, which surrogate gradient to take, and how deep networks train.
#include <fmt/format.h>

#include <limits>
#include <utility>

#include "report/interval.h"
#include "studies/snn/study.h"
#include "studies/snn/training_cell.h"

namespace tessera::studies::snn {
namespace {

constexpr double kAll = -std::numeric_limits<double>::infinity();

struct Extent {
  uint32_t epochs;
  uint32_t seeds;
};
Extent questions_extent_of(const Request& request) {
  if (request.full) return {20, 3};
  return {8, 1};
}

std::string questions_name_of(const TrainingCase& what, uint32_t epochs, uint64_t seed) {
  return fmt::format("{}, {} epochs, seed {}", what.name, epochs, seed);
}

std::vector<TrainingCase> overflow_cases() {
  std::vector<TrainingCase> cases;
  for (const double threshold : {kAll, 0.5, 0.9})
    for (const uint32_t most : {0U, 64U, 32U, 16U, 8U})
      cases.push_back(
          {.name = fmt::format("ϑ_grad {}, capacity {}", threshold, most == 0 ? kHiddenNeurons : most),
           .gradient_threshold = threshold,
           .most_listed = most});
  return cases;
}

std::vector<TrainingCase> surrogate_cases() {
  std::vector<TrainingCase> cases;
  for (const SurrogateFamily family :
       {SurrogateFamily::superspike, SurrogateFamily::arctan, SurrogateFamily::triangle,
        SurrogateFamily::sigmoid, SurrogateFamily::boxcar})
    for (const double threshold : {kAll, 0.5})
      cases.push_back({.name = fmt::format("{}, ϑ_grad {}", tessera::name_of(family), threshold),
                       .surrogate = {.family = family},
                       .gradient_threshold = threshold});
  return cases;
}

std::vector<TrainingCase> depth_cases() {
  std::vector<TrainingCase> cases;
  for (uint32_t layers = 1; layers <= 5; ++layers)
    for (const auto& [slope, threshold] : {std::pair{10.0F, kAll}, {25.0F, kAll}, {25.0F, 0.5}})
      cases.push_back({.name = fmt::format("{} layers, slope {}, ϑ_grad {}", layers, slope, threshold),
                       .layers = layers,
                       .surrogate = {.slope = slope},
                       .gradient_threshold = threshold});
  return cases;
}

/// Cases of a section, and what its table says of them.
struct Question {
  std::string_view section;
  const char* title;
  const char* note;
  std::vector<TrainingCase> (*cases)();
};

constexpr Question kOverflow{
    "overflow", "Lists that are too short",
    "ϑ_grad: potentials above it pass a gradient; capacity: entries of the list of a "
    "layer of 128, in the last epochs. Dropped: of the neurons that had to be listed, at random.",
    overflow_cases};
constexpr Question kSurrogates{"surrogates", "Surrogate gradients", "All with the same slope.",
                               surrogate_cases};
constexpr Question kDepth{"depth", "Hidden layers of 128", "Each layer takes spikes a step later.",
                          depth_cases};

template <const Question& question>
std::vector<Cell> questions_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all;
  if (machine.kind != machine::Kind::host) return all;
  const auto [epochs, seeds] = questions_extent_of(request);
  for (const TrainingCase& what : question.cases())
    for (uint64_t seed = 0; seed < seeds; ++seed)
      all.push_back({questions_name_of(what, epochs, seed), 1.5 * epochs * what.layers,
                     [what, epochs, seed](const Setting& setting) {
                       return train(what, epochs, seed, setting.threads);
                     }});
  return all;
}

/// The interval over the seeds; none if one is missing.
std::optional<report::Interval> questions_value_of(const Part& part, const Question& question,
                                                   const TrainingCase& what, const Request& request,
                                                   const std::string& value) {
  const auto [epochs, seeds] = questions_extent_of(request);
  std::vector<double> found;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const auto one = part.value(question.section, questions_name_of(what, epochs, seed), value);
    if (!one) return std::nullopt;
    found.push_back(*one);
  }
  return report::interval_of(found);
}

template <const Question& question>
std::vector<Figure> questions_figures(const Study& study) {
  const Part* host = study.host();
  if (host == nullptr) return {};
  Figure figure{fmt::format("{}: Randman of two dimensions, {} epochs", question.title,
                            questions_extent_of(study.request).epochs),
                question.note,
                {"network", "accuracy, %", "fired", "listed", "dropped", "ms per batch"}};
  for (const TrainingCase& what : question.cases()) {
    const auto value = [&](const char* name) {
      return questions_value_of(*host, question, what, study.request, name);
    };
    const auto accuracy = value("accuracy");
    if (!accuracy) continue;
    std::vector<Figure::Entry> row = {{what.name}, {report::to_string(*accuracy)}};
    for (const char* fraction : {"fired", "listed", "dropped"})
      row.push_back({fmt::format("{:.1f} %", 100 * value(fraction)->mean)});
    row.push_back({fmt::format("{:.3g}", 1e3 * value("seconds")->mean)});
    figure.rows.push_back(std::move(row));
  }
  return {figure};
}

template <const Question& question>
Section questions_section() {
  return {.name = question.section,
          .title = question.title,
          .cells = questions_cells<question>,
          .figures = questions_figures<question>};
}

}  // namespace

Section overflow() { return questions_section<kOverflow>(); }
Section surrogates() { return questions_section<kSurrogates>(); }
Section depth() { return questions_section<kDepth>(); }

}  // namespace tessera::studies::snn
