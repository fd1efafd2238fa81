// Tables in plain text.
#pragma once

#include <string>
#include <vector>

namespace tessera::report {

/// Columns as wide as their widest cell, numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

/// "1.23 ms"
std::string seconds_text(double seconds);

}  // namespace tessera::report
