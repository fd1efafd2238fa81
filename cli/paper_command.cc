#include "cli/paper_command.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/output.h"
#include "cli/parse.h"
#include "cli/study_run.h"
#include "io/atomic_file.h"
#include "studies/common/made_on.h"
#include "studies/paper/cells.h"
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
  const char* variable = std::getenv("TESSERA_DATA");
  const std::string folder = request.data.empty() && variable != nullptr ? variable : request.data;
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

/// Runs the cells of one machine that are not in its file of finished ones yet; adds its failures.
Part run_part(const Paper& paper, const Request& request, const machine::Machine& machine,
              const std::filesystem::path& folder, size_t& failed) {
  const bool host = machine.kind == machine::Kind::host;
  Store store(folder / fmt::format("cells-{}.jsonl", host ? "host" : machine.name),
              made_on(fmt::format("tessera reproduce {}", paper.name), TESSERA_VERSION, machine,
                      nlohmann::ordered_json::object()));
  const std::vector<Task> tasks = tasks_of(paper, request, machine);
  const size_t to_run = missing(tasks, store);
  tell_finished(store.file(), tasks.size() - to_run, tasks.size());
  {
    Bar bar(to_run);
    failed += studies::run(request, machine, tasks, store, bar);
  }
  Part part{machine, {}};
  for (const Task& task : tasks)
    if (const Result* result = store.find(task.section, task.cell.name))
      part.results[{task.section, task.cell.name}] = *result;
  return part;
}

int run_study(const Paper& paper, Request request) {
  const std::vector<machine::Machine> machines = machines_of(request);
  (void)sections_of(paper, request);
  load_data(paper, machines, request);
  Study study(paper, request);
  const std::filesystem::path folder = request.out.empty() ? std::string(paper.name) : request.out;
  make_folder(folder);
  if (request.csv.empty()) request.csv = folder / fmt::format("{}.csv", paper.name);
  if (request.html.empty()) request.html = folder / fmt::format("{}.html", paper.name);
  for (const std::string& file : {request.csv, request.html}) io::require_writable(file);

  size_t failed = 0;
  for (const machine::Machine& machine : machines)
    study.parts.push_back(run_part(paper, request, machine, folder, failed));
  io::write_text(request.csv, csv(study));
  io::write_text(request.html, page(study));
  if (request.json) {
    fmt::print("{}", json(study));
  } else {
    for (const Figure& figure : figures_of(study)) fmt::print("{}\n", text(figure));
    fmt::print("{}Written: {}, {}\n", notes_of(study), request.csv, request.html);
  }
  return failed == 0 ? 0 : 1;
}

void add_options(CLI::App& command, const Paper& paper, Request& r) {
  command.add_option_function<std::string>(
      "--machine", [&r](const std::string& s) { r.machines = parse_names(s); },
      "A modelled machine, host (measured here), or both (default: gc200,host)");
  command.add_option_function<std::string>(
      "--only", [&r](const std::string& s) { r.only = parse_names(s); },
      "Sections to run and show, such as table-2 (default: all)");
  command.add_flag("--full", r.full,
                   "Also run what takes long: larger sizes, longer sweeps, trainings of 15 epochs");
  if (paper.data)
    command.add_option("--data", r.data,
                       fmt::format("Folder with {}, for {} (default: TESSERA_DATA)", paper.data->contents,
                                   paper.data->what));
  command.add_option_function<std::string>(
      "--threads", [&r](const std::string& s) { r.threads = parse_count("--threads", s, 1, 4096); },
      "Threads of a host; concurrent cells of a modelled machine (default: one per physical core)");
  command.add_flag("!--no-verify", r.verify, "Do not compare results with float64");
  command.add_option("--out", r.out,
                     "Folder of finished cells, from which the next run resumes, and of the files below "
                     "(default: " +
                         std::string(paper.name) + ")");
  command.add_option(
      "--published", r.published,
      fmt::format("Folder of other published tables, by the names of those in src/studies/{}/published",
                  paper.name));
  command.add_option("--csv", r.csv,
                     fmt::format("File for all numbers (default: {}.csv in that folder)", paper.name));
  command.add_option(
      "--html", r.html,
      fmt::format("File for a page with charts (default: {}.html in that folder)", paper.name));
  command.add_flag("--json", r.json, "Print one JSON object");
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
