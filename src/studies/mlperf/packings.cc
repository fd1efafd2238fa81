#include "studies/mlperf/packings.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "studies/mlperf/rows.h"
#include "studies/mlperf/study.h"
#include "studies/packing/study.h"

namespace tessera::studies::mlperf {
namespace {

constexpr std::string_view kWikipedia = "wikipedia", kSquad = "squad-1.1", kTraining = "training";

const packing::DataSet& wikipedia_set() { return packing::data_sets()[0]; }

Ours of_squad(const Study& study, const char* row, const char* value) {
  const Result* result = result_of_packing(study, kSquad, row);
  const bool is_nnlshp = std::string_view(row).ends_with("nnlshp");
  return if_run(result == nullptr ? std::nullopt : result->value(value), Origin::computed,
                is_nnlshp ? "our least squares are rounded to fewer packs, of more strategies" : "");
}

/// Number of packs times their length.
Ours tokens_of_squad(const Study& study, const char* row) {
  Ours ours = of_squad(study, row, "packs");
  if (ours.value) *ours.value *= packing::data_sets()[1].max_length;
  return ours;
}

Ours wasted_compute(const Study& study) {
  const Result* padded = result_of_packing(study, kWikipedia, "depth 1 none");
  const std::optional<double> efficiency = padded == nullptr ? std::nullopt : padded->value("efficiency");
  if (!efficiency) return if_run({}, Origin::computed, "");
  return computed(100 * (1 - *efficiency), "% of the tokens of padded sequences of Wikipedia are padding");
}

/// How close a packing with three sequences per pack comes to a proven bound.
Ours packing_of_three(const Study& study) {
  const Result* best = result_of_packing(study, kWikipedia, "depth 3 best");
  if (best == nullptr) return if_run({}, Origin::computed, "");
  const double packs = best->value("packs").value_or(0), bound = best->value("lower_bound").value_or(0);
  return in_words(
      Origin::computed,
      fmt::format("best needs {:.0f} packs of at most 3, and proves that none needs fewer than {:.0f}", packs,
                  bound));
}

Ours lengths_chart(const Study& study) {
  if (study.request.lengths.empty()) return if_run({}, Origin::computed, "");
  return in_words(Origin::computed, "the page has it as a chart");
}

const std::vector<Beside>& beside_wikipedia() {
  static const std::vector<Beside> all = {
      {"batching and padding",
       [](const Study&) {
         return in_words(Origin::computed,
                         "packs have one length too; the table has what padding each packing leaves");
       }},
      {"wasted compute", wasted_compute},
      {"Wikipedia: lengths", lengths_chart},
      {"GLUE: lengths", [](const Study&) { return none_because("its lengths are not among the data"); }},
      {"packing is hard", packing_of_three},
      {"packing takes histograms",
       [](const Study&) {
         return in_words(Origin::computed, "planners take histograms; streams of raw lengths are packed too");
       }},
      {"SPFHP: film",
       [](const Study&) { return none_because("a film; the algorithm is spfhp in the table"); }},
      {"SPFHP and NNLSHP",
       [](const Study&) { return in_words(Origin::computed, "spfhp and nnlshp in the table"); }},
  };
  return all;
}

const std::vector<Beside>& beside_squad() {
  static const std::vector<Beside> all = {
      {"SQuAD 1.1: lengths", lengths_chart},
      {"depth 1 none: strategies", [](const Study& s) { return of_squad(s, "depth 1 none", "strategies"); }},
      {"depth 1 none: tokens", [](const Study& s) { return tokens_of_squad(s, "depth 1 none"); }},
      {"depth 1 none: padding", [](const Study& s) { return of_squad(s, "depth 1 none", "padding"); }},
      {"depth 2 spfhp: strategies",
       [](const Study& s) { return of_squad(s, "depth 2 spfhp", "strategies"); }},
      {"depth 2 spfhp: tokens", [](const Study& s) { return tokens_of_squad(s, "depth 2 spfhp"); }},
      {"depth 2 spfhp: padding", [](const Study& s) { return of_squad(s, "depth 2 spfhp", "padding"); }},
      {"depth 3 nnlshp: strategies",
       [](const Study& s) { return of_squad(s, "depth 3 nnlshp", "strategies"); }},
      {"depth 3 nnlshp: tokens", [](const Study& s) { return tokens_of_squad(s, "depth 3 nnlshp"); }},
      {"depth 3 nnlshp: padding", [](const Study& s) { return of_squad(s, "depth 3 nnlshp", "padding"); }},
      {"depth 3 spfhp: strategies",
       [](const Study& s) { return of_squad(s, "depth 3 spfhp", "strategies"); }},
      {"depth 3 spfhp: tokens", [](const Study& s) { return tokens_of_squad(s, "depth 3 spfhp"); }},
      {"depth 3 spfhp: padding", [](const Study& s) { return of_squad(s, "depth 3 spfhp", "padding"); }},
  };
  return all;
}

std::vector<Row> packing_rows(const Study& study, std::string_view section) {
  if (section == kWikipedia) return rows_of(study, section, beside_wikipedia());
  if (section == kSquad) return rows_of(study, section, beside_squad());
  return {};
}

template <const std::string_view& section>
std::vector<Cell> packing_cells(const machine::Machine& machine, const Request& request) {
  if (request.lengths.empty()) return {};
  return section_of_packing(section).cells(machine, request);
}

template <const std::string_view& section>
std::vector<Figure> packing_figures(const Study& study) {
  std::vector<Figure> all = section_of_packing(section).figures(as_packing(study));
  const std::vector<Row> rows = packing_rows(study, section);
  if (!rows.empty())
    all.push_back(figure_of(fmt::format("{}: what else the slides say", section_of_packing(section).title),
                            "Packings are computed here; they are the same on every machine.", rows));
  return all;
}

template <const std::string_view& section>
report::Html packing_charts(const Study& study) {
  const Section& theirs = section_of_packing(section);
  if (theirs.charts == nullptr || study.request.lengths.empty()) return {};
  return theirs.charts(as_packing(study));
}

template <const std::string_view& section>
std::vector<Comparison> packing_comparisons(const Study& study) {
  std::vector<Comparison> all = section_of_packing(section).comparisons(as_packing(study));
  for (Comparison& c : all) c.origin = name_of(c.is_measured ? Origin::measured : Origin::computed);
  for (Comparison& c : comparisons_of(packing_rows(study, section), "")) all.push_back(std::move(c));
  return all;
}

template <const std::string_view& section>
Section packing_section() {
  return {.name = section,
          .title = section_of_packing(section).title,
          .cells = packing_cells<section>,
          .figures = packing_figures<section>,
          .charts = packing_charts<section>,
          .comparisons = packing_comparisons<section>};
}

}  // namespace

Study as_packing(const Study& study) {
  Study other(packing::paper(), study.request);
  other.parts = study.parts;
  return other;
}

const Section& section_of_packing(std::string_view name) {
  const std::span<const Section> sections = packing::paper().sections;
  return *std::ranges::find(sections, name, &Section::name);
}

const Result* result_of_packing(const Study& study, std::string_view section, const std::string& row) {
  const Part* host = study.host();
  if (host == nullptr) return nullptr;
  for (const auto& [key, result] : host->results)
    if (key.first == section && key.second.starts_with(row + ",")) return &result;
  return nullptr;
}

std::optional<double> packing_factor_of(const Study& study, const packing::Row& row) {
  if (const Result* result = result_of_packing(study, kWikipedia, row.name()))
    return result->value("packing_factor");
  return as_packing(study).published.number(packing::kTable, published_name(wikipedia_set(), row),
                                            "packing_factor");
}

std::optional<double> measured_speed_up(const Study& study, const packing::Row& row) {
  const Result* result = result_of_packing(study, kTraining, row.name());
  if (result == nullptr) return std::nullopt;
  const auto padded = result->value("seconds_per_padded_sequence"), pack = result->value("seconds_per_pack");
  const auto factor = result->value("packing_factor");
  return padded && pack && factor ? std::optional(*padded * *factor / *pack) : std::nullopt;
}

std::optional<double> published_speed_up(const Study& study, const packing::Row& row) {
  return as_packing(study).published.number(packing::kTable, published_name(wikipedia_set(), row), "speedup");
}

Section wikipedia_section() { return packing_section<kWikipedia>(); }
Section squad_section() { return packing_section<kSquad>(); }
Section training_section() { return packing_section<kTraining>(); }

}  // namespace tessera::studies::mlperf
