#include "report/published.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>

namespace tessera::report {
namespace {

/// One line of a table, by the names of its first line.
class Row {
 public:
  Row(std::string where, std::map<std::string, std::string> fields)
      : where_(std::move(where)), fields_(std::move(fields)) {}

  const std::string& text(const std::string& name) const {
    const auto field = fields_.find(name);
    if (field == fields_.end()) throw Error(fmt::format("{}: there is no column '{}'", where_, name));
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
  if (!std::filesystem::exists(file)) return;
  std::ifstream stream(file);
  if (!stream) throw Error(fmt::format("{} cannot be read", file.string()));
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

std::span<const RateCell> published_rates() {
  static constexpr std::array<RateCell, 20> cells = {
      {{false, 1, 4, 11.7},   {false, 1, 8, 11.7},   {false, 1, 16, 10.5}, {false, 1, 32, 8.6},
       {false, 4, 16, 21.6},  {false, 8, 16, 49.2},  {false, 16, 4, 89.8}, {false, 16, 8, 67.9},
       {false, 16, 16, 69.4}, {false, 16, 32, 35.6}, {true, 1, 4, 9.6},    {true, 1, 8, 7.6},
       {true, 1, 16, 6.0},    {true, 1, 32, 3.7},    {true, 4, 16, 14.4},  {true, 8, 16, 21.2},
       {true, 16, 4, 54.9},   {true, 16, 8, 38.8},   {true, 16, 16, 26.9}, {true, 16, 32, 15.4}}};
  return cells;
}

std::span<const BestCell> published_best() {
  static constexpr std::array<BestCell, 6> cells = {{{1, Type::f16, 0.4, 0.7},
                                                     {1, Type::f32, 0.9, 1.4},
                                                     {4, Type::f16, 1.0, 1.5},
                                                     {4, Type::f32, 2.7, 3.2},
                                                     {16, Type::f16, 1.9, 4.9},
                                                     {16, Type::f32, 3.8, 5.6}}};
  return cells;
}

std::span<const BlockGain> published_block_gains() {
  static constexpr std::array<BlockGain, 3> gains = {{{1, 1.0}, {4, 2.1}, {16, 6.6}}};
  return gains;
}

std::filesystem::path published_folder(const std::string& given) {
  if (!given.empty()) {
    if (!std::filesystem::is_directory(given))
      throw UsageError(fmt::format("{} is no folder with published tables", given));
    return given;
  }
  const char* data = std::getenv("TESSERA_DATA");
  if (data == nullptr || *data == '\0') return {};
  const std::filesystem::path folder = std::filesystem::path(data) / "published";
  return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

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

}  // namespace tessera::report
