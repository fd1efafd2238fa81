#include "published.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <charconv>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>

namespace tessera::fidelity {
namespace {

/// One line of a table, by the names of its first line.
class Row {
 public:
  Row(std::string where, std::map<std::string, std::string> fields)
      : where_(std::move(where)), fields_(std::move(fields)) {}

  const std::string& text(const std::string& name) const {
    const auto field = fields_.find(name);
    if (field == fields_.end())
      throw Error(fmt::format("{}: there is no column '{}'", where_, name));
    return field->second;
  }

  template <class Number>
  Number number(const std::string& name) const {
    const std::string& field = text(name);
    Number value{};
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc{} || end != field.data() + field.size())
      throw Error(fmt::format("{}: '{}' of column '{}' is not a number", where_, field, name));
    return value;
  }

  Type type() const {
    const std::string& name = text("type");
    if (name == "FP16") return Type::f16;
    if (name == "FP32") return Type::f32;
    throw Error(fmt::format("{}: type '{}' is neither FP16 nor FP32", where_, name));
  }

 private:
  std::string where_;
  std::map<std::string, std::string> fields_;
};

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::stringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  if (line.ends_with(',')) fields.emplace_back();
  return fields;
}

void read(const std::filesystem::path& file, const std::function<void(const Row&)>& visit) {
  std::ifstream stream(file);
  if (!stream)
    throw Error(fmt::format(
        "{} cannot be read; --published names the folder of the published tables", file.string()));
  std::string line;
  std::getline(stream, line);
  const std::vector<std::string> names = split(line);
  for (size_t number = 2; std::getline(stream, line); ++number) {
    const std::vector<std::string> fields = split(line);
    const std::string where = fmt::format("{}:{}", file.string(), number);
    if (fields.size() != names.size())
      throw Error(fmt::format("{}: {} fields of {}", where, fields.size(), names.size()));
    std::map<std::string, std::string> row;
    for (size_t i = 0; i < names.size(); ++i) row[names[i]] = fields[i];
    visit({where, std::move(row)});
  }
}

}  // namespace

std::vector<RatioCell> read_ratios(const std::filesystem::path& folder) {
  std::vector<RatioCell> cells;
  read(folder / "static-vs-dense-bow-fp16.csv", [&](const Row& row) {
    RatioCell cell{row.number<uint32_t>("block"), row.number<uint32_t>("inv_density"),
                   row.number<uint32_t>("m_eq_k"), row.number<uint32_t>("n"), std::nullopt};
    if (!row.text("speedup").empty()) cell.speedup = row.number<double>("speedup");
    cells.push_back(cell);
  });
  return cells;
}

std::vector<DenseCell> read_dense(const std::filesystem::path& folder) {
  std::vector<DenseCell> cells;
  read(folder / "dense-bow.csv", [&](const Row& row) {
    cells.push_back({row.type(), row.number<uint32_t>("m_eq_k"), row.number<uint32_t>("n"),
                     row.number<double>("tflops")});
  });
  return cells;
}

std::vector<BestCell> read_best(const std::filesystem::path& folder) {
  std::vector<BestCell> cells;
  read(folder / "popsparse-table3.csv", [&](const Row& row) {
    if (row.text("machine") == "bow")
      cells.push_back(
          {row.number<uint32_t>("block"), row.type(), row.number<double>("static_over_dense")});
  });
  return cells;
}

}  // namespace tessera::fidelity
