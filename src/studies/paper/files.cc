// A study as CSV and JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "io/json_text.h"
#include "studies/common/json.h"
#include "studies/paper/cells.h"
#include "studies/paper/tables.h"

namespace tessera::studies {
namespace {

using nlohmann::ordered_json;

ordered_json files_json_of(const Comparison& c) {
  return {{"what", c.what},
          {"unit", c.unit},
          {"published", or_null(c.published)},
          {"ours", or_null(c.ours)},
          {"ratio", or_null(c.ratio())},
          {"least_ratio", or_null(c.least)},
          {"most_ratio", or_null(c.most)},
          {"near", or_null(c.is_near())},
          {"group", c.group},
          {"says", c.says},
          {"origin", c.origin},
          {"remark", c.remark}};
}

ordered_json files_json_of(const Section& section, const Study& study) {
  ordered_json results = ordered_json::array();
  for (const Part& part : study.parts)
    for (const auto& [key, result] : part.results) {
      if (key.first != section.name) continue;
      ordered_json one = {{"machine", part.machine.name}};
      one.update(json_of(key.first, key.second, result));
      one.erase("section");
      results.push_back(std::move(one));
    }
  ordered_json comparisons = ordered_json::array();
  if (section.comparisons != nullptr)
    for (const Comparison& c : section.comparisons(study)) comparisons.push_back(files_json_of(c));
  return {{"section", section.name},
          {"title", section.title},
          {"results", std::move(results)},
          {"comparisons", std::move(comparisons)}};
}

/// A field of CSV, in quotes if it needs them.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string csv(const Study& study) {
  std::string out = "section,machine,cell,fits,quantity,value,published,verified,max_rel_error\n";
  const auto add = [&](std::string_view section, const std::string& machine, const std::string& cell,
                       const Result& r, const std::string& quantity, const std::string& value) {
    out += fmt::format("{},{},{},{},{},{},,{},{}\n", section, field(machine), field(cell), r.fits, quantity,
                       value, or_empty(r.verified), or_empty(r.max_rel_error));
  };
  for (const Section& section : sections_of(study.paper, study.request)) {
    for (const Part& part : study.parts)
      for (const auto& [key, r] : part.results) {
        if (key.first != section.name) continue;
        if (r.values.empty()) add(section.name, part.machine.name, key.second, r, "", "");
        for (const auto& [name, value] : r.values)
          add(section.name, part.machine.name, key.second, r, name, fmt::format("{}", value));
      }
    if (section.comparisons == nullptr) continue;
    for (const Comparison& c : section.comparisons(study))
      out += fmt::format("{},,,,{},{},{},,\n", section.name, field(c.what), or_empty(c.ours),
                         or_empty(c.published));
  }
  return out;
}

std::string json(const Study& study) {
  ordered_json machines = ordered_json::array();
  for (const Part& part : study.parts) machines.push_back(part.machine.name);
  ordered_json sections = ordered_json::array();
  for (const Section& section : sections_of(study.paper, study.request))
    sections.push_back(files_json_of(section, study));
  const ordered_json all = {{"schema", 2},
                            {"command", fmt::format("reproduce {}", study.paper.name)},
                            {"machines", std::move(machines)},
                            {"sections", std::move(sections)}};
  return io::json_text(all, 2) + "\n";
}

}  // namespace tessera::studies
