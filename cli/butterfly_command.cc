#include "cli/butterfly_command.h"

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
#include "studies/butterfly/run.h"
#include "studies/butterfly/sections.h"
#include "studies/butterfly/tables.h"
#include "studies/common/made_on.h"

namespace tessera::cli::butterfly {
namespace {

using namespace studies::butterfly;

std::vector<machine::Machine> machines_of(const Request& request) {
  std::vector<machine::Machine> machines;
  for (const std::string& name : request.machines) machines.push_back(machine::find(name, request.threads));
  const auto hosts = std::count_if(machines.begin(), machines.end(),
                                   [](const auto& m) { return m.kind == machine::Kind::host; });
  if (hosts > 1 || std::ssize(machines) - hosts > 1)
    throw UsageError("--machine takes one modelled machine, host, or both");
  return machines;
}

/// Whether the request has cells that train: those of tables 4 and 5, on a host.
bool has_trainings(const Request& request, const std::vector<machine::Machine>& machines) {
  const auto asks = [&](const char* section) {
    return request.only.empty() || std::ranges::find(request.only, section) != request.only.end();
  };
  return std::ranges::any_of(machines, [](const auto& m) { return m.kind == machine::Kind::host; }) &&
         (asks("table-4") || asks("table-5"));
}

/// Images to train with, of --data, or of TESSERA_DATA if they are there.
std::shared_ptr<const ImageSplit> images_of(const std::string& data) {
  const char* variable = std::getenv("TESSERA_DATA");
  const std::string folder = data.empty() && variable != nullptr ? variable : data;
  if (folder.empty()) {
    complain(
        "accuracies of tables 4 and 5 are left out: pass --data FOLDER with CIFAR-10, or set TESSERA_DATA");
    return nullptr;
  }
  try {
    return std::make_shared<const ImageSplit>(load_images(folder, "cifar-10"));
  } catch (const Error& error) {
    if (!data.empty()) throw;
    complain(fmt::format("accuracies of tables 4 and 5 are left out: {}", error.what()));
    return nullptr;
  }
}

/// Runs the cells of one machine that are not in its file of finished ones yet; adds its failures.
Part run_part(const Request& request, const machine::Machine& machine, const std::filesystem::path& folder,
              size_t& failed) {
  const bool host = machine.kind == machine::Kind::host;
  Store store(folder / fmt::format("cells-{}.jsonl", host ? "host" : machine.name),
              studies::made_on("tessera reproduce butterfly", TESSERA_VERSION, machine,
                               nlohmann::ordered_json::object()));
  const std::vector<Task> tasks = tasks_of(request, machine);
  const size_t to_run = missing(tasks, store);
  tell_finished(store.file(), tasks.size() - to_run, tasks.size());
  {
    Bar bar(to_run);
    failed += studies::butterfly::run(request, machine, tasks, store, bar);
  }
  Part part{machine, {}};
  for (const Task& task : tasks)
    if (const Result* result = store.find(task.section, task.cell.name))
      part.results[{task.section, task.cell.name}] = *result;
  return part;
}

int run_study(Request request) {
  const std::vector<machine::Machine> machines = machines_of(request);
  (void)sections_of(request);
  if (has_trainings(request, machines)) request.images = images_of(request.data);
  Study study{request, Published(request.published), {}};
  const std::filesystem::path folder = request.out.empty() ? "butterfly" : request.out;
  make_folder(folder);
  if (request.csv.empty()) request.csv = folder / "butterfly.csv";
  if (request.html.empty()) request.html = folder / "butterfly.html";
  for (const std::string& file : {request.csv, request.html}) io::require_writable(file);

  size_t failed = 0;
  for (const machine::Machine& machine : machines)
    study.parts.push_back(run_part(request, machine, folder, failed));
  io::write_text(request.csv, csv(study));
  io::write_text(request.html, page(study));
  if (request.json) {
    fmt::print("{}", json(study));
  } else {
    for (const studies::Figure& figure : figures_of(study)) fmt::print("{}\n", text(figure));
    fmt::print("{}Written: {}, {}\n", notes_of(study), request.csv, request.html);
  }
  return failed == 0 ? 0 : 1;
}

void add_options(CLI::App& command, Request& r) {
  command.add_option_function<std::string>(
      "--machine", [&r](const std::string& s) { r.machines = parse_names(s); },
      "A modelled machine, host (measured here), or both (default: gc200,host)");
  command.add_option_function<std::string>(
      "--only", [&r](const std::string& s) { r.only = parse_names(s); },
      "Sections to run and show, such as table-2 (default: all)");
  command.add_flag("--full", r.full,
                   "Also run what takes long: larger sizes, longer sweeps, trainings of 15 epochs");
  command.add_option("--data", r.data,
                     "Folder with CIFAR-10, for accuracies in tables 4 and 5 (default: TESSERA_DATA)");
  command.add_option_function<std::string>(
      "--threads", [&r](const std::string& s) { r.threads = parse_count("--threads", s, 1, 4096); },
      "Threads of a host; concurrent cells of a modelled machine (default: one per physical core)");
  command.add_flag("!--no-verify", r.verify, "Do not compare results with float64");
  command.add_option("--out", r.out,
                     "Folder of finished cells, from which the next run resumes, and of the files below "
                     "(default: butterfly)");
  command.add_option(
      "--published", r.published,
      "Folder of other published tables, by the names of those in src/studies/butterfly/published");
  command.add_option("--csv", r.csv, "File for all numbers (default: butterfly.csv in that folder)");
  command.add_option("--html", r.html,
                     "File for a page with charts (default: butterfly.html in that folder)");
  command.add_flag("--json", r.json, "Print one JSON object");
}

std::string section_list() {
  std::string list = "\nSections:\n";
  for (const Section& section : all_sections())
    list += fmt::format("  {:<10} {}\n", section.name, section.title);
  return list;
}

}  // namespace

Command add_command(CLI::App& reproduce) {
  auto request = std::make_shared<Request>();
  CLI::App& command = *reproduce.add_subcommand(
      "butterfly", "Characterise a GC200, and compare structured with dense layers on it, as published");
  add_options(command, *request);
  command.footer(section_list() +
                 "\nExamples:\n"
                 "  tessera reproduce butterfly\n"
                 "  tessera reproduce butterfly --machine gc200 --only table-2 --json\n"
                 "  tessera reproduce butterfly --machine bow,host --out here");
  return [request] { return run_study(*request); };
}

}  // namespace tessera::cli::butterfly
