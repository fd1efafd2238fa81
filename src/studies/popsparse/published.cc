#include "studies/popsparse/published.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <array>
#include <string>

namespace tessera::studies::popsparse {
namespace {

Type type_of(const PublishedRow& row) {
  const std::string& name = row.text("type");
  if (name == "FP16") return Type::f16;
  if (name == "FP32") return Type::f32;
  throw Error(fmt::format("{}: type '{}' is neither FP16 nor FP32", row.where(), name));
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
  read_published(kPublishedFiles, folder, "static-vs-dense-bow-fp16.csv", [&](const PublishedRow& row) {
    RatioCell cell{row.number<uint32_t>("block"), row.number<uint32_t>("inv_density"),
                   row.number<uint32_t>("m_eq_k"), row.number<uint32_t>("n"), std::nullopt};
    if (!row.text("speedup").empty()) cell.speedup = row.number<double>("speedup");
    cells.push_back(cell);
  });
  return cells;
}

std::vector<DenseCell> read_dense(const std::filesystem::path& folder) {
  std::vector<DenseCell> cells;
  read_published(kPublishedFiles, folder, "dense-bow.csv", [&](const PublishedRow& row) {
    cells.push_back({type_of(row), row.number<uint32_t>("m_eq_k"), row.number<uint32_t>("n"),
                     row.number<double>("tflops")});
  });
  return cells;
}

}  // namespace tessera::studies::popsparse
