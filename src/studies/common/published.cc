#include "studies/common/published.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "base/parse_number.h"

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
std::string published_text_of(const base::EmbeddedFile& committed, const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder))
    throw UsageError(fmt::format("{} is not a folder with published tables", folder.string()));
  const std::filesystem::path file = folder / committed.name;
  if (!std::filesystem::exists(file)) return {};
  std::ifstream stream(file);
  std::string text(std::istreambuf_iterator<char>(stream), {});
  if (!stream) throw Error(fmt::format("{} cannot be read", file.string()));
  return text;
}

struct Table {
  std::string where;  ///< the line of `columns`
  std::vector<std::string> columns{};
  std::vector<PublishedRow> rows{};
};

Table read(const std::string& text, const std::string& file) {
  std::istringstream stream(text);
  Table table;
  size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.starts_with('#')) continue;
    const std::string where = fmt::format("{}:{}", file, number);
    const std::vector<std::string> fields = split(line);
    if (table.columns.empty()) {
      table.columns = fields;
      table.where = where;
      continue;
    }
    if (fields.size() != table.columns.size())
      throw Error(fmt::format("{}: {} fields of {}", where, fields.size(), table.columns.size()));
    std::map<std::string, std::string> row;
    for (size_t i = 0; i < fields.size(); ++i) row[table.columns[i]] = fields[i];
    table.rows.emplace_back(where, std::move(row));
  }
  return table;
}

const PublishedRow* find_row(const std::vector<PublishedRow>& rows, const std::string& name) {
  const auto found = std::ranges::find_if(rows, [&](const auto& row) { return row.text("name") == name; });
  return found == rows.end() ? nullptr : &*found;
}

void require_columns(const Table& table, const Table& known) {
  if (table.columns.empty()) return;
  for (const std::string& column : known.columns)
    if (std::ranges::find(table.columns, column) == table.columns.end())
      throw Error(fmt::format("{}: there is no column '{}'", table.where, column));
}

/// Columns in which every field is empty or a number.
std::vector<std::string> number_columns(const Table& table) {
  std::vector<std::string> columns = table.columns;
  std::erase_if(columns, [&](const std::string& column) {
    return std::ranges::any_of(table.rows, [&](const PublishedRow& row) {
      return !row.text(column).empty() && !base::parse_number<double>(row.text(column));
    });
  });
  return columns;
}

}  // namespace

const std::string& PublishedRow::text(const std::string& name) const {
  const auto field = fields_.find(name);
  if (field == fields_.end()) throw Error(fmt::format("{}: there is no column '{}'", where_, name));
  return field->second;
}

double PublishedRow::number(const std::string& name) const {
  if (const auto value = base::parse_number<double>(text(name))) return *value;
  throw Error(fmt::format("{}: '{}' of column '{}' is not a number", where_, text(name), name));
}

Published::Published(std::span<const base::EmbeddedFile> committed, const std::filesystem::path& folder,
                     HasRow has_row) {
  for (const base::EmbeddedFile& file : committed) {
    const Table known = read(std::string(file.content), std::string(file.name));
    std::vector<PublishedRow>& rows = tables_[std::string(file.name)] = known.rows;
    if (!folder.empty()) {
      Table table = read(published_text_of(file, folder), (folder / file.name).string());
      require_columns(table, known);
      rows = std::move(table.rows);
    }
    const std::vector<std::string> numbers = number_columns(known);
    for (const PublishedRow& row : rows) {
      for (const std::string& column : numbers)
        if (!row.text(column).empty()) (void)row.number(column);
      const std::string& name = row.text("name");
      if (has_row != nullptr ? !has_row(file.name, name) : find_row(known.rows, name) == nullptr)
        throw Error(fmt::format("{}: nothing of ours is named '{}'; names are such as '{}'", row.where(),
                                name, known.rows.front().text("name")));
    }
  }
}

const PublishedRow* Published::find(const std::string& table, const std::string& name) const {
  return find_row(rows(table), name);
}

std::optional<double> Published::number(const std::string& table, const std::string& name,
                                        const std::string& column) const {
  const PublishedRow* row = find(table, name);
  return row == nullptr || row->text(column).empty() ? std::nullopt : std::optional(row->number(column));
}

const std::vector<PublishedRow>& Published::rows(const std::string& table) const { return tables_.at(table); }

}  // namespace tessera::studies
