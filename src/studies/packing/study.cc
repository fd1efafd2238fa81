#include "studies/packing/study.h"

#include <fmt/format.h>
#include <tessera/packing.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/axis.h"
#include "report/table.h"
#include "studies/common/json.h"

namespace tessera::studies::packing {
namespace {

using nlohmann::ordered_json;
using pack::Algorithm;

struct PublishedRow {
  std::string_view data;
  uint32_t depth;  // 0: the deepest row of the table, "max"
  std::string_view algorithm;
  Published row;
};

const std::vector<PublishedRow>& published_rows() {
  static const std::vector<PublishedRow> rows = {
      {"Wikipedia", 1, "none", {16.280e6, .4997, 1.000, 1.000}},
      {"Wikipedia", 2, "spfhp", {10.102e6, .8052, 1.612, 1.544}},
      {"Wikipedia", 3, "spfhp", {9.095e6, .8944, 1.790, 1.716}},
      {"Wikipedia", 3, "nnlshp", {8.155e6, .9975, 1.996, 1.913}},
      {"Wikipedia", 4, "spfhp", {8.659e6, .9394, 1.880, 1.803}},
      {"Wikipedia", 8, "spfhp", {8.225e6, .9890, 1.979, 1.895}},
      {"Wikipedia", 16, "spfhp", {8.168e6, .9960, 1.993, 1.905}},
      {"SQuAD 1.1", 1, "none", {88641, .44801, 1.000, std::nullopt}},
      {"SQuAD 1.1", 2, "spfhp", {45335, .87597, 1.955, std::nullopt}},
      {"SQuAD 1.1", 3, "nnlshp", {40808, .97310, 2.172, std::nullopt}},
      {"SQuAD 1.1", 3, "spfhp", {40711, .97547, 2.177, std::nullopt}},
  };
  return rows;
}

std::optional<Published> published(std::string_view data, uint32_t depth, std::string_view algorithm) {
  for (const PublishedRow& row : published_rows())
    if (row.data == data && row.depth == depth && row.algorithm == algorithm) return row.row;
  return std::nullopt;
}

std::vector<Algorithm> algorithms_at(uint32_t depth) {
  if (depth == 1) return {Algorithm::spfhp};  // all are the same
  std::vector<Algorithm> algorithms = {Algorithm::spfhp, Algorithm::lpfhp};
  if (depth == 3) algorithms.push_back(Algorithm::nnlshp);
  algorithms.push_back(Algorithm::best);
  return algorithms;
}

template <class T>
std::string or_empty(const std::optional<T>& value, fmt::format_string<const T&> format) {
  return value ? fmt::format(format, *value) : std::string();
}

ordered_json json_of(const std::optional<Published>& row) {
  if (!row) return nullptr;
  return {{"packs", or_null(row->packs)},
          {"efficiency", or_null(row->efficiency)},
          {"packing_factor", or_null(row->packing_factor)},
          {"speedup", or_null(row->speedup)}};
}

}  // namespace

const std::vector<Task>& tasks() {
  static const std::vector<Task> all = {
      {"Wikipedia", "lengths/wikipedia-512.csv", 512, {1, 2, 3, 4, 8, 12, 16, 0}},
      {"SQuAD 1.1", "lengths/squad1.1-384.csv", 384, {1, 2, 3, 4, 0}},
  };
  return all;
}

Study reproduce(const Task& task, const std::string& data_folder, double time_limit,
                const std::function<void(const std::string&)>& told) {
  Study study;
  study.name = task.name;
  const pack::Input input = pack::read_histogram(data_folder + "/" + task.file, task.max_length);
  study.histogram = input.histogram;
  for (const uint32_t depth : task.depths) {
    const size_t first = study.rows.size();
    uint64_t bound = 0;
    for (const Algorithm algorithm : algorithms_at(depth)) {
      told(fmt::format("{}, depth {}, {}", task.name, report::depth_text(depth), name_of(algorithm)));
      pack::Options options;
      options.algorithm = algorithm;
      options.max_per_pack = depth;
      options.certify = algorithm == Algorithm::best;
      options.time_limit = time_limit;
      Reproduced row;
      row.ours.set_input(input);
      row.ours.set_packing(pack::plan(input.histogram, options));
      if (depth == 1) row.ours.algorithm = "none";
      row.published = published(task.name, depth, row.ours.algorithm);
      bound = std::max(bound, row.ours.lower_bound);
      study.rows.push_back(std::move(row));
    }
    for (size_t i = first; i < study.rows.size(); ++i) study.rows[i].ours.lower_bound = bound;
  }
  return study;
}

std::vector<std::string> table_head() {
  return {"depth",     "packs",       "published", "efficiency", "published",          "factor",
          "published", "lower bound", "gap",       "time",       "speed-up, published"};
}

std::vector<std::string> row_of(const Reproduced& row, bool on_page) {
  const report::PackResult& r = row.ours;
  const Published p = row.published.value_or(Published{});
  const auto count = [&](uint64_t n) { return on_page ? report::count_text(n) : std::to_string(n); };
  return {r.algorithm,
          report::depth_text(r.max_per_pack),
          count(r.packs),
          p.packs ? count(static_cast<uint64_t>(*p.packs)) : "",
          fmt::format("{:.3f} %", 100 * r.efficiency()),
          p.efficiency ? fmt::format("{:.2f} %", 100 * *p.efficiency) : "",
          fmt::format("{:.3f}", r.packing_factor()),
          or_empty(p.packing_factor, "{:.3f}"),
          count(r.lower_bound),
          on_page && r.gap() == 0 ? "optimal" : count(r.gap()),
          on_page ? report::value_text(r.seconds, report::Unit::seconds) : report::seconds_text(r.seconds),
          or_empty(p.speedup, "{:.3f}")};
}

std::string text(const Study& study) {
  std::vector<std::string> head = table_head();
  head.insert(head.begin(), study.name);
  report::Table table(std::move(head));
  for (const Reproduced& row : study.rows) table.add(row_of(row, false));
  return table.text();
}

std::string csv(const std::vector<Study>& studies) {
  std::string out =
      "data,depth,algorithm,packs,efficiency,packing_factor,padding,lower_bound,gap,seconds,published_packs,"
      "published_efficiency,published_packing_factor,published_speedup\n";
  for (const Study& study : studies)
    for (const Reproduced& row : study.rows) {
      const report::PackResult& r = row.ours;
      const Published p = row.published.value_or(Published{});
      out += fmt::format("{},{},{},{},{:.6f},{:.4f},{},{},{},{:.6f},{},{},{},{}\n", study.name,
                         report::depth_text(r.max_per_pack), r.algorithm, r.packs, r.efficiency(),
                         r.packing_factor(), r.padding(), r.lower_bound, r.gap(), r.seconds,
                         or_empty(p.packs, "{:.0f}"), or_empty(p.efficiency, "{}"),
                         or_empty(p.packing_factor, "{}"), or_empty(p.speedup, "{}"));
    }
  return out;
}

std::string json(const std::vector<Study>& studies) {
  ordered_json list = ordered_json::array();
  for (const Study& study : studies)
    for (const Reproduced& row : study.rows) {
      ordered_json result = {{"data", study.name}};
      result.update(json_of(row.ours));
      result["published"] = json_of(row.published);
      list.push_back(std::move(result));
    }
  return ordered_json{{"schema", 1}, {"command", "reproduce packing"}, {"results", list}}.dump(2) + "\n";
}

}  // namespace tessera::studies::packing
