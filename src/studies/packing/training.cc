#include "studies/packing/training.h"

#include <fmt/format.h>

#include <span>

#include "studies/packing/rows.h"
#include "studies/packing/training_cell.h"

namespace tessera::studies::packing {
namespace {

using pack::Algorithm;

constexpr std::string_view kSection = "training";

const DataSet& wikipedia() { return data_sets()[0]; }

/// The packings whose speed-up was published.
std::span<const Row> trained_rows() {
  static const Row rows[] = {{2, Algorithm::spfhp}, {3, Algorithm::spfhp}, {3, Algorithm::nnlshp},
                             {4, Algorithm::spfhp}, {8, Algorithm::spfhp}, {16, Algorithm::spfhp}};
  return rows;
}

/// BERT-base, with fewer layers unless all is asked for.
graph::BertConfig config_of(const Request& request) {
  graph::BertConfig config = graph::BertConfig::named("base");
  if (!request.full) config.num_hidden_layers = 2;
  return config;
}

constexpr size_t kSteps = 4;

std::string key_of(const Request& request, const Row& row) {
  return fmt::format("{}, {}, BERT-base with {} layers, {} steps", row.name(),
                     name_of(lengths_of(request, wikipedia())), config_of(request).num_hidden_layers, kSteps);
}

std::vector<Cell> training_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all;
  if (machine.kind != machine::Kind::host) return all;
  const graph::BertConfig config = config_of(request);
  for (const Row& row : trained_rows())
    all.push_back({key_of(request, row), 4.0 * config.num_hidden_layers,
                   [row, config, lengths = lengths_of(request, wikipedia())](const Setting& setting) {
                     const auto plan = [&](Algorithm algorithm, uint32_t depth) {
                       return pack::plan(lengths, {.algorithm = algorithm, .max_per_pack = depth});
                     };
                     const pack::Packing packing = plan(row.algorithm, row.depth);
                     const SecondsPerPack seconds = measure_training(
                         config, packing, plan(Algorithm::spfhp, 1), kSteps, setting.threads);
                     Result result;
                     result.values["packing_factor"] = packing.packing_factor();
                     result.values["seconds_per_pack"] = seconds.packed;
                     result.values["seconds_per_padded_sequence"] = seconds.padded;
                     return result;
                   }});
  return all;
}

/// A packing's training beside that on padded sequences.
struct Gain {
  double factor = 1;
  double packed_seconds = 0, padded_seconds = 0;  ///< per sequence

  double speedup() const { return padded_seconds / packed_seconds; }
};

std::optional<Gain> gain_of(const Study& study, const Row& row) {
  const Part* host = study.host();
  const Result* result = host == nullptr ? nullptr : host->find(kSection, key_of(study.request, row));
  if (result == nullptr) return std::nullopt;
  const double factor = result->value("packing_factor").value();
  return Gain{factor, result->value("seconds_per_pack").value() / factor,
              result->value("seconds_per_padded_sequence").value()};
}

std::optional<double> published(const Study& study, const Row& row, const char* column) {
  return study.published.number(kTable, published_name(wikipedia(), row), column);
}

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

std::vector<Figure> training_figures(const Study& study) {
  Figure figure{
      fmt::format("Training BERT-base with {} layers on packs of {}, two packs a step",
                  config_of(study.request).num_hidden_layers, wikipedia().name),
      "The theoretical speed-up over padding is the packing factor. Times are of steps on this host; "
      "published ones were measured on IPUs, with all layers.",
      {"algorithm", "depth", "factor", "ms per sequence", "padded", "speed-up", "of the factor",
       "published speed-up", "of its factor"}};
  for (const Row& row : trained_rows()) {
    const auto gain = gain_of(study, row);
    if (!gain) continue;
    const auto speedup = published(study, row, "speedup"), factor = published(study, row, "packing_factor");
    figure.rows.push_back({{std::string(pack::name_of(row.algorithm))},
                           {fmt::format("{}", row.depth)},
                           {fmt::format("{:.3f}", gain->factor)},
                           {fmt::format("{:.1f}", 1e3 * gain->packed_seconds)},
                           {fmt::format("{:.1f}", 1e3 * gain->padded_seconds)},
                           {fmt::format("{:.3f}", gain->speedup())},
                           {percent(gain->speedup() / gain->factor)},
                           {speedup ? fmt::format("{:.3f}", *speedup) : ""},
                           {speedup && factor ? percent(*speedup / *factor) : ""}});
  }
  return {figure};
}

std::vector<Comparison> training_comparisons(const Study& study) {
  std::vector<Comparison> all;
  for (const Row& row : trained_rows())
    if (const auto gain = gain_of(study, row))
      all.push_back({.what = fmt::format("{}: speed-up of training", row.name()),
                     .published = published(study, row, "speedup"),
                     .ours = gain->speedup(),
                     .group = "speed-up of training",
                     .is_measured = true});
  return all;
}

}  // namespace

Section training_section() {
  return {kSection, "Training on packs", training_cells, training_figures, nullptr, training_comparisons};
}

}  // namespace tessera::studies::packing
