// Steps of BERT-large on pods: what other sections read.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "report/axis.h"
#include "studies/mlperf/bert_steps.h"
#include "studies/mlperf/rows.h"
#include "studies/mlperf/study.h"

namespace tessera::studies::mlperf {
namespace {

/// Maximum numbers of sequences of a pack for the packings whose speed-up was published, besides the
/// submissions' packings; 1: padded.
constexpr uint32_t kFurtherPacks[] = {1, 2, 4, 8, 16};

std::vector<Cell> steps_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all;
  if (machine.kind == machine::Kind::host) return all;
  for (const BertSetup& setup : bert_setups()) {
    all.push_back(cell_of_step(setup, kSequencesOfPack, false));
    if (request.full && !setup.is_assumed) all.push_back(cell_of_step(setup, kSequencesOfPack, true));
  }
  for (const uint32_t sequences : kFurtherPacks)
    all.push_back(cell_of_step(bert_setups().front(), sequences, false));
  return all;
}

/// "3, 7, 7, 7", with separate numbers of feed-forward parts after a slash.
std::string layers_text(const BertSetup& setup) {
  if (setup.feed_forwards.empty()) return fmt::format("{}", fmt::join(setup.layers, ", "));
  std::vector<std::string> stages;
  for (size_t i = 0; i < setup.layers.size(); ++i)
    stages.push_back(setup.layers[i] == setup.feed_forwards[i]
                         ? fmt::format("{}", setup.layers[i])
                         : fmt::format("{}/{}", setup.layers[i], setup.feed_forwards[i]));
  return fmt::format("{}", fmt::join(stages, ", "));
}

std::string percent_text(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

/// Time of a step's multiply-accumulates at the peak of its chips, with recomputation: the forward pass
/// counts twice, and the backward pass as two forward passes.
double seconds_at_peak(const BertSetup& setup) {
  const machine::Machine pod = machine::find(setup.machine);
  const double flops =
      4 * forward_flops(graph::BertConfig::named("large"), pack_of(kSequencesOfPack, setup.packs_of_step()));
  return flops / (2 * pod.macs_per_cycle_f16 * pod.tiles * pod.clock_hz);
}

std::vector<Figure> steps_figures(const Study& study) {
  Figure figure{
      "Steps of BERT-large, packs of 512 tokens, modelled",
      "Batches are listed in sequences, two for each pack: v1.0 on a POD16 has 2 packs x 192 x 4 replicas = "
      "1,536 packs a step. Extrapolated from networks of few layers, or of the whole network (--full). At "
      "the peak: all products and attention, with recomputation. Assumed: 1f1b as the schedule; v1.1 as "
      "v1.0, on GC200; v2.0 on Bow chips, as the submission's descriptions of its systems say; pods of "
      "128 and 256 chips have more replicas of the kind that 64 chips have, and as large a batch. Attention "
      "between sequences counts, though tiles skip it. Setups whose fullest tile needs more than it has do "
      "not fit; their time is the program's, if it had the memory.",
      {"setup", "machine", "layers of a replica", "replicas", "micro-batch", "accumulation", "packs",
       "listed batch", "step", "is", "at the peak", "of the step", "fullest tile"}};
  for (const BertSetup& setup : bert_setups()) {
    const std::optional<ModelledStep> step = step_of(study, setup);
    if (!step) continue;
    const double peak = seconds_at_peak(setup);
    figure.rows.push_back(
        {{setup.name + (setup.is_assumed ? " (assumed)" : "")},
         {setup.machine},
         {layers_text(setup)},
         {fmt::format("{}", setup.replicas)},
         {fmt::format("{}", setup.packs)},
         {fmt::format("{}", setup.micro_batches)},
         {report::count_text(setup.packs_of_step())},
         {report::count_text(setup.listed_batch())},
         {report::value_text(step->seconds, report::Unit::seconds)},
         {step->is_whole ? "whole" : "extrapolated"},
         {report::value_text(peak, report::Unit::seconds)},
         {percent_text(peak / step->seconds)},
         {report::count_text(static_cast<uint64_t>(step->result->value("tile_bytes").value_or(0)))}});
  }
  return {figure};
}

/// The rows of steps.csv.
std::vector<Row> step_rows(const Study& study) {
  std::vector<Row> rows;
  const BertSetup& pod16 = bert_setups().front();
  const auto published = [&](const char* name, const char* column) {
    return study.published.number(kStepsTable, name, column);
  };
  const std::optional<ModelledStep> step = step_of(study, pod16);
  rows.push_back({.name = "a step of a POD16",
                  .where = "logs v1.1",
                  .unit = "s",
                  .published = published("v1.1 POD16 packed", "seconds"),
                  .words = "at most: 26.05 minutes over 1141 steps",
                  .ours = if_run(step ? std::optional(step->seconds) : std::nullopt, Origin::modelled,
                                 step && step->is_whole ? "the whole network" : "extrapolated")});
  rows.push_back(
      {.name = "steps without packing",
       .where = "logs v1.1",
       .unit = "steps",
       .published = published("v1.1 POD16 unpacked", "steps"),
       .words = "1141 packed",
       .ours = none_because("a number of steps to a quality, which takes the training itself; at the packed "
                            "step's time they would be 51 minutes, not the closed row's 32.70")});
  for (const char* name : {"v1.0 POD16", "v1.0 POD64", "v2.0 POD16", "v2.0 POD64"}) {
    const BertSetup* setup = find_setup(name);
    rows.push_back({.name = fmt::format("batch of {}", name),
                    .where = "configuration",
                    .unit = "sequences",
                    .published = published(name, "listed"),
                    .words = "listed",
                    .ours = computed(setup->listed_batch(),
                                     fmt::format("micro-batch x accumulation x replicas are {} packs, of two "
                                                 "sequences each",
                                                 setup->packs_of_step()))});
  }
  return rows;
}

std::vector<Figure> steps_all_figures(const Study& study) {
  std::vector<Figure> all = steps_figures(study);
  all.push_back(figure_of("Steps and batches of the logs", "", step_rows(study)));
  return all;
}

std::vector<Comparison> steps_comparisons(const Study& study) {
  return comparisons_of(step_rows(study), "steps of BERT");
}

}  // namespace

Section steps_section() {
  return {.name = kSteps,
          .title = "Steps of BERT-large on pods",
          .cells = steps_cells,
          .figures = steps_all_figures,
          .comparisons = steps_comparisons};
}

}  // namespace tessera::studies::mlperf
