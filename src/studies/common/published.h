// Tables of published numbers, committed with the studies or in a folder of the caller's.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded_file.h"

namespace tessera::studies {

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

/// The paper's tables, by the name of their file and row. In a file, lines that begin with # state its
/// source, and the first other line names the columns, of which one is `name`.
class Published {
 public:
  /// Whether we have a number beside a row of a table.
  using HasRow = bool (*)(std::string_view table, const std::string& name);

  /// Reads the tables of a folder, where missing tables are empty; or if the folder is "", the committed
  /// tables. Tables must have the columns of the committed tables, numbers in columns where these have only
  /// numbers, and rows that has_row knows, or if it is null, that the committed tables have. Otherwise throws
  /// Error naming file, line and column, and UsageError if the folder does not exist.
  Published(std::span<const base::EmbeddedFile> committed, const std::filesystem::path& folder,
            HasRow has_row = nullptr);

  /// A row of a table; null if the table lacks it.
  const PublishedRow* find(const std::string& table, const std::string& name) const;
  /// A number of a table; none if the table lacks the row, or has no number there.
  std::optional<double> number(const std::string& table, const std::string& name,
                               const std::string& column) const;
  /// Rows of a table, in its order.
  const std::vector<PublishedRow>& rows(const std::string& table) const;

 private:
  std::map<std::string, std::vector<PublishedRow>> tables_;
};

}  // namespace tessera::studies
