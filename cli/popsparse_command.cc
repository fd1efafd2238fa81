#include "cli/popsparse_command.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/parse.h"
#include "cli/popsparse_runner.h"
#include "cli/spmm_request.h"
#include "cli/study_run.h"
#include "io/atomic_file.h"
#include "studies/common/made_on.h"
#include "studies/popsparse/run.h"
#include "studies/popsparse/store.h"
#include "studies/popsparse/tables.h"

namespace tessera::cli::popsparse {
namespace {

using namespace studies::popsparse;

using nlohmann::ordered_json;
using studies::Figure;

/// What the numbers of cells depend on; a result file holds cells of one kind only.
ordered_json made_on(const Request& request, const machine::Machine& machine) {
  ordered_json settings = ordered_json::object();
  if (machine.kind == machine::Kind::tiled)
    settings["planner"] = request.planner == ops::Planner::best ? "best" : "published";
  return studies::made_on("tessera reproduce popsparse", TESSERA_VERSION, machine, settings);
}

Outcome outcome_of(const Request& request, const machine::Machine& machine, const Sweep& sweep,
                   const Store& store) {
  Outcome outcome{request, machine, {}};
  for (const auto& [operand, columns] : sweep)
    for (uint32_t n : columns)
      if (const Result* result = store.find({operand, n})) outcome.results[result->cell] = *result;
  return outcome;
}

size_t run_cells(const Request& request, const machine::Machine& machine, const Sweep& sweep, Store& store) {
  Bar bar(missing(sweep, store));
  return studies::popsparse::run(request, machine, sweep, store, popsparse_runners(request), bar);
}

/// Runs the cells of a sweep that are not in the file of finished ones yet. Returns their results, and how
/// many failed.
std::pair<Outcome, size_t> run_sweep(const Request& request, const machine::Machine& machine,
                                     const Sweep& sweep, const std::filesystem::path& file) {
  Store store(file, made_on(request, machine));
  size_t cells = 0;
  for (const auto& [operand, columns] : sweep) cells += columns.size();
  tell_finished(store.file(), cells - missing(sweep, store), cells);
  const size_t failed = run_cells(request, machine, sweep, store);
  return {outcome_of(request, machine, sweep, store), failed};
}

int run_study(Request request) {
  const machine::Machine machine = machine::find(request.machine, request.threads);
  if (request.gain && (machine.kind == machine::Kind::host || request.planner == ops::Planner::best))
    throw UsageError("--gain compares the free planner with the published one, on a modelled machine");
  if (request.gain && request.json) throw UsageError("--gain prints a table: leave out --json");
  const Sweep sweep = sweep_of(request, machine);
  check(sweep, popsparse_runners(request));
  (void)read_dense(request.published);  // a wrong folder is told before anything runs
  (void)read_ratios(request.published);
  const std::filesystem::path folder = request.out.empty() ? "popsparse-" + machine.name : request.out;
  make_folder(folder);
  if (request.csv.empty()) request.csv = folder / "popsparse.csv";
  if (request.html.empty()) request.html = folder / "popsparse.html";
  for (const std::string& file : {request.csv, request.html}) io::require_writable(file);

  auto [outcome, failed] = run_sweep(request, machine, sweep, folder / "cells.jsonl");
  const Study study(std::move(outcome), request.published);
  std::optional<Figure> gain;
  if (request.gain) {
    Request free = request;
    free.planner = ops::Planner::best;
    const auto [its_outcome, its_failed] = run_sweep(free, machine, sweep, folder / "cells-best.jsonl");
    gain = gain_figure(study.outcome(), its_outcome);
    failed += its_failed;
  }
  io::write_text(request.csv, csv(study));
  io::write_text(request.html, page(study));
  if (request.json) {
    fmt::print("{}", json(study));
  } else {
    for (const Figure& figure : figures_of(study)) fmt::print("{}\n", text(figure));
    if (gain) fmt::print("{}\n", text(*gain));
    fmt::print("{}Written: {}, {}\n", notes_of(study), request.csv, request.html);
  }
  return failed == 0 ? 0 : 1;
}

void add_sweep_options(CLI::App& command, Request& r) {
  command.add_option("--machine", r.machine,
                     "bow (the default), gc200, gc2, a machine's .toml file, or host: measured here");
  command
      .add_option_function<std::string>(
          "--planner",
          [&r](const std::string& s) {
            r.planner = s == "best" ? ops::Planner::best : ops::Planner::published;
          },
          "Planner for modelled machines: published (default) or best")
      ->check(CLI::IsMember({"published", "best"}));
  command.add_flag(
      "--gain", r.gain,
      "Also plan freely, into cells-best.jsonl, and print what that gains over the published planner");
  command.add_flag("--full", r.full, "Run the paper's whole table 2, which takes about an hour");
  command.add_option_function<std::string>(
      "--m", [&r](const std::string& s) { r.sizes = parse_counts("--m", s); }, "Sizes m = k *");
  command.add_option_function<std::string>(
      "--n", [&r](const std::string& s) { r.n = parse_counts("--n", s); }, "Columns of X *");
  command.add_option_function<std::string>(
      "--block", [&r](const std::string& s) { r.blocks = parse_counts("--block", s); }, "Block sizes *");
  command.add_option_function<std::string>(
      "--density", [&r](const std::string& s) { r.densities = parse_densities(s); },
      "Densities, such as 1/16 *");
  command.add_option_function<std::string>(
      "--type", [&r](const std::string& s) { r.types = parse_types(s); },
      "f16, f16-f32 (FP32 partial sums), f32 *");
  command.add_option_function<std::string>(
      "--mode", [&r](const std::string& s) { r.modes = parse_modes(s); }, "static, dynamic, dense *");
}

void add_other_options(CLI::App& command, Request& r) {
  command.add_option_function<std::string>(
      "--threads", [&r](const std::string& s) { r.threads = parse_count("--threads", s, 1, 4096); },
      "Threads of a host; concurrent cells of a modelled machine (default: one per physical core)");
  command.add_flag("!--no-verify", r.verify, "Do not execute and verify a sample of the cells");
  command.add_option("--out", r.out,
                     "Folder of finished cells, from which the next run resumes, and of the files below "
                     "(default: popsparse-MACHINE)");
  command.add_option(
      "--published", r.published,
      "Folder of other published tables, by the names of those in src/studies/popsparse/published");
  command.add_option("--csv", r.csv, "File for all cells (default: popsparse.csv in that folder)");
  command.add_option("--html", r.html, "File for a page with plots (default: popsparse.html in that folder)");
  command.add_flag("--json", r.json, "Print one JSON object");
}

}  // namespace

Command add_command(CLI::App& reproduce) {
  auto request = std::make_shared<Request>();
  CLI::App& command = *reproduce.add_subcommand(
      "popsparse", "Compare sparse with dense products on a Bow IPU, as published: every table and figure");
  add_sweep_options(command, *request);
  add_other_options(command, *request);
  command.footer(
      "\n* takes a list separated by commas. With any of these every combination runs, instead of the "
      "paper's.\n"
      "\nExamples:\n"
      "  tessera reproduce popsparse\n"
      "  tessera reproduce popsparse --machine host --out here\n"
      "  tessera reproduce popsparse --m 1024,4096 --n 64,1024 --block 16 --density 1/16 --type f16,f32");
  return [request] { return run_study(*request); };
}

}  // namespace tessera::cli::popsparse
