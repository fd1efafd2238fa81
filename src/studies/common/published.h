// Tables of published numbers, committed with the studies or in a folder of the caller's.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::studies {

/// A table as text: lines that begin with # state its source, the first other line names the columns.
struct PublishedFile {
  std::string_view name;
  std::string_view content;
};

/// One row of a table, accessed by column names.
class PublishedRow {
 public:
  /// `where`: "table.csv:3", for messages.
  PublishedRow(std::string where, std::map<std::string, std::string> fields)
      : where_(std::move(where)), fields_(std::move(fields)) {}

  const std::string& where() const { return where_; }
  /// Throws Error if there is no such column.
  const std::string& text(const std::string& name) const;
  /// Throws Error if the field is not a number.
  double number(const std::string& name) const;

 private:
  std::string where_;
  std::map<std::string, std::string> fields_;
};

/// The paper's tables, by the name of their file and row. Each has a column `name`.
class Published {
 public:
  /// Whether something of ours stands beside a row of a table.
  using HasRow = bool (*)(std::string_view table, const std::string& name);

  /// Those of a folder, whose missing ones are empty; or if it is "" those committed. Tables have the columns
  /// of those committed, numbers where these have nothing else, and rows that has_row knows, or if it is null
  /// those committed. Throws Error naming file, line and column, and UsageError if the folder does not exist.
  Published(std::span<const PublishedFile> committed, const std::filesystem::path& folder,
            HasRow has_row = nullptr);

  /// Null if the table lacks the row.
  const PublishedRow* find(const std::string& table, const std::string& name) const;
  /// None if the table lacks the row, or has no number there.
  std::optional<double> number(const std::string& table, const std::string& name,
                               const std::string& column) const;
  /// Rows of a table, in its order.
  const std::vector<PublishedRow>& rows(const std::string& table) const;

 private:
  std::map<std::string, std::vector<PublishedRow>> tables_;
};

}  // namespace tessera::studies
