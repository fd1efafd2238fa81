#include "report/inspect_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/memory.h"
#include "io/fail.h"
#include "io/json_text.h"
#include "report/page.h"
#include "report/table.h"

namespace tessera::report {
namespace {

using nlohmann::ordered_json;

bool is_matrix(const InspectedTensor& tensor) { return tensor.zeros && tensor.shape.size() > 1; }

std::string density_text(double density) { return fmt::format("{:.3g}", density); }

std::string shape_text(const InspectedTensor& tensor) {
  return fmt::format("{}", fmt::join(tensor.shape, " × "));
}

/// Rows, columns and groups of four.
std::string structure_text(const Zeros& zeros) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const auto count = [&](uint32_t of, std::string_view what) {
    if (of > 0) add(fmt::format("{} zero {}{}", of, what, of == 1 ? "" : "s"));
  };
  count(zeros.zero_rows, "row");
  count(zeros.zero_cols, "column");
  if (zeros.is_2_4) add("2:4");
  return text;
}

double speedup_of(const Zeros& zeros) { return zeros.dense_seconds / zeros.sparse_seconds; }

std::string verdict_of(const Zeros& zeros) {
  return zeros.pays() ? fmt::format("{:.1f}", speedup_of(zeros)) : std::string(name_of(zeros.reason));
}

uint32_t rows_of(const InspectedModel& model, const InspectedTensor& tensor) {
  return tensor.n != 0 ? tensor.n : model.n;
}

/// Whether layers have rows of their own.
bool has_own_rows(const InspectedModel& model) {
  return std::ranges::any_of(model.tensors, [](const InspectedTensor& tensor) { return tensor.n != 0; });
}

std::string rows_text(std::span<const InspectedModel> models) {
  if (std::ranges::any_of(models, has_own_rows)) return "the rows of their inputs";
  return fmt::format("{} rows", models.empty() ? 0 : models.front().n);
}

Table table_of(const InspectedModel& model) {
  const bool own_rows = has_own_rows(model);
  std::vector<std::string> header = {"weight", "shape",   "type",    "density",   "4 × 4",
                                     "8 × 8",  "16 × 16", "32 × 32", "structure", "dense",
                                     "sparse", "block",   "speed-up"};
  if (own_rows) header.insert(header.begin() + 9, "rows");
  Table table(header, {0, 2, 8, header.size() - 1});
  for (const InspectedTensor& tensor : model.tensors) {
    if (!is_matrix(tensor)) continue;
    const Zeros& zeros = *tensor.zeros;
    std::vector<std::string> row = {tensor.name, shape_text(tensor), tensor.dtype};
    for (const BlockZeros& blocks : zeros.blocks) row.push_back(density_text(blocks.density));
    row.push_back(structure_text(zeros));
    const bool has_times = zeros.reason != NoGain::not_a_product;
    if (own_rows) row.push_back(has_times ? std::to_string(rows_of(model, tensor)) : "");
    row.push_back(has_times ? seconds_text(zeros.dense_seconds) : "");
    row.push_back(has_times ? seconds_text(zeros.sparse_seconds) : "");
    row.push_back(has_times ? std::to_string(zeros.best_block_size) : "");
    row.push_back(verdict_of(zeros));
    table.add(std::move(row));
  }
  return table;
}

/// Why a model cannot be run.
std::string unsupported_text(const InspectedModel& model) {
  const size_t count = model.unsupported.size();
  if (count == 0) return "";
  std::string text =
      fmt::format("{} operator{} cannot be part of a graph, so that the model cannot be run:\n", count,
                  count == 1 ? "" : "s");
  for (const UnsupportedOperator& each : model.unsupported)
    text += fmt::format("  {} ({}){}\n", each.op_type, io::excerpt(each.node),
                        each.reason.empty() ? "" : ": " + each.reason);
  return text;
}

/// Tensors that are not in the table: "84 vectors; not analysed: 3 of I64".
std::string others_text(const InspectedModel& model) {
  std::map<std::string, size_t> not_analysed;
  size_t vectors = 0;
  for (const InspectedTensor& tensor : model.tensors) {
    if (!tensor.zeros)
      ++not_analysed[tensor.dtype];
    else if (!is_matrix(tensor))
      ++vectors;
  }
  std::vector<std::string> types;
  for (const auto& [dtype, count] : not_analysed) types.push_back(fmt::format("{} of {}", count, dtype));
  std::string text;
  if (vectors > 0) text += fmt::format("and {} vector{}\n", vectors, vectors == 1 ? "" : "s");
  if (!types.empty()) text += fmt::format("not analysed: {}\n", fmt::join(types, ", "));
  return text;
}

double fraction_of(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double speedup_of(const InspectedTotals& totals) {
  return totals.sparse_seconds == 0 ? 1 : totals.dense_seconds / totals.sparse_seconds;
}

std::string totals_text(const InspectedModel& model) {
  const InspectedTotals& t = model.totals;
  return fmt::format("{} parameters, {} zeros ({:.1f} %)\n", t.elements, t.zeros,
                     100 * fraction_of(t.zeros, t.elements)) +
         fmt::format("{} dense, {} with sparse weights where they pay\n", base::bytes_text(t.dense_bytes),
                     base::bytes_text(t.sparse_bytes)) +
         fmt::format(
             "predicted for all products with {}: {} dense, {} with sparse weights, a speed-up of {:.2f}\n",
             rows_text({&model, 1}), seconds_text(t.dense_seconds), seconds_text(t.sparse_seconds),
             speedup_of(t));
}

ordered_json json_of(const InspectedModel& model, const InspectedTensor& tensor) {
  ordered_json json = {{"path", model.path},         {"name", tensor.name}, {"dtype", tensor.dtype},
                       {"shape", tensor.shape},      {"form", tensor.form}, {"elements", tensor.elements},
                       {"bytes", tensor.dense_bytes}};
  json["nnz"] = tensor.zeros ? ordered_json(tensor.zeros->non_zeros) : ordered_json(nullptr);
  return json;
}

ordered_json json_of(const InspectedModel& model, const InspectedTensor& tensor, const Zeros& zeros) {
  const bool has_times = zeros.reason != NoGain::not_a_product;
  const auto if_predicted = [&](auto value) {
    return has_times ? ordered_json(value) : ordered_json(nullptr);
  };
  ordered_json blocks = ordered_json::array();
  for (const BlockZeros& b : zeros.blocks)
    blocks.push_back({{"block", b.block_size},
                      {"blocks", b.blocks},
                      {"density", b.density},
                      {"fill_in", b.fill_in},
                      {"predicted_seconds", b.seconds ? ordered_json(*b.seconds) : ordered_json(nullptr)}});
  return {{"path", model.path},
          {"name", tensor.name},
          {"dtype", tensor.dtype},
          {"form", tensor.form},
          {"m", zeros.rows},
          {"k", zeros.cols},
          {"rows", rows_of(model, tensor)},
          {"nnz", zeros.non_zeros},
          {"density", zeros.density},
          {"blocks", blocks},
          {"zero_rows", zeros.zero_rows},
          {"zero_cols", zeros.zero_cols},
          {"is_2_4", zeros.is_2_4},
          {"dense_seconds", if_predicted(zeros.dense_seconds)},
          {"sparse_seconds", if_predicted(zeros.sparse_seconds)},
          {"best_block", if_predicted(zeros.best_block_size)},
          {"speedup", if_predicted(speedup_of(zeros))},
          {"pays", zeros.pays()},
          {"reason", name_of(zeros.reason)}};
}

ordered_json json_of_totals(const InspectedModel& model) {
  const InspectedTotals& t = model.totals;
  return {{"path", model.path},
          {"elements", t.elements},
          {"zeros", t.zeros},
          {"dense_bytes", t.dense_bytes},
          {"sparse_bytes", t.sparse_bytes},
          {"dense_seconds", t.dense_seconds},
          {"sparse_seconds", t.sparse_seconds}};
}

Html unsupported_table(const InspectedModel& model) {
  if (model.unsupported.empty()) return {};
  Table operators({"operator that cannot be part of a graph", "node", "reason"}, {0, 1, 2});
  for (const UnsupportedOperator& each : model.unsupported)
    operators.add({each.op_type, each.node, each.reason});
  return table(operators);
}

Html section_of(const InspectedModel& model) {
  const InspectedTotals& t = model.totals;
  return key_figures(
             {{"Zeros", fmt::format("{:.1f} %", 100 * fraction_of(t.zeros, t.elements)),
               fmt::format("of {} parameters", t.elements)},
              {"Size", base::bytes_text(t.sparse_bytes), base::bytes_text(t.dense_bytes) + " dense"},
              {"Predicted time of all products", seconds_text(t.sparse_seconds),
               seconds_text(t.dense_seconds) + " dense"},
              {"Speed-up", fmt::format("{:.2f} ×", speedup_of(t)), "with " + rows_text({&model, 1})}}) +
         table(table_of(model)) + unsupported_table(model);
}

}  // namespace

std::string text_of(const InspectedModel& model) {
  const Table table = table_of(model);
  std::string text = fmt::format("{}\n\n", model.path);
  if (!table.rows().empty()) text += table.text() + "\n";
  return text + others_text(model) + totals_text(model) + unsupported_text(model);
}

std::string json(std::span<const InspectedModel> models) {
  ordered_json tensors = ordered_json::array(), results = tensors, totals = tensors, unsupported = tensors;
  for (const InspectedModel& model : models) {
    for (const InspectedTensor& tensor : model.tensors) {
      tensors.push_back(json_of(model, tensor));
      if (is_matrix(tensor)) results.push_back(json_of(model, tensor, *tensor.zeros));
    }
    totals.push_back(json_of_totals(model));
    for (const UnsupportedOperator& each : model.unsupported)
      unsupported.push_back(
          {{"path", model.path}, {"operator", each.op_type}, {"node", each.node}, {"reason", each.reason}});
  }
  const ordered_json all = {{"schema", 2},
                            {"command", "inspect"},
                            {"rows", models.empty() ? 0 : models.front().n},
                            {"tensors", tensors},
                            {"results", results},
                            {"totals", totals},
                            {"unsupported", unsupported}};
  return io::json_text(all, 2, io::JsonErrors::replace);
}

std::string page_of(std::span<const InspectedModel> models) {
  Page page("Zeros of weights", fmt::format("and predicted products with {} on the host", rows_text(models)));
  for (const InspectedModel& model : models) page.add_section(model.path, section_of(model));
  return page.html();
}

}  // namespace tessera::report
