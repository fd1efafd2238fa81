#include "studies/mlperf/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera::studies::mlperf {
namespace {

/// The number with its words: "2 packs (LBS 2)".
std::string published_text(const Row& row) {
  if (!row.published) return row.words;
  const std::string number = fmt::format("{:.10g}", *row.published);
  return row.words.empty() ? number : fmt::format("{} ({})", number, row.words);
}

std::string ours_text(const Ours& ours) {
  return ours.value ? fmt::format("{:.5g}", *ours.value) : ours.origin == Origin::none ? "none" : "-";
}

std::string ratio_text(const Row& row) {
  if (!row.ours.value || !row.published || *row.published == 0) return "";
  return fmt::format("{:.2f}", *row.ours.value / *row.published);
}

}  // namespace

std::string_view name_of(Origin origin) {
  switch (origin) {
    case Origin::measured: return "measured";
    case Origin::modelled: return "modelled";
    case Origin::computed: return "computed";
    case Origin::none: break;
  }
  return "";
}

Ours if_run(std::optional<double> value, Origin origin, std::string remark) {
  if (!value) return none_because("not run here");
  return {value, origin, std::move(remark)};
}

std::vector<Row> rows_of(const Study& study, std::string_view section, std::span<const Beside> beside) {
  std::vector<Row> rows;
  for (const PublishedRow& row : study.published.rows(kSlidesTable)) {
    if (row.text("section") != section) continue;
    const std::string& name = row.text("name");
    const auto found = std::ranges::find(beside, name, &Beside::name);
    rows.push_back({.name = name,
                    .where = fmt::format("line {}", row.text("line")),
                    .unit = row.text("unit"),
                    .published = study.published.number(kSlidesTable, name, "value"),
                    .words = row.text("words"),
                    .ours = found == beside.end() ? none_because("there is nothing of ours beside it")
                                                  : found->ours(study)});
  }
  return rows;
}

std::vector<Row> rows_of_logs(const Study& study, std::string_view model,
                              Ours (*minutes)(const Study& study, const std::string& round, uint32_t chips)) {
  std::vector<Row> rows;
  for (const PublishedRow& log : study.published.rows(kLogsTable)) {
    if (log.text("model") != model) continue;
    const auto chips = static_cast<uint32_t>(log.number("chips"));
    rows.push_back({.name = log.text("name"),
                    .where = fmt::format("logs {}", log.text("round")),
                    .unit = "minutes",
                    .published = study.published.number(kLogsTable, log.text("name"), "minutes"),
                    .ours = minutes(study, log.text("round"), chips)});
  }
  return rows;
}

Figure figure_of(const std::string& title, const std::string& note, const std::vector<Row>& rows) {
  Figure figure{
      title,
      note,
      {"row", "from", "unit", "published", "ours", "ours/published", "is", "what it is, or why none"}};
  for (const Row& row : rows)
    figure.rows.push_back({{row.name},
                           {row.where},
                           {row.unit},
                           {published_text(row)},
                           {ours_text(row.ours)},
                           {ratio_text(row)},
                           {std::string(name_of(row.ours.origin))},
                           {row.ours.remark}});
  return figure;
}

std::vector<Comparison> comparisons_of(const std::vector<Row>& rows, const std::string& group) {
  std::vector<Comparison> all;
  for (const Row& row : rows) {
    const bool is_modelled = row.ours.origin == Origin::modelled;
    const bool is_summed_up = is_modelled && row.ours.value && row.published;
    all.push_back({.what = row.name,
                   .unit = row.unit,
                   .published = row.published,
                   .ours = row.ours.value,
                   .remark = row.ours.remark,
                   .group = is_summed_up ? group : "",
                   .is_measured = row.ours.origin == Origin::measured,
                   .says = row.words,
                   .origin = std::string(name_of(row.ours.origin)),
                   .is_in_table = true});
  }
  return all;
}

std::string figure_text(std::optional<double> value, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value) : "";
}

}  // namespace tessera::studies::mlperf
