#include "cli/popsparse_command.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/option_parsing.h"
#include "cli/spmm_request.h"
#include "cli/study_run.h"
#include "io/atomic_file.h"
#include "studies/popsparse/tables.h"
#include "studies/popsparse/tasks.h"

namespace tessera::cli::popsparse {
namespace {

using namespace studies::popsparse;

using studies::Figure;
using studies::Result;

/// Runs the cells of a sweep that are not in the file of finished ones yet; adds its failures.
Outcome run_sweep(const Request& request, const machine::Machine& machine, const Sweep& sweep,
                  const std::filesystem::path& file, size_t& failed) {
  nlohmann::ordered_json settings = {{"schema", 2}};
  if (machine.kind == machine::Kind::tiled) settings["planner"] = planner_name(request.planner);
  const studies::Part part = run_cells("popsparse", request, machine, tasks_of(sweep, request, machine.kind),
                                       file, settings, failed);
  Outcome outcome{request, machine, {}};
  for (const auto& [operand, columns] : sweep)
    for (uint32_t n : columns)
      if (const Result* result = part.find("", name_of(Cell{operand, n})))
        outcome.results[{operand, n}] = *result;
  return outcome;
}

int run_study(Request request) {
  const machine::Machine machine = machine::find(request.machine(), request.threads);
  if (request.gain && (machine.kind == machine::Kind::host || request.planner == ops::Planner::best))
    throw UsageError("--gain compares the free planner with the published one, on a modelled machine");
  if (request.gain && request.json) throw UsageError("--gain prints a table: leave out --json");
  const Sweep sweep = sweep_of(request, machine);
  check(sweep, request);
  (void)read_dense(request.published);  // a wrong folder is told before anything runs
  (void)read_ratios(request.published);
  const std::filesystem::path folder = prepare_folder("popsparse", "popsparse-" + machine.name, request);

  size_t failed = 0;
  const Study study(run_sweep(request, machine, sweep, folder / "cells.jsonl", failed), request.published);
  std::vector<Figure> figures = figures_of(study);
  if (request.gain) {
    Request free = request;
    free.planner = ops::Planner::best;
    figures.push_back(
        gain_figure(study.outcome(), run_sweep(free, machine, sweep, folder / "cells-best.jsonl", failed)));
  }
  io::write_text(request.csv, csv(study));
  io::write_text(request.html, page(study));
  if (request.json)
    fmt::print("{}", json(study));
  else
    print(request, figures, notes_of(study));
  return failed == 0 ? 0 : 1;
}

void add_sweep_options(CLI::App& command, Request& r) {
  command.add_option("--machine", r.machines.front(),
                     "bow (the default), gc200, gc2, a machine's .toml file, or host: measured here");
  add_choice(command, "--planner", r.planner, kPlanners,
             "Planner for modelled machines: published (default) or best");
  command.add_flag(
      "--gain", r.gain,
      "Also plan freely, into cells-best.jsonl, and print what that gains over the published planner");
  command.add_flag("--full", r.full, "Run the paper's whole table 2, which takes about an hour");
  add_counts(command, "--m", r.sizes, "Sizes m = k *");
  add_counts(command, "--n", r.n, "Columns of X *");
  add_counts(command, "--block", r.blocks, "Block sizes *");
  add(command, "--density", r.densities, parse_densities, "Densities, such as 1/16 *");
  add(command, "--type", r.types, parse_types, "f16, f16-f32 (FP32 partial sums), f32 *");
  add(command, "--mode", r.modes, parse_modes, "static, dynamic, dense *");
}

}  // namespace

Command add_command(CLI::App& reproduce) {
  auto request = std::make_shared<Request>();
  CLI::App& command = *reproduce.add_subcommand(
      "popsparse", "Compare sparse with dense products on a Bow IPU, as published: every table and figure");
  add_sweep_options(command, *request);
  add_study_options(command,
                    {.name = "popsparse",
                     .folder = "popsparse-MACHINE",
                     .no_verify = "Do not execute and verify a sample of the cells",
                     .csv = "all cells",
                     .page = "a page with plots"},
                    *request);
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
