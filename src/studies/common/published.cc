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
std::string text_of(const PublishedFile& committed, const std::filesystem::path& folder) {
  if (folder.empty()) return std::string(committed.content);
  if (!std::filesystem::is_directory(folder))
    throw UsageError(fmt::format("{} is not a folder with published tables", folder.string()));
  const std::filesystem::path file = folder / committed.name;
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

Published::Published(std::span<const PublishedFile> committed, const std::filesystem::path& folder) {
  for (const PublishedFile& file : committed) {
    std::vector<PublishedRow>& rows_of_table = tables_[std::string(file.name)];
    std::istringstream stream(text_of(file, folder));
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
      const std::string where = fmt::format("{}:{}", (folder / file.name).string(), number);
      if (fields.size() != names.size())
        throw Error(fmt::format("{}: {} fields of {}", where, fields.size(), names.size()));
      std::map<std::string, std::string> row;
      for (size_t i = 0; i < names.size(); ++i) row[names[i]] = fields[i];
      rows_of_table.emplace_back(where, std::move(row));
      (void)rows_of_table.back().text("name");
    }
  }
}

const PublishedRow* Published::find(const std::string& table, const std::string& name) const {
  for (const PublishedRow& row : rows(table))
    if (row.text("name") == name) return &row;
  return nullptr;
}

std::optional<double> Published::number(const std::string& table, const std::string& name,
                                        const std::string& column) const {
  const PublishedRow* row = find(table, name);
  return row == nullptr || row->text(column).empty() ? std::nullopt
                                                     : std::optional(row->number<double>(column));
}

const std::vector<PublishedRow>& Published::rows(const std::string& table) const { return tables_.at(table); }

}  // namespace tessera::studies
