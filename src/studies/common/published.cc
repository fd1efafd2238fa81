#include "studies/common/published.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace tessera::studies {
namespace {

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::stringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  if (line.ends_with(',')) fields.emplace_back();
  return fields;
}

/// The text of a table; none if the folder lacks it.
std::string text_of(std::span<const PublishedFile> committed, const std::filesystem::path& folder,
                    const std::string& name) {
  if (folder.empty()) {
    for (const PublishedFile& file : committed)
      if (file.name == name) return std::string(file.content);
    return {};
  }
  if (!std::filesystem::is_directory(folder))
    throw UsageError(fmt::format("{} is not a folder with published tables", folder.string()));
  const std::filesystem::path file = folder / name;
  if (!std::filesystem::exists(file)) return {};
  std::ifstream stream(file);
  std::string text(std::istreambuf_iterator<char>(stream), {});
  if (!stream) throw Error(fmt::format("{} cannot be read", file.string()));
  return text;
}

}  // namespace

const std::string& PublishedRow::text(const std::string& name) const {
  const auto field = fields_.find(name);
  if (field == fields_.end()) throw Error(fmt::format("{}: there is no column '{}'", where_, name));
  return field->second;
}

void PublishedRow::reject(const std::string& name) const {
  throw Error(fmt::format("{}: '{}' of column '{}' is not a number", where_, text(name), name));
}

void read_published(std::span<const PublishedFile> committed, const std::filesystem::path& folder,
                    const std::string& name, const std::function<void(const PublishedRow&)>& visit) {
  std::istringstream stream(text_of(committed, folder, name));
  std::vector<std::string> names;
  size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.starts_with('#')) continue;
    const std::vector<std::string> fields = split(line);
    if (names.empty()) {
      names = fields;
      continue;
    }
    const std::string where = fmt::format("{}:{}", (folder / name).string(), number);
    if (fields.size() != names.size())
      throw Error(fmt::format("{}: {} fields of {}", where, fields.size(), names.size()));
    std::map<std::string, std::string> row;
    for (size_t i = 0; i < names.size(); ++i) row[names[i]] = fields[i];
    visit({where, std::move(row)});
  }
}

}  // namespace tessera::studies
