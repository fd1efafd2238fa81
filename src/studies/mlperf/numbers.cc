// FP16 with stochastic rounding.
#include <fmt/format.h>
#include <tessera/machine.h>
#include <tessera/numbers.h>
#include <tessera/pretraining.h>
#include <tessera/token_text.h>
#include <tessera/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "studies/mlperf/rows.h"
#include "studies/mlperf/small_sums.h"
#include "studies/mlperf/study.h"

namespace tessera::studies::mlperf {
namespace {

constexpr std::string_view kNumbers = "numbers";
constexpr const char* kSumsCell = "1 + 8192 x 2^-13 in FP16";

/// Trainings that --full compares: their number types, and the rounding that replaces the types' own.
struct NumbersOfTraining {
  const char* name;
  const char* numbers;
  std::optional<graph::Rounding> rounding;
};
const NumbersOfTraining kTrainings[] = {
    {"FP32", "fp32", {}},
    {"FP16, stochastic rounding, FP16 moments", "mlperf-slides", {}},
    {"FP16, rounding to nearest, FP16 moments", "mlperf-slides", graph::Rounding::nearest}};

constexpr uint32_t kTrainedSteps = 600;

std::string key_of_numbers(const NumbersOfTraining& what) {
  return fmt::format("BERT-tiny, synthetic text, {} steps, {}", kTrainedSteps, what.name);
}

Result train_with(const NumbersOfTraining& what, uint32_t threads) {
  PretrainingSettings settings;
  settings.numbers = what.numbers;
  settings.rounding = what.rounding;
  settings.lr = 0.0001;
  settings.phases[0].length = 64;
  settings.phases[0].packs = 8;
  settings.phases[0].steps = kTrainedSteps;
  const TextSplit text = split_text(synthetic_text({.vocabulary = 500}), settings.validation, settings.seed);
  BertTrainer trainer(settings, text, tessera::Machine::host(threads), threads);
  trainer.train();
  Result result;
  result.values["held_out_loss"] = trainer.evaluate().held_out_loss;
  return result;
}

std::vector<Cell> numbers_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all;
  if (machine.kind != machine::Kind::host) return all;
  all.push_back({kSumsCell, 0.1, [](const Setting&) { return small_sums(8192); }});
  if (request.full)
    for (const NumbersOfTraining& what : kTrainings)
      all.push_back({key_of_numbers(what), 30,
                     [what](const Setting& setting) { return train_with(what, setting.threads); }});
  return all;
}

std::vector<Figure> loss_figures(const Study& study) {
  const Part* host = study.host();
  Figure figure{
      fmt::format("BERT-tiny after {} steps with a learning rate of 0.0001, measured on this host",
                  kTrainedSteps),
      "Synthetic text of 500 tokens; the loss begins at about 6.9. Small updates are lost if FP16 is rounded "
      "to nearest.",
      {"numbers", "held-out loss"}};
  for (const NumbersOfTraining& what : kTrainings)
    if (const auto loss =
            host == nullptr ? std::nullopt : host->value(kNumbers, key_of_numbers(what), "held_out_loss"))
      figure.rows.push_back({{what.name}, {fmt::format("{:.4f}", *loss)}});
  return {figure};
}

graph::Numbers numbers_of_slides() { return graph::numbers_named("mlperf-slides"); }

double bits_of(Type type) { return 8 * static_cast<double>(size_of(type)); }

Ours rounded_sums(const Study& study) {
  const Part* host = study.host();
  const auto nearest = host == nullptr ? std::nullopt : host->value(kNumbers, kSumsCell, "nearest");
  const auto stochastic = host == nullptr ? std::nullopt : host->value(kNumbers, kSumsCell, "stochastic");
  if (!nearest || !stochastic) return if_run({}, Origin::measured, "");
  return in_words(Origin::measured,
                  fmt::format("1 + 8192 x 2^-13 in FP16, which is 2: {:.3f} rounded to nearest, {:.3f} "
                              "stochastically, in the mean of 64 sums",
                              *nearest, *stochastic));
}

const std::vector<Beside>& beside_numbers() {
  static const std::vector<Beside> all = {
      {"FP16",
       [](const Study&) {
         return computed(bits_of(numbers_of_slides().products), "--numbers mlperf-slides");
       }},
      {"stochastic rounding", rounded_sums},
      {"weight aggregation",
       [](const Study&) {
         return computed(bits_of(numbers_of_slides().sums),
                         "sums of gradients of mlperf-slides; mlperf-v1 and mlperf-v2 have FP16 ones");
       }},
      {"master weights",
       [](const Study&) {
         return computed(bits_of(numbers_of_slides().parameters),
                         "parameters of mlperf-slides; there is no other copy");
       }},
      {"LAMB moments",
       [](const Study&) {
         return computed(
             bits_of(numbers_of_slides().state),
             "moments of mlperf-slides; --offload streams them. The configurations of v1.0 have FP32 "
             "moments; the configurations of v2.0 keep FP16 moments on the chips");
       }},
  };
  return all;
}

std::vector<Row> number_rows(const Study& study) { return rows_of(study, kNumbers, beside_numbers()); }

std::vector<Figure> numbers_figures(const Study& study) {
  std::vector<Figure> all = {figure_of("Low precision", "", number_rows(study))};
  for (Figure& figure : loss_figures(study)) all.push_back(std::move(figure));
  return all;
}

std::vector<Comparison> numbers_comparisons(const Study& study) {
  return comparisons_of(number_rows(study), "numbers");
}

}  // namespace

Section numbers_section() {
  return {.name = kNumbers,
          .title = "FP16 with stochastic rounding",
          .cells = numbers_cells,
          .figures = numbers_figures,
          .comparisons = numbers_comparisons};
}

}  // namespace tessera::studies::mlperf
