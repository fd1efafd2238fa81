#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <tessera/machine.h>
#include <tessera/onnx.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/isa.h"
#include "cli/commands.h"
#include "cli/model_run.h"
#include "cli/option_parsing.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "cli/subprocess.h"
#include "io/json_text.h"
#include "report/table.h"

namespace tessera::cli {
namespace {

using base::Clock;
using nlohmann::ordered_json;
using report::seconds_text;

struct BenchmarkFlags {
  ModelRequest model;
  uint32_t batch = 0;
  uint32_t streams = 1;
  double seconds = 10;
  double warm_up = 1;
  std::vector<std::string> beside;  ///< other engines to measure
  std::string python = "python3";   ///< interpreter that has these engines
  CommonOptions common;
};

/// A stream of runs, one after another.
struct Stream {
  Stream(const onnx::ImportedModel& imported, const BenchmarkFlags& options, uint32_t threads)
      : session(imported.graph, Machine::host(threads), {.threads = threads}),
        arrays(session, imported, options.model) {}

  /// Runs until a point in time; returns the seconds of each run.
  std::vector<double> run_until(Clock::time_point end) {
    std::vector<double> seconds;
    do {
      seconds.push_back(base::seconds_of([&] { arrays.run(session); }));
    } while (Clock::now() < end);
    return seconds;
  }

  graph::Session session;
  ModelArrays arrays;
};

struct BenchmarkResult {
  std::vector<double> latencies;  ///< of all runs, ascending
  double seconds = 0;
  double predicted = 0;
  uint32_t threads = 0;  ///< of each stream
  uint64_t samples = 1;  ///< of each run

