#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/machine.h>
#include <tessera/onnx.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/model_run.h"
#include "cli/option_parsing.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "io/atomic_file.h"
#include "io/npy_array.h"
#include "report/network_report.h"
#include "report/table.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;
using report::seconds_text;

struct RunFlags {
  ModelRequest model;
  std::vector<std::string> saved;  ///< "logits=logits.npy"
  std::string machine = "host";
  std::string report;
  bool measure = false;
  bool host_io = false;
  CommonOptions common;
};

/// One run of a model.
struct Run {
  onnx::ImportedModel model;
  graph::RunCost cost;
  double predicted = 0;  ///< seconds
  double seconds = 0;    ///< measured on the host, predicted by the model elsewhere
  std::map<std::string, std::vector<double>> outputs;
};

/// Files of outputs, by name.
using SavedFiles = std::map<std::string, std::string>;

SavedFiles saved_files(const RunFlags& options) {
  SavedFiles files;
  for (const std::string& text : options.saved) {
    const size_t at = text.rfind('=');
    if (at == std::string::npos || at == 0 || at + 1 == text.size())
      throw invalid_value("--save", text, "expected NAME=FILE.npy");
    const std::string name = text.substr(0, at), file = text.substr(at + 1);
    check_extension("--save", file, {".npy"});
    io::require_writable(file);
    if (files.contains(name)) throw UsageError(fmt::format("--save names '{}' twice", name));
    for (const auto& [other, its_file] : files)
      if (is_same_file(its_file, file))
        throw UsageError(
            fmt::format("--save names the same file for '{}' and '{}', {}; give each output its own file",
                        other, name, file));
    if (!options.report.empty() && is_same_file(options.report, file))
      throw UsageError(
          fmt::format("--save and --report name the same file, {}; give them different files", file));
    files.emplace(name, file);
  }
  return files;
}

void require_outputs(const onnx::ImportedModel& model, const SavedFiles& files) {
  for (const auto& [name, file] : files) {
    if (std::ranges::find(model.outputs, name, &onnx::ValueType::name) != model.outputs.end()) continue;
    throw UsageError(fmt::format("--save: the model has no output '{}'; its outputs are {}", name,
                                 names_of(model.outputs)));
  }
}

double seconds_of(ModelArrays& arrays, graph::Session& session) {
  const double passed = base::seconds_of([&] { arrays.run(session); });
  return session.last_seconds() > 0 ? session.last_seconds() : passed;
}

Run run_model(const RunFlags& options, const SavedFiles& files, const Machine& machine) {
  Run run{import(options.model, options.common.threads), {}, 0, 0, {}};
  require_outputs(run.model, files);
  graph::Session session(run.model.graph, machine,
                         {.threads = options.common.threads, .host_io = options.host_io});
  run.cost = session.cost();
  run.predicted = run.cost.seconds;
  if (!session.fits()) throw Error(fmt::format("{}: {}", machine.name(), run.cost.overflow));
  ModelArrays arrays(session, run.model, options.model);
  run.seconds = seconds_of(arrays, session);
  if (machine.is_host()) run.seconds = std::min(run.seconds, seconds_of(arrays, session));
  for (const onnx::ValueType& output : run.model.outputs)
    run.outputs[output.name] = arrays.output(output.name);
  if (options.measure) run.cost = arrays.measure(session);
  return run;
}

struct Statistics {
  double least = std::numeric_limits<double>::infinity(), most = -least, mean = 0;
};

Statistics statistics_of(const std::vector<double>& values) {
  Statistics statistics;
  for (const double value : values) {
    statistics.least = std::min(statistics.least, value);
    statistics.most = std::max(statistics.most, value);
    statistics.mean += value / static_cast<double>(values.size());
  }
  return statistics;
}

std::vector<report::LayerRow> layer_rows_of(const onnx::ImportedModel& model) {
  std::vector<report::LayerRow> layers;
  for (const onnx::LayerChoice& layer : model.layers)
    layers.push_back({layer.name, layer.rows, layer.zeros, layer.is_sparse, std::string(layer.why_dense()),
                      layer.copy_bytes});
  return layers;
}

std::string operations_text(const graph::RunCost& cost) {
  report::Table table({"operation", "result", "time"}, {0, 1});
  std::vector<const graph::OperationCost*> sorted;
  for (const graph::OperationCost& each : cost.operations) sorted.push_back(&each);
  std::ranges::stable_sort(sorted, std::greater<>(), [](const auto* each) { return each->seconds; });
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < std::min(kShown, sorted.size()); ++i)
    table.add({sorted[i]->operation, sorted[i]->value, seconds_text(sorted[i]->seconds)});
  std::string text = table.text();
  if (sorted.size() > kShown) text += fmt::format("and {} faster operations\n", sorted.size() - kShown);
  return text + "\n";
}

