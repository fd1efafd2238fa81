#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/option_parsing.h"
#include "io/safetensors.h"
#include "io/weights.h"
#include "machine/model/machine.h"
#include "ops/sparse/host/advise.h"
#include "report/table.h"
#include "sparse/inspect.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string file;
  std::string tensor;
  uint32_t n = 256;
  CommonOptions common;
};

/// One matrix of a file.
struct Inspected {
  std::string name;
  bool has_values = true;
  sparse::Inspection counts;
  std::vector<ops::Advice> advice;
};

bool is_safetensors(const std::string& file) { return file.ends_with(".safetensors"); }

std::vector<io::TensorInfo> tensors_of(const Options& options) {
  if (!is_safetensors(options.file)) return {};
  return io::list_safetensors(io::Source::open(options.file));
}

/// The matrices to inspect: the named one, or all.
std::vector<std::string> matrices_of(const Options& options, const std::vector<io::TensorInfo>& tensors) {
  if (!options.tensor.empty() || !is_safetensors(options.file)) return {options.tensor};
  std::vector<std::string> names;
  for (const io::TensorInfo& tensor : tensors)
    if (tensor.shape.size() == 2) names.push_back(tensor.name);
  return names;
}

Inspected inspect(const Options& options, const std::string& name, const machine::Machine& host) {
  const io::Weights weights = io::read_weights(options.file, name);
  return {name.empty() ? options.file : name, weights.has_values, sparse::inspect(weights.matrix.pattern),
          ops::advise(weights.matrix.pattern, Type::f32, options.n, host)};
}

std::string mode_text(const ops::Advice& advice) {
  return advice.is_dense ? "dense" : fmt::format("static, block {}", advice.block_size);
}

ordered_json json_of(const Inspected& m) {
  ordered_json blocks = ordered_json::array();
  for (const sparse::BlockCovering& c : m.counts.coverings)
    blocks.push_back(
        {{"block", c.block_size}, {"blocks", c.blocks}, {"density", c.density}, {"fill_in", c.fill_in}});
  ordered_json advice = ordered_json::array();
  for (const ops::Advice& a : m.advice)
    advice.push_back({{"mode", a.is_dense ? "dense" : "static"},
                      {"block", a.is_dense ? ordered_json(nullptr) : ordered_json(a.block_size)},
                      {"predicted_seconds", a.seconds}});
  return {{"name", m.name},
          {"m", m.counts.rows},
          {"k", m.counts.cols},
          {"nnz", m.counts.non_zeros},
          {"density", m.counts.density},
          {"has_values", m.has_values},
          {"blocks", blocks},
          {"advice", advice}};
}

std::string text_of(const Inspected& m, uint32_t n) {
  std::string out =
      fmt::format("{}: {} × {}, {} non-zeros, density {:.4g}{}\n", m.name, m.counts.rows, m.counts.cols,
                  m.counts.non_zeros, m.counts.density, m.has_values ? "" : ", no values");
  report::Table table({"block", "blocks", "stored density", "fill-in", fmt::format("predicted, n = {}", n)});
  for (const sparse::BlockCovering& c : m.counts.coverings) {
    const auto advice = std::find_if(m.advice.begin(), m.advice.end(), [&](const ops::Advice& a) {
      return !a.is_dense && a.block_size == c.block_size;
    });
    table.add({std::to_string(c.block_size), std::to_string(c.blocks), fmt::format("{:.4g}", c.density),
               fmt::format("{:.2f}", c.fill_in), report::seconds_text(advice->seconds)});
  }
  const auto dense =
      std::find_if(m.advice.begin(), m.advice.end(), [](const ops::Advice& a) { return a.is_dense; });
  table.add({"dense", "-", "1", "-", report::seconds_text(dense->seconds)});
  const ops::Advice& best = m.advice.front();
  const double gain = dense->seconds / best.seconds;
  out += table.text();
  out += best.is_dense ? "use dense here\n"
                       : fmt::format("use {} here: {:.1f} x dense, predicted\n", mode_text(best), gain);
  return out;
}

int run(const Options& options) {
  const machine::Machine host = machine::host(options.common.threads);
  const std::vector<io::TensorInfo> tensors = tensors_of(options);
  ordered_json listed = ordered_json::array();
  for (const io::TensorInfo& t : tensors) {
    listed.push_back({{"name", t.name}, {"dtype", t.dtype}, {"shape", t.shape}});
    if (!options.common.json) fmt::print("{}: {} {}\n", t.name, t.dtype, fmt::join(t.shape, " × "));
  }
  ordered_json results = ordered_json::array();
  for (const std::string& name : matrices_of(options, tensors)) {
    const Inspected matrix = inspect(options, name, host);
    results.push_back(json_of(matrix));
    if (!options.common.json) fmt::print("\n{}", text_of(matrix, options.n));
  }
  if (options.common.json)
    fmt::print(
        "{}\n",
        ordered_json{{"schema", 1}, {"command", "inspect"}, {"tensors", listed}, {"results", results}}.dump(
            2));
  return 0;
}

}  // namespace

Command add_inspect_command(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("inspect", "Show what a weight file contains, and how best to run it here");
  auto options = std::make_shared<Options>();
  command.add_option("file", options->file, ".smtx, .mtx, .npy or .safetensors")->required();
  command.add_option("--tensor", options->tensor, "Tensor of a .safetensors file (default: all matrices)");
  add_count(command, "--n", options->n, "Columns of X to advise for");
  add_common_options(command, options->common);
  command.footer("\nExample:\n  tessera inspect layer.smtx --n 512");
  return [options] { return run(*options); };
}

}  // namespace tessera::cli
