// bench_spmm: sparse times dense, Tessera beside the libraries of this computer, interleaved.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/io.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "io/atomic_file.h"
#include "machine/host/detect.h"
#include "machine/host/measure.h"
#include "sparse/pattern.h"
#include "spmm/compare.h"
#include "spmm/options.h"
#include "spmm/report.h"

namespace tessera::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kUsageStatus = 2;

/// Weights to measure with, generated or read when needed.
struct Source {
  std::string file;   ///< empty: generated
  std::string label;  ///< the file's path below the given folder
  double density = 0;
  uint32_t block = 1;
};

std::vector<Source> files_below(const std::string& name) {
  const fs::path root(name);
  if (!fs::is_directory(root)) return {{name, root.filename().string()}};
  std::vector<Source> sources;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.path().extension() == ".smtx")
      sources.push_back(
          {entry.path().string(), entry.path().lexically_relative(root).replace_extension().string()});
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.label < b.label; });
  return sources;
}

std::vector<Source> sources_of(const Options& options) {
  std::vector<Source> sources;
  for (const std::string& name : options.smtx)
    for (const Source& source : files_below(name)) sources.push_back(source);
  if (!options.smtx.empty()) return sources;
  for (uint32_t block : options.blocks)
    for (double density : options.densities) sources.push_back({"", "", density, block});
  return sources;
}

SparseMatrix weights_of(const Source& source, const Options& options) {
  if (!source.file.empty()) return read_matrix(source.file);
  GeneratedMatrix wanted;
  wanted.rows = options.m;
  wanted.cols = options.k;
  wanted.density = source.density;
  wanted.block_size = source.block;
  wanted.seed = 1;
  return generate(wanted);
}

Case case_of(const Source& source, const SparseMatrix& weights) {
  Case work;
  work.label = source.label;
  work.asked_density = source.density;
  work.block = weights.pattern.block_size;
  work.m = weights.pattern.rows;
  work.k = weights.pattern.cols;
  work.nonzeros = sparse::stored_elements(weights.pattern);
  work.density = sparse::density(weights.pattern);
  return work;
}

std::vector<Case> cases_of(const Case& common, const Options& options) {
  std::vector<Case> cases;
  for (Type type : options.types)
    for (Layout layout : options.layouts)
      for (Task task : options.tasks)
        for (uint32_t n : options.n) {
          cases.push_back(common);
          cases.back().type = type;
          cases.back().layout = layout;
          cases.back().task = task;
          cases.back().n = n;
        }
  return cases;
}

void print(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

void print_plans(const Comparison& comparison) {
  for (const Timing& timing : comparison.timings)
    if (!timing.plan.empty()) print(fmt::format("{}: {}\n", timing.peer, timing.plan));
}

Setting setting_of(const Options& options, const Peers& peers) {
  Setting setting;
  setting.cpu = machine::detect_host().cpu;
  setting.limits = options.limits;
  setting.cold = options.cold;
  setting.array_offset = options.array_offset;
  setting.missing = peers.missing;
  for (const auto& peer : peers.loaded)
    setting.versions.push_back(fmt::format("{}: {}", peer->name(), peer->version()));
  setting.peak_gflops = machine::measure_peak_gflops(options.limits.threads);
  return setting;
}

void run(const Options& options) {
  restrict_isa(options.limits.isa);
  Pinning pinning(options.limits.threads);
  const Peers peers = load_peers(options.limits, options.peers);
  pinning.bind_new_threads();
  const Setting setting = setting_of(options, peers);
  const Rules rules{options.rounds, options.cold, options.limits.threads, options.array_offset};
  print(head(setting) + column_names());
  std::vector<Comparison> comparisons;
  for (const Source& source : sources_of(options)) {
    const SparseMatrix weights = weights_of(source, options);
    const std::vector<float> dense = sparse::to_dense(weights);
    for (const Case& work : cases_of(case_of(source, weights), options)) {
      comparisons.push_back(compare(work, weights, dense, peers.loaded, rules, pinning, setting.peak_gflops));
      print(row(comparisons.back()));
      if (options.plans) print_plans(comparisons.back());
    }
  }
  print(summary(comparisons));
  if (!options.csv.empty()) io::write_text(options.csv, to_csv(comparisons));
  if (!options.json.empty()) io::write_text(options.json, to_json(setting, comparisons));
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  try {
    tessera::bench::run(tessera::bench::parse_options(argc, argv));
    return 0;
  } catch (const tessera::UsageError& error) {
    fmt::print(stderr, "bench_spmm: {}\n", error.what());
    return tessera::bench::kUsageStatus;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_spmm: {}\n", error.what());
    return 1;
  }
}