void print(const Run& run, const RunFlags& options, const Machine& machine) {
  if (!run.model.layers.empty()) fmt::print("{}\n", report::layers_table(layer_rows_of(run.model)).text());
  if (options.measure) fmt::print("{}", operations_text(run.cost));
  fmt::print("{}\n", report::kinds_table(run.cost, options.measure ? "measured" : "predicted").text());
  report::Table table({"output", "type", "minimum", "mean", "maximum"}, {0, 1});
  for (const onnx::ValueType& output : run.model.outputs) {
    const Statistics statistics = statistics_of(run.outputs.at(output.name));
    table.add({output.name, to_string(output), fmt::format("{:.5g}", statistics.least),
               fmt::format("{:.5g}", statistics.mean), fmt::format("{:.5g}", statistics.most)});
  }
  fmt::print("{}", table.text());
  for (const std::string& note : run.model.notes) fmt::print("note: {}\n", note);
  fmt::print("{}: {}, predicted {}; {} of memory\n", machine.name(), seconds_text(run.seconds),
             seconds_text(run.predicted), base::bytes_text(run.cost.total_bytes));
  if (const auto& transfers = run.cost.host_io)
    fmt::print("of this time, {}: {}\n", report::kHostTransfers, seconds_text(transfers->seconds));
}

ordered_json json_of(const Run& run, const RunFlags& options, const Machine& machine) {
  ordered_json layers = ordered_json::array(), outputs = layers, operations = layers;
  for (const onnx::LayerChoice& layer : run.model.layers)
    layers.push_back({{"name", layer.name},
                      {"m", layer.zeros.rows},
                      {"k", layer.zeros.cols},
                      {"n", layer.rows},
                      {"density", layer.zeros.density},
                      {"sparse", layer.is_sparse},
                      {"block", layer.zeros.best_block_size},
                      {"dense_seconds", layer.zeros.dense_seconds},
                      {"sparse_seconds", layer.zeros.sparse_seconds},
                      {"reason", layer.why_dense()},
                      {"copy_bytes", layer.copy_bytes}});
  for (const onnx::ValueType& output : run.model.outputs) {
    const Statistics statistics = statistics_of(run.outputs.at(output.name));
    const auto number = [](double x) { return std::isfinite(x) ? ordered_json(x) : ordered_json(nullptr); };
    std::vector<uint32_t> shape;
    for (const onnx::Dimension& dimension : output.shape) shape.push_back(*dimension.size);
    outputs.push_back({{"name", output.name},
                       {"type", output.type},
                       {"shape", shape},
                       {"least", number(statistics.least)},
                       {"mean", number(statistics.mean)},
                       {"most", number(statistics.most)}});
  }
  if (options.measure)
    for (const graph::OperationCost& each : run.cost.operations)
      operations.push_back(
          {{"operation", each.operation}, {"result", each.value}, {"seconds", each.seconds}});
  ordered_json kinds = ordered_json::object();
  for (const graph::KindCost& each : graph::seconds_by_kind(run.cost)) kinds[each.kind] = each.seconds;
  ordered_json json = {{"schema", 1},
                       {"command", "run"},
                       {"model", options.model.path},
                       {"machine", machine.name()},
                       {"seconds", run.seconds},
                       {"predicted_seconds", run.predicted},
                       {"seconds_by_kind", kinds},
                       {"bytes", run.cost.total_bytes},
                       {"notes", run.model.notes},
                       {"layers", layers},
                       {"operations", operations},
                       {"results", outputs}};
  if (run.cost.host_io) json["host_io"] = host_io_json(*run.cost.host_io);
  return json;
}

void write_files(const Run& run, const RunFlags& options, const SavedFiles& files, const Machine& machine) {
  for (const auto& [name, file] : files) {
    const auto output = std::ranges::find(run.model.outputs, name, &onnx::ValueType::name);
    std::vector<uint64_t> shape;
    for (const onnx::Dimension& dimension : output->shape) shape.push_back(*dimension.size);
    io::write_npy_array(file, shape, run.outputs.at(name), !is_float(*output));
  }
  if (!options.report.empty())
    io::write_text(options.report, report::network_page(run.model.graph, run.cost, options.model.path,
                                                        machine.name(), layer_rows_of(run.model)));
}

int run(const RunFlags& options) {
  if (!options.report.empty()) {
    check_extension("--report", options.report, {".html", ".htm"});
    io::require_writable(options.report);
  }
  const SavedFiles files = saved_files(options);
  const Machine machine = Machine::find(options.machine, options.common.threads);
  if (options.host_io && machine.is_host())
    throw UsageError("--host-io is for a modelled --machine; use both, or leave out --host-io");
  const Run result = run_model(options, files, machine);
  if (options.common.json)
    fmt::print("{}\n", json_text(json_of(result, options, machine)));
  else
    print(result, options, machine);
  return write_or_complain([&] { write_files(result, options, files, machine); }) ? 0 : 1;
}

}  // namespace

Command add_run_command(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "run", "Run a model from an ONNX file, with sparse weights where their zeros save time");
  auto options = std::make_shared<RunFlags>();
  add_model_options(command, options->model);
  command.add_option("--save", options->saved, "Write an output to a file: NAME=FILE.npy");
  command.add_option("--machine", options->machine, machine_names() + ", or a machine's .toml file");
  command.add_flag("--measure", options->measure, "Show the time of each operation of a run");
  add_host_io_option(command, options->host_io);
  command.add_option("--report", options->report,
                     "Write a report page: layers, time, memory and graph (.html)");
  add_common_options(command, options->common);
  command.footer(
      "\nExamples:\n"
      "  tessera run model.onnx --input ids=ids.npy --shape mask=1,128\n"
      "  tessera run model.onnx --shape batch=8 --measure --report run.html");
  return [options] { return run(*options); };
}

}  // namespace tessera::cli
