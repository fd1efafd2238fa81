#include "studies/butterfly/sections.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

namespace tessera::studies::butterfly {

std::span<const Section> all_sections() {
  static const std::vector<Section> sections = {table_1(),  figure_3(), table_2(), figure_4(),
                                                figure_5(), figure_6(), table_4(), table_5()};
  return sections;
}

std::vector<Section> sections_of(const Request& request) {
  const std::span<const Section> all = all_sections();
  std::string names;
  for (const Section& section : all) names += fmt::format("{}{}", names.empty() ? "" : ", ", section.name);
  for (const std::string& name : request.only)
    if (std::none_of(all.begin(), all.end(), [&](const Section& s) { return s.name == name; }))
      throw UsageError(fmt::format("--only takes sections: {}; '{}' is none of them", names, name));
  std::vector<Section> sections;
  for (const Section& section : all)
    if (request.only.empty() ||
        std::find(request.only.begin(), request.only.end(), section.name) != request.only.end())
      sections.push_back(section);
  return sections;
}

}  // namespace tessera::studies::butterfly
