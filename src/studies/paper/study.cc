#include "studies/paper/study.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <utility>

namespace tessera::studies {

std::optional<double> Result::value(const std::string& name) const {
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

std::optional<bool> Comparison::is_near() const {
  if (!ratio() || !least || !most) return std::nullopt;
  return *ratio() >= *least && *ratio() <= *most;
}

const Result* Part::find(std::string_view section, std::string_view cell) const {
  const auto found = results.find({std::string(section), std::string(cell)});
  return found == results.end() ? nullptr : &found->second;
}

std::optional<double> Part::value(std::string_view section, std::string_view cell,
                                  const std::string& name) const {
  const Result* result = find(section, cell);
  return result == nullptr ? std::nullopt : result->value(name);
}

Study::Study(const Paper& of, Request requested)
    : paper(of), request(std::move(requested)), published(of.published, request.published, of.has_row) {}

const Part* Study::modelled() const {
  const auto found = std::find_if(parts.begin(), parts.end(), [](const Part& p) { return !p.is_host(); });
  return found == parts.end() ? nullptr : &*found;
}

const Part* Study::host() const {
  const auto found = std::find_if(parts.begin(), parts.end(), [](const Part& p) { return p.is_host(); });
  return found == parts.end() ? nullptr : &*found;
}

std::vector<Section> sections_of(const Paper& paper, const Request& request) {
  const std::span<const Section> all = paper.sections;
  std::string names;
  for (const Section& section : all) names += fmt::format("{}{}", names.empty() ? "" : ", ", section.name);
  for (const std::string& name : request.only)
    if (std::none_of(all.begin(), all.end(), [&](const Section& s) { return s.name == name; }))
      throw UsageError(fmt::format("--only: invalid value '{}' (choose from {})", name, names));
  std::vector<Section> sections;
  for (const Section& section : all)
    if (request.only.empty() ||
        std::find(request.only.begin(), request.only.end(), section.name) != request.only.end())
      sections.push_back(section);
  return sections;
}

}  // namespace tessera::studies
