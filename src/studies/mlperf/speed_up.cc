// The gain from packing: in operations, and in time on a pod with and without transfers from its host.
#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "studies/mlperf/bert_steps.h"
#include "studies/mlperf/packings.h"
#include "studies/mlperf/rows.h"
#include "studies/mlperf/study.h"

namespace tessera::studies::mlperf {
namespace {

constexpr std::string_view kSpeedUp = "speed-up";

using pack::Algorithm;

/// The packings whose speed-up was published, in the order of the slides.
std::span<const packing::Row> published_packings() {
  static const packing::Row rows[] = {{1, Algorithm::spfhp},  {2, Algorithm::spfhp}, {3, Algorithm::spfhp},
                                      {3, Algorithm::nnlshp}, {4, Algorithm::spfhp}, {8, Algorithm::spfhp},
                                      {16, Algorithm::spfhp}};
  return rows;
}

const packing::Row& packing_of_submissions() { return published_packings()[3]; }

/// The gain of a packing over padded sequences: its packing factor times the ratio of operations of a padded
/// sequence and a pack.
std::optional<double> gained_operations(const Study& study, const packing::Row& row) {
  const std::optional<double> factor = packing_factor_of(study, row);
  if (!factor) return std::nullopt;
  const graph::BertConfig large = graph::BertConfig::named("large");
  return *factor * forward_flops(large, pack_of(1, 1)) / forward_flops(large, pack_of(row.depth, 1));
}

std::optional<double> gained_time(const Study& study, const packing::Row& row, bool with_host) {
  const BertSetup& setup = bert_setups().front();
  const auto packed = extrapolated_step_of(study, setup, row.depth),
             padded = extrapolated_step_of(study, setup, 1);
  const std::optional<double> factor = packing_factor_of(study, row);
  if (!packed || !padded || !factor) return std::nullopt;
  const auto seconds = [&](const ModelledStep& step, uint32_t sequences) {
    return step.seconds + (with_host ? host_seconds(setup, sequences) : 0);
  };
  return *factor * seconds(*padded, 1) / seconds(*packed, row.depth);
}

std::vector<Figure> gained_figures(const Study& study) {
  Figure figure{"Speed-up by packing Wikipedia, BERT-large on a POD16",
                "Times of a padded sequence over times of a packed one. Modelled: a step of 1,536 packs, "
                "extrapolated, without and with the transfer of all inputs from the host, with which nothing "
                "overlaps. Packs have more predictions and losses than padded sequences; attention between "
                "sequences counts. Measured: steps of BERT-base on this host (section training), which skip "
                "it. The published speed-ups are .956 to .959 of the factor in every row: one constant, not "
                "separate measurements.",
                {"depth", "algorithm", "factor", "operations", "modelled", "with transfers", "of the factor",
                 "measured", "published", "of its factor"}};
  for (const packing::Row& row : published_packings()) {
    const auto factor = packing_factor_of(study, row), gain = gained_time(study, row, false);
    const auto published = published_speed_up(study, row);
    if (!factor) continue;
    const auto share = [&](const std::optional<double>& value) {
      return value ? std::optional(100 * *value / *factor) : std::nullopt;
    };
    figure.rows.push_back({{fmt::format("{}", row.depth)},
                           {row.depth == 1 ? "none" : std::string(pack::name_of(row.algorithm))},
                           {figure_text(factor, "{:.3f}")},
                           {figure_text(gained_operations(study, row), "{:.3f}")},
                           {figure_text(gain, "{:.3f}")},
                           {figure_text(gained_time(study, row, true), "{:.3f}")},
                           {figure_text(share(gain), "{:.1f} %")},
                           {figure_text(measured_speed_up(study, row), "{:.3f}")},
                           {figure_text(published, "{:.3f}")},
                           {figure_text(share(published), "{:.1f} %")}});
  }
  return {figure};
}

Ours operations_of_submissions(const Study& study) {
  return if_run(
      gained_operations(study, packing_of_submissions()), Origin::computed,
      "products and attention of BERT-large, padded over packed by nnlshp; the published one is .958 of the "
      "packing factor, as in every row, and what the rest is the slides do not say");
}

Ours io_of_submissions(const Study& study) {
  const BertSetup& setup = bert_setups().front();
  const std::optional<ModelledStep> step = step_of(study, setup);
  const double packed = host_seconds(setup), padded = host_seconds(setup, 1);
  std::string remark = fmt::format(
      "transfers of a step take {:.2f} ms for its packs, {:.2f} ms for as many padded sequences, "
      "which are half of those in the packs",
      1e3 * packed, 1e3 * padded);
  if (step) remark += fmt::format(": {:.2f} % of a step either way", 100 * packed / step->seconds);
  return in_words(Origin::modelled, remark);
}

Ours time_of_submissions(const Study& study) {
  return if_run(
      gained_time(study, packing_of_submissions(), true), Origin::modelled,
      "with transfers from the host; frameworks' own time a step, which packing also halves, is not "
      "modelled");
}

Ours time_here(const Study& study) {
  return if_run(measured_speed_up(study, packing_of_submissions()), Origin::measured,
                "a step of BERT-base on this host, packs by nnlshp (section training)");
}

const std::vector<Beside>& beside_speed_up() {
  static const std::vector<Beside> all = {{"FLOPs reduced", operations_of_submissions},
                                          {"less overhead of IO", io_of_submissions},
                                          {"packed in time", time_of_submissions},
                                          {"original beside packed", time_here}};
  return all;
}

/// The published speed-up of each packing, which the section on training shows beside measurements.
std::vector<Row> gained_rows(const Study& study) {
  std::vector<Row> rows;
  for (const packing::Row& row : published_packings())
    for (const bool with_host : {false, true})
      rows.push_back({.name = fmt::format("{}: speed-up{}", row.name(), with_host ? " with transfers" : ""),
                      .where = "lines 269 to 275",
                      .unit = "x",
                      .published = published_speed_up(study, row),
                      .ours = if_run(gained_time(study, row, with_host), Origin::modelled,
                                     "extrapolated, BERT-large on a POD16")});
  return rows;
}

std::vector<Row> speed_up_rows(const Study& study) { return rows_of(study, kSpeedUp, beside_speed_up()); }

std::vector<Figure> speed_up_figures(const Study& study) {
  std::vector<Figure> all = gained_figures(study);
  all.push_back(figure_of("What packing gains", "", speed_up_rows(study)));
  return all;
}

std::vector<Comparison> speed_up_comparisons(const Study& study) {
  std::vector<Comparison> all = comparisons_of(speed_up_rows(study), "what packing gains");
  for (Comparison& c : comparisons_of(gained_rows(study), "speed-up on a pod")) all.push_back(std::move(c));
  return all;
}

}  // namespace

Section speed_up_section() {
  return {.name = kSpeedUp,
          .title = "What packing gains on a pod",
          .figures = speed_up_figures,
          .comparisons = speed_up_comparisons,
          .reads = kSteps};
}

}  // namespace tessera::studies::mlperf
