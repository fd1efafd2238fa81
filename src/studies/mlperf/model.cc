// What packing changes in the model and its optimizer.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/graph.h>
#include <tessera/machine.h>
#include <tessera/optimizers.h>
#include <tessera/pretraining.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "studies/mlperf/packings.h"
#include "studies/mlperf/rows.h"
#include "studies/mlperf/study.h"
#include "studies/packing/training_cell.h"

namespace tessera::studies::mlperf {
namespace {

constexpr std::string_view kModel = "model";
constexpr const char* kMaskCell = "attention of sequences of 3 and 2 tokens";

/// Attends with equal scores, so that the non-zeros in a row of the result are the tokens to which a token
/// attends.
Result attend_as_on_the_slide(const Setting&) {
  constexpr uint32_t kTokens = 5, kFeatures = 8;
  graph::Graph g;
  const auto operand = [&](const char* name) { return g.input(name, {1, kTokens, kFeatures}); };
  const graph::Value q = operand("q"), k = operand("k"), v = operand("v");
  const graph::Value ids = g.input("ids", {1, kTokens}, Type::u32);
  g.output("y", attention(q, k, v, {.heads = 1, .query_ids = ids, .key_ids = ids}));
  const std::vector<float> zeros(size_t{kTokens} * kFeatures);
  std::vector<float> places = zeros;
  for (size_t i = 0; i < kTokens; ++i) places[i * kFeatures + i] = 1;
  graph::Session session(g, tessera::Machine::host(1));
  const graph::Arrays inputs = {{"q", zeros}, {"k", zeros}, {"v", places}, {"ids", {1, 1, 1, 2, 2}}};
  const graph::Arrays outputs = session.run(inputs);
  double attended = 0;
  for (const float y : outputs.at("y")) attended += y != 0 ? 1 : 0;
  Result result;
  result.values["attended"] = attended;
  return result;
}

std::vector<Cell> model_cells(const machine::Machine& machine, const Request&) {
  if (machine.kind != machine::Kind::host) return {};
  return {{kMaskCell, 0.1, attend_as_on_the_slide}};
}

Ours attended_pairs(const Study& study) {
  const Part* host = study.host();
  const std::optional<double> pairs =
      host == nullptr ? std::nullopt : host->value(kModel, kMaskCell, "attended");
  return if_run(pairs, Origin::measured, "attention with sequence ids, run here");
}

/// A pack as on the slide of the mask.
PretrainingBatch pack_of_the_slide() {
  const std::vector<packing::PackLengths> packs = {packing::PackLengths{3, 2}};
  return packing::random_batch(packs, {.packs = 1, .tokens = 5, .sequences = 2, .predictions = 2}, 100);
}

Ours positions_of_the_slide(const Study&) {
  return in_words(Origin::computed,
                  fmt::format("they begin anew in each sequence: {} for sequences of 3 and 2",
                              fmt::join(pack_of_the_slide().position_ids, " ")));
}

Ours unpacking_of_the_slide(const Study&) {
  return in_words(
      Origin::computed,
      fmt::format("the first tokens of all sequences of a pack are gathered at once: {} of this pack",
                  fmt::join(pack_of_the_slide().cls_positions, " ")));
}

Ours betas_of_lamb(const Study& study) {
  const std::optional<double> factor = packing_factor_of(study, {3, pack::Algorithm::nnlshp});
  if (!factor) return if_run({}, Origin::computed, "");
  const graph::Betas betas = graph::betas_of_packs({0.9, 0.999}, *factor);
  return in_words(Origin::computed,
                  fmt::format("betas_of_packs: 0.9 and 0.999 become {:.3f} and {:.4f} with {:.3f} sequences "
                              "in a pack",
                              betas.beta1, betas.beta2, *factor));
}

const std::vector<Beside>& beside_model() {
  static const std::vector<Beside> all = {
      {"co-optimization",
       [](const Study&) {
         return in_words(Origin::computed, "the sections wikipedia to numbers have a row for each of them");
       }},
      {"BERT",
       [](const Study&) {
         return in_words(Origin::computed,
                         "graph::bert_for_pretraining, tested against float64, with the parameters of "
                         "transformers' models");
       }},
      {"packing: steps",
       [](const Study&) {
         return computed(3, "packs as of the section wikipedia; masks, positions and losses; betas of LAMB");
       }},
      {"mask: pairs that attend", attended_pairs},
      {"mask: softmax",
       [](const Study&) {
         return in_words(Origin::computed,
                         "scores of other sequences are left out, so that their probability is 0 exactly");
       }},
      {"positions", positions_of_the_slide},
      {"unpacking for NSP", unpacking_of_the_slide},
      {"LAMB",
       [](const Study&) {
         return in_words(Origin::computed,
                         "an optimizer, tested against float64; gradients are divided once, by the number "
                         "over all micro-batches and replicas");
       }},
      {"LAMB: betas", betas_of_lamb},
  };
  return all;
}

std::vector<Row> model_rows(const Study& study) { return rows_of(study, kModel, beside_model()); }

std::vector<Figure> model_figures(const Study& study) {
  return {figure_of("What packing changes in the model and its optimizer", "", model_rows(study))};
}

std::vector<Comparison> model_comparisons(const Study& study) {
  return comparisons_of(model_rows(study), "model");
}

}  // namespace

Section model_section() {
  return {.name = kModel,
          .title = "What packing changes in the model and its optimizer",
          .cells = model_cells,
          .figures = model_figures,
          .comparisons = model_comparisons};
}

}  // namespace tessera::studies::mlperf
