#include "cli/paper_command.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "cli/option_parsing.h"
#include "cli/output.h"
#include "cli/study_run.h"
#include "io/atomic_file.h"
#include "studies/paper/tables.h"

namespace tessera::cli {
namespace {

using namespace studies;

std::vector<machine::Machine> machines_of(const Request& request) {
  std::vector<machine::Machine> machines;
  for (const std::string& name : request.machines) machines.push_back(machine::find(name, request.threads));
  const auto hosts = std::count_if(machines.begin(), machines.end(),
                                   [](const auto& m) { return m.kind == machine::Kind::host; });
  if (hosts > 1 || std::ssize(machines) - hosts > 1)
    throw UsageError("--machine takes one modelled machine, host, or both");
  return machines;
}

/// Loads the data set that cells need, of --data, or of TESSERA_DATA if it is there.
void load_data(const Paper& paper, std::span<const machine::Machine> machines, Request& request) {
  if (!paper.data || !paper.data->is_needed(request, machines)) return;
  const std::string folder = data_folder(request.data);
  if (folder.empty())
    return complain(fmt::format("{} are left out: pass --data FOLDER with {}, or set TESSERA_DATA",
                                paper.data->what, paper.data->contents));
  try {
    paper.data->load(folder, request);
  } catch (const Error& error) {
    if (!request.data.empty()) throw;
    complain(fmt::format("{} are left out: {}", paper.data->what, error.what()));
  }
}

int run_study(const Paper& paper, Request request) {
  const std::vector<machine::Machine> machines = machines_of(request);
  (void)sections_of(paper, request);
  load_data(paper, machines, request);
  Study study(paper, request);
  const std::filesystem::path folder = prepare_folder(paper.name, std::string(paper.name), request);
  size_t failed = 0;
  for (const machine::Machine& machine : machines) {
    const std::string name = machine.kind == machine::Kind::host ? "host" : machine.name;
    study.parts.push_back(run_cells(paper.name, request, machine, tasks_of(paper, request, machine),
                                    folder / fmt::format("cells-{}.jsonl", name),
                                    nlohmann::ordered_json::object(), failed));
  }
  io::write_text(request.csv, csv(study));
  io::write_text(request.html, page(study));
  if (request.json)
    fmt::print("{}", json(study));
  else
    print(request, figures_of(study), notes_of(study));
  return failed == 0 ? 0 : 1;
}

void add_options(CLI::App& command, const Paper& paper, Request& r) {
  const auto names = [](const std::string& text) { return parse_names(text); };
  add(command, "--machine", r.machines, names,
      "A modelled machine, host (measured here), or both (default: gc200,host)");
  add(command, "--only", r.only, names, "Sections to run and show, such as table-2 (default: all)");
  command.add_flag("--full", r.full,
                   "Also run what takes long: larger sizes, longer sweeps, trainings of 15 epochs");
  if (paper.data)
    command.add_option("--data", r.data,
                       fmt::format("Folder with {}, for {} (default: TESSERA_DATA)", paper.data->contents,
                                   paper.data->what));
  add_study_options(command, {.name = paper.name, .folder = paper.name}, r);
}

std::string section_list(const Paper& paper) {
  std::string list = "\nSections:\n";
  for (const Section& section : paper.sections)
    list += fmt::format("  {:<10} {}\n", section.name, section.title);
  return list;
}

}  // namespace

Command add_paper_command(CLI::App& reproduce, const Paper& paper) {
  auto request = std::make_shared<Request>();
  CLI::App& command = *reproduce.add_subcommand(std::string(paper.name), std::string(paper.about));
  add_options(command, paper, *request);
  command.footer(fmt::format("{}\nExamples:\n{}", section_list(paper), paper.examples));
  return [request, &paper] { return run_study(paper, *request); };
}

}  // namespace tessera::cli
