#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <new>
#include <span>

#include "cli/commands.h"
#include "cli/option_parsing.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/spmm_request.h"
#include "studies/spmm/report.h"
#include "studies/spmm/runner.h"
#include "studies/spmm/show.h"

namespace tessera::cli {
namespace {

using namespace studies::spmm;

void add_weight_options(CLI::App& command, SpmmRequest& r) {
  command.add_option("--weights", r.weights, "File of W: .smtx, .mtx, .npy or .safetensors");
  command.add_option("--tensor", r.tensor, "Name of the tensor in a .safetensors file");
  add_count(command, "--m", r.m, "Rows of a generated W", kMostCount, 0);
  add_count(command, "--k", r.k, "Columns of a generated W", kMostCount, 0);
  add(command, "--density", r.densities, parse_densities, "Density of a generated W, such as 1/16 or 0.1 *");
  add_choice<PatternKind>(
      command, "--pattern", r.pattern,
      {{"random", PatternKind::random},
       {"banded", PatternKind::banded},
       {"power_law", PatternKind::power_law},
       {"shuffled", PatternKind::shuffled}},
      "Pattern of a generated W: random, banded, power_law, or shuffled as in PopSparse's "
      "benchmark");
  add_seed(command, "--seed", r.seed, "Seed of generated patterns and values");
}

void add_run_options(CLI::App& command, SpmmRequest& r) {
  add_counts(command, "--n", r.n, "Columns of X *");
  add_counts(command, "--block", r.blocks,
             "Block size b: 1, 4, 8, 16 or 32; a file's non-zeros are covered with b × b blocks *");
  add(command, "--type", r.types, parse_types,
      "Type of W: f32, f16 or bf16; on tiled machines also f16-f32 (FP16 values, FP32 partial sums) *");
  add(command, "--mode", r.modes, parse_modes,
      "static (sparse, fixed pattern), dynamic (sparse, changing pattern) or dense (default: static "
      "and dense) *");
  add(command, "--product", r.products, parse_products,
      "forward (Y = W·X, default), input_gradient (Wᵀ·dY) or sddmm (dY·Xᵀ at the pattern of W) *");
  add(
      command, "--machine", r.machines, [](const std::string& s) { return parse_names(s); },
      machine_names() + ", or a machine's .toml file (docs/machines.md) *");
  add(command, "--set", r.settings, parse_settings,
      "Change figures of modelled machines: KEY=VALUE, …; KEY=VALUE:VALUE runs each value (tessera machines "
      "lists the keys)");
  add_choice<Layout>(command, "--layout", r.layout,
                     {{"row", Layout::row_major}, {"column", Layout::column_major}},
                     "Memory order of X and Y: row or column (major)");
}

void add_output_options(CLI::App& command, SpmmRequest& r) {
  command.add_flag("--estimate", r.estimate, "Only plan, compile and estimate the cost, without arithmetic");
  add_choice<Verify>(
      command, "--verify", r.verify,
      {{"full", Verify::full}, {"sample", Verify::sample}, {"none", Verify::none}},
      "Compare with float64: full, sample or none (default: full up to 2 GFLOP, otherwise sample)");
  command
      .add_option("--print", r.print,
                  "Also show: plan, candidates (plans), passes (of the compiler) or program")
      ->check(CLI::IsMember({"plan", "candidates", "passes", "program"}));
  command.add_option("--report", r.report, "Write a report page: results, schedule, memory, plan (.html)");
  command.add_option("--trace", r.trace, "Write a trace for Perfetto or chrome://tracing (.json)");
  add_choice(
      command, "--planner", r.planner, kPlanners,
      "Planner for modelled machines: best, or vendor (the published rules of the vendor's libraries)");
  add(command, "--plan", r.force, parse_knobs,
      "Force knobs of the schedule (of static mode, if both modes run): KEY=NUMBER, …");
}

SpmmResult run_or_fail(SpmmRunner& runner, const SpmmCase& what) {
  try {
    return runner.run(what);
  } catch (const ops::TooLarge& e) {
    SpmmResult result = runner.failed(what, e.what());
    result.fits = false;
    return result;
  } catch (const Error& e) {
    return runner.failed(what, e.what());
  } catch (const std::bad_alloc&) {
    return runner.failed(what, "out of memory; try a smaller matrix or fewer columns");
  }
}

std::string title(const SpmmCase& what) {
  return fmt::format(
      "{} {} {} n = {}", machine_title(what), flag_of(what.product),
      what.mode == Mode::dense ? "dense" : fmt::format("{} b = {}", name_of(what.mode), what.block), what.n);
}

std::vector<SpmmResult> run_all(SpmmRunner& runner, const std::vector<SpmmCase>& cases) {
  std::vector<SpmmResult> results;
  Progress progress(cases.size());
  for (const SpmmCase& what : cases) {
    progress.show(results.size(), title(what));
    results.push_back(run_or_fail(runner, what));
    const SpmmResult& result = results.back();
    if (result.failure.empty() && result.fits) continue;
    progress.clear();
    complain(result.failure.empty() ? overflow(result) : result.failure);
  }
  return results;
}

void print(const std::vector<SpmmResult>& results) {
  fmt::print("{}", table(results).text());
  if (results.size() <= 2)
    for (const SpmmResult& result : results)
      if (result.failure.empty()) fmt::print("{}", details(result));
  for (const SpmmResult& result : results)
    if (!result.printed.empty()) fmt::print("\n{}:\n{}", title(result.what), result.printed);
}

bool is_failure(const SpmmResult& result) {
  return result.fits && (!result.failure.empty() || result.verified == false);
}

/// Products that do not fit are no failure in an estimate, or if another product ran; otherwise nothing was
/// done.
bool is_failure(std::span<const SpmmResult> results, bool estimate) {
  const bool any_fits = std::ranges::any_of(results, &SpmmResult::fits);
  return (!any_fits && !estimate) ||
         std::ranges::any_of(results, [](const auto& r) { return is_failure(r); });
}

int run(const SpmmRequest& request) {
  check(request);
  const std::vector<SpmmCase> cases = cases_of(request);
  SpmmRunner runner(request);
  for (const SpmmCase& what : cases) runner.check(what);
  require_writable(request);
  const std::vector<SpmmResult> results = run_all(runner, cases);
  if (request.json)
    fmt::print("{}", json(results));
  else
    print(results);
  const bool written = write_or_complain([&] { write_files(request, results); });
  return written && !is_failure(results, request.estimate) ? 0 : 1;
}

}  // namespace

Command add_spmm_command(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "spmm", "Plan, run, verify and measure products Y = W·X of sparse or dense weights");
  auto request = std::make_shared<SpmmRequest>();
  add_weight_options(command, *request);
  add_run_options(command, *request);
  add_output_options(command, *request);
  add_common_options(command, request->json, request->threads);
  command.footer(
      "\n* takes a list separated by commas; every combination runs.\n"
      "\nExamples:\n"
      "  tessera spmm --weights layer.smtx --n 512\n"
      "  tessera spmm --m 4096 --k 4096 --density 1/4,1/16 --block 1,16 --n 64,512\n"
      "  tessera spmm --m 4096 --k 4096 --density 1/16 --block 16 --n 256 --mode static --json\n"
      "  tessera spmm --m 4096 --k 4096 --density 1/16 --n 256 --type f16 --machine bow --set "
      "tiles=1472:2944\n"
      "\nExit status: 0 for success, also if some products do not fit their machine (with --estimate, if "
      "none fits);\n1 if a product failed or differs from float64, or if none fits; 2 for wrong usage.");
  return [request] { return run(*request); };
}

}  // namespace tessera::cli
