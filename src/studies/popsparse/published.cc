#include "studies/popsparse/published.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <array>
#include <charconv>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

namespace tessera::studies::popsparse {
namespace {

/// One row of a table, accessed by column names.
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

std::string committed(const std::string& name) {
  for (const PublishedFile& file : kPublishedFiles)
    if (file.name == name) return std::string(file.content);
  return {};
}

/// The text of a table; none if the folder lacks it.
std::string text_of(const std::filesystem::path& folder, const std::string& name) {
  if (folder.empty()) return committed(name);
  if (!std::filesystem::is_directory(folder))
    throw UsageError(fmt::format("{} is not a folder with published tables", folder.string()));
  const std::filesystem::path file = folder / name;
  if (!std::filesystem::exists(file)) return {};
  std::ifstream stream(file);
  std::string text(std::istreambuf_iterator<char>(stream), {});
  if (!stream) throw Error(fmt::format("{} cannot be read", file.string()));
  return text;
}

void read(const std::filesystem::path& folder, const std::string& name,
          const std::function<void(const Row&)>& visit) {
  std::istringstream stream(text_of(folder, name));
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

std::vector<RatioCell> read_ratios(const std::filesystem::path& folder) {
  std::vector<RatioCell> cells;
  read(folder, "static-vs-dense-bow-fp16.csv", [&](const Row& row) {
    RatioCell cell{row.number<uint32_t>("block"), row.number<uint32_t>("inv_density"),
                   row.number<uint32_t>("m_eq_k"), row.number<uint32_t>("n"), std::nullopt};
    if (!row.text("speedup").empty()) cell.speedup = row.number<double>("speedup");
    cells.push_back(cell);
  });
  return cells;
}

std::vector<DenseCell> read_dense(const std::filesystem::path& folder) {
  std::vector<DenseCell> cells;
  read(folder, "dense-bow.csv", [&](const Row& row) {
    cells.push_back({row.type(), row.number<uint32_t>("m_eq_k"), row.number<uint32_t>("n"),
                     row.number<double>("tflops")});
  });
  return cells;
}

}  // namespace tessera::studies::popsparse