  double at(double fraction) const {
    return latencies[static_cast<size_t>(fraction * static_cast<double>(latencies.size() - 1))];
  }
  double throughput() const { return static_cast<double>(latencies.size() * samples) / seconds; }
};

std::vector<double> run_all(std::vector<std::unique_ptr<Stream>>& streams, double seconds) {
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<std::vector<double>> each(streams.size());
  std::vector<std::thread> others;
  for (size_t i = 1; i < streams.size(); ++i)
    others.emplace_back([&, i] { each[i] = streams[i]->run_until(end); });
  each[0] = streams[0]->run_until(end);
  for (std::thread& other : others) other.join();
  std::vector<double> all;
  for (const std::vector<double>& some : each) all.insert(all.end(), some.begin(), some.end());
  return all;
}

/// The first dimension of inputs, where the model and --shape leave it open.
void set_batch(ModelRequest& request, uint32_t batch) {
  const onnx::Model model = onnx::Model::read(request.path);
  const onnx::Shapes given = shapes_of(request.shapes);
  bool is_taken = false;
  std::vector<std::string> inputs;
  for (const onnx::ValueType& input : model.inputs()) {
    inputs.push_back(fmt::format("{} {}", input.name, onnx::to_string(input)));
    if (const auto shape = given.find(input.name); shape != given.end()) {
      is_taken = is_taken || shape->second.front() == batch;
      continue;
    }
    if (input.shape.empty()) continue;
    is_taken = is_taken || input.shape[0].size.value_or(batch) == batch;
    if (input.shape[0].size) continue;
    if (input.shape[0].name.empty())
      throw UsageError(
          fmt::format("--batch: the first dimension of '{}' has no name: give its --shape", input.name));
    if (const auto sized = given.find(input.shape[0].name);
        sized != given.end() && sized->second.front() != batch)
      throw UsageError(fmt::format("--batch is {}, but --shape gives '{}' the size {}: leave one of them out",
                                   batch, sized->first, sized->second.front()));
    const std::string size = fmt::format("{}={}", input.shape[0].name, batch);
    if (std::ranges::find(request.shapes, size) == request.shapes.end()) request.shapes.push_back(size);
  }
  if (!is_taken)
    throw UsageError(fmt::format("--batch is {}, but no input leaves its first dimension open: {}", batch,
                                 fmt::join(inputs, ", ")));
}

BenchmarkResult benchmark(const BenchmarkFlags& options, const onnx::ImportedModel& imported) {
  const uint32_t all = options.common.threads != 0 ? options.common.threads : default_threads();
  if (options.streams > all)
    throw UsageError(
        fmt::format("--streams is {}; it must be at most the number of threads, {}", options.streams, all));
  BenchmarkResult result;
  result.threads = all / options.streams;
  std::vector<std::unique_ptr<Stream>> streams;
  for (uint32_t i = 0; i < options.streams; ++i)
    streams.push_back(std::make_unique<Stream>(imported, options, result.threads));
  result.predicted = streams[0]->session.cost().seconds;
  if (!imported.inputs.empty() && !imported.inputs[0].shape.empty())
    result.samples = *imported.inputs[0].shape[0].size;
  // Inputs that a run refuses are refused here, not in another thread.
  for (const std::unique_ptr<Stream>& stream : streams) stream->arrays.run(stream->session);
  run_all(streams, options.warm_up);
  result.seconds = base::seconds_of([&] { result.latencies = run_all(streams, options.seconds); });
  std::ranges::sort(result.latencies);
  return result;
}

ordered_json json_of(const BenchmarkResult& r, const BenchmarkFlags& options) {
  return {{"schema", 1},
          {"command", "benchmark"},
          {"model", options.model.path},
          {"isa", name_of(active_isa())},
          {"streams", options.streams},
          {"threads_per_stream", r.threads},
          {"samples_per_run", r.samples},
          {"results",
           {{{"engine", "tessera"},
             {"runs", r.latencies.size()},
             {"seconds", r.seconds},
             {"samples_per_second", r.throughput()},
             {"least_seconds", r.at(0)},
             {"median_seconds", r.at(0.5)},
             {"p90_seconds", r.at(0.9)},
             {"p99_seconds", r.at(0.99)},
             {"predicted_seconds", r.predicted}}}}};
}

/// Times of other engines on inputs of the same shapes, measured after this one: results as in json_of().
ordered_json results_beside(const BenchmarkFlags& options, const onnx::ImportedModel& imported,
                            uint32_t threads) {
  // -P: Python does not look for modules in the current folder.
  std::vector<std::string> command = {options.python, "-P", "-m", "tessera.onnx", "--json"};
  const auto add_option = [&](const char* name, const auto& value) {
    command.push_back(fmt::format("--{}={}", name, value));
  };
  const auto engines = static_cast<double>(options.beside.size());
  add_option("engines", fmt::format("{}", fmt::join(options.beside, ",")));
  add_option("seconds", engines * options.seconds);
  add_option("warm-up", engines * options.warm_up);
  add_option("threads", threads);
  add_option("streams", options.streams);
  for (const onnx::ValueType& input : imported.inputs) {
    std::vector<uint32_t> sizes;
    for (const onnx::Dimension& dimension : input.shape) sizes.push_back(dimension.size.value());
    if (!sizes.empty()) add_option("shape", fmt::format("{}={}", input.name, fmt::join(sizes, ",")));
  }
  for (const char* each : {"--", "benchmark"}) command.emplace_back(each);
  command.push_back(options.model.path);
  ordered_json results = ordered_json::array();
  try {
    const ordered_json printed = io::parse_ordered_json(output_of(command));
    for (const ordered_json& each : printed.at("results")) {
      ordered_json row = {{"engine", each.at("engine").get<std::string>()},
                          {"runs", each.at("runs").get<uint64_t>()}};
      for (const char* name :
           {"seconds", "samples_per_second", "least_seconds", "median_seconds", "p90_seconds", "p99_seconds"})
        row[name] = each.at(name).get<double>();
      results.push_back(std::move(row));
    }
  } catch (const ordered_json::exception&) {
    throw Error(fmt::format("{} -m tessera.onnx printed no results", options.python));
  }
  return results;
}

void print_times(const ordered_json& measured) {
  const auto count = [&](const char* name, const char* what) {
    const auto number = measured.at(name).get<uint64_t>();
    return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
  };
  fmt::print("{} of {}, {} per run\n", count("streams", "stream"), count("threads_per_stream", "thread"),
             count("samples_per_run", "sample"));
  report::Table table(
      {"engine", "runs", "samples per second", "minimum", "median", "90 %", "99 %", "predicted"});
  for (const ordered_json& row : measured.at("results")) {
    const auto time = [&](const char* name) {
      return row.contains(name) ? seconds_text(row.at(name).get<double>()) : std::string();
    };
    table.add({row.at("engine").get<std::string>(), std::to_string(row.at("runs").get<uint64_t>()),
               fmt::format("{:.1f}", row.at("samples_per_second").get<double>()), time("least_seconds"),
               time("median_seconds"), time("p90_seconds"), time("p99_seconds"), time("predicted_seconds")});
  }
  fmt::print("{}", table.text());
}

int run(const BenchmarkFlags& given) {
  BenchmarkFlags options = given;
  if (options.batch != 0) set_batch(options.model, options.batch);
  const onnx::ImportedModel imported = import(options.model, options.common.threads);
  const BenchmarkResult result = benchmark(options, imported);
  ordered_json measured = json_of(result, options);
  int status = 0;
  if (!options.beside.empty()) {
    try {
      for (ordered_json& row : results_beside(options, imported, result.threads * options.streams))
        measured["results"].push_back(std::move(row));
    } catch (const Error& error) {  // the results measured above are still shown
      complain(fmt::format("--beside: {}", error.what()));
      status = 1;
    }
  }
  if (options.common.json)
    fmt::print("{}\n", json_text(measured));
  else
    print_times(measured);
  return status;
}

std::vector<std::string> parse_engines(const std::string& text) {
  std::vector<std::string> engines = parse_names(text);
  for (const std::string& each : engines)
    if (each != "onnxruntime" && each != "openvino")
      throw invalid_value("--beside", each, "choose from onnxruntime, openvino");
  return engines;
}

}  // namespace

Command add_benchmark_command(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("benchmark", "Measure latency and throughput of a model from an ONNX file");
  auto options = std::make_shared<BenchmarkFlags>();
  add_model_options(command, options->model);
  add_count(command, "--batch", options->batch, "Number of samples per run, where the model leaves it open");
  add_count(command, "--streams", options->streams, "Number of simultaneous runs, which share the threads",
            4096);
  add_seconds(command, "--seconds", options->seconds, "Seconds of measurement (default: 10)");
  add_seconds(command, "--warm-up", options->warm_up, "Seconds of runs before the measurement (default: 1)");
  add(command, "--beside", options->beside, parse_engines,
      "Also measure onnxruntime or openvino, or both, in a Python that has them and tessera");
  command.add_option("--python", options->python, "Python interpreter for --beside (default: python3)");
  add_common_options(command, options->common);
  command.footer(
      "\nTo time it in turn with ONNX Runtime and OpenVINO: python -m tessera.onnx benchmark model.onnx\n"
      "\nExample:\n  tessera benchmark model.onnx --batch 8 --shape tokens=128 --seconds 10 --streams 2 "
      "--json");
  return [options] { return run(*options); };
}

}  // namespace tessera::cli
