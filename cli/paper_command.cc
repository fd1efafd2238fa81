#include "cli/paper_command.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "base/isa.h"
#include "cli/option_parsing.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "io/atomic_file.h"
#include "studies/paper/cells.h"
#include "studies/paper/tables.h"

namespace tessera::cli {
namespace {

using namespace studies;

using nlohmann::ordered_json;

/// Shows a bar of progress on a terminal.
class Bar : public Watcher {
 public:
  explicit Bar(size_t cells) : progress_(cells) {}
  void progress(size_t done, const std::string& next, double fraction) override {
    progress_.show(done, next, fraction);
  }
  void complain(const std::string& message) override {
    progress_.clear();
    cli::complain(message);
  }

 private:
  Progress progress_;
};

std::vector<machine::Machine> machines_of(const Request& request) {
  std::vector<machine::Machine> machines;
  for (const std::string& name : request.machines) machines.push_back(machine::find(name, request.threads));
  const auto hosts = std::count_if(machines.begin(), machines.end(),
                                   [](const auto& m) { return m.kind == machine::Kind::host; });
  if (hosts > 1 || std::ssize(machines) - hosts > 1)
    throw UsageError("--machine takes one modelled machine, host, or both");
  return machines;
}

/// Loads the data set that cells need, from --data, or from TESSERA_DATA if it is there.
void load_data(const Paper& paper, std::span<const machine::Machine> machines, Request& request) {
  if (!paper.data || !paper.data->is_needed(request, machines)) return;
  const std::string folder = data_folder(request.data);
  if (folder.empty()) {
    const std::string how =
        fmt::format("pass --data FOLDER with {}, or set TESSERA_DATA", paper.data->contents);
    if (paper.data->is_all) throw UsageError(how);
    return complain(fmt::format("{} are left out: {}", paper.data->what, how));
  }
  try {
    paper.data->load(folder, request);
  } catch (const Error& error) {
    if (!request.data.empty() || paper.data->is_all) throw;
    complain(fmt::format("{} are left out: {}", paper.data->what, error.what()));
  }
}

/// The facts on which the numbers of cells depend: for the host, its properties; for a model, its figures.
ordered_json made_on(const Paper& paper, const machine::Machine& machine) {
  ordered_json figures = ordered_json::object();
  if (machine.kind == machine::Kind::host) {
    figures["processor"] = machine.facts.cpu;
    figures["instruction set"] = std::string(name_of(machine.figures.isa));
    figures["threads"] = machine.tiles;
  } else {
    for (const machine::Figure& figure : machine.sources) figures[figure.name] = figure.value;
  }
  return {{"file", fmt::format("tessera reproduce {}", paper.name)},
          {"schema", 1},
          {"version", TESSERA_VERSION},
          {"machine", machine.name},
          {"figures", figures}};
}

/// Makes the folder of results, and names the files that the request does not name.
std::filesystem::path prepare_folder(const Paper& paper, Request& request) {
  const std::filesystem::path folder = request.out.empty() ? std::string(paper.name) : request.out;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(fmt::format("cannot create {}: {}", folder.string(), error.message()));
  if (request.csv.empty()) request.csv = folder / fmt::format("{}.csv", paper.name);
  if (request.html.empty()) request.html = folder / fmt::format("{}.html", paper.name);
  for (const std::string& file : {request.csv, request.html}) io::require_writable(file);
  return folder;
}

/// Runs the cells that are not in the file of finished cells; adds the number of failed cells to `failed`.
Part run_cells(const Study& study, const machine::Machine& machine, const std::vector<Task>& tasks,
               const std::filesystem::path& folder, size_t& failed) {
  const bool host = machine.kind == machine::Kind::host;
  Store store(folder / fmt::format("cells-{}.jsonl", host ? "host" : machine.name),
              made_on(study.paper, machine));
  const size_t to_run = missing(tasks, store);
  fmt::print(stderr, "{}: {} of {} cells are finished; an interrupted run resumes here\n", store.file(),
             tasks.size() - to_run, tasks.size());
  {
    Bar bar(to_run);
    failed += run(study.request, machine, tasks, store, bar);
  }
  Part part{machine, {}};
  for (const Task& task : tasks)
    if (const Result* result = store.find(task.section, task.cell.name))
      part.results[{task.section, task.cell.name}] = *result;
  return part;
}

int run_study(const Paper& paper, Request request) {
  const std::vector<machine::Machine> machines = machines_of(request);
  Study study(paper, request);
  load_data(paper, machines, study.request);
  std::vector<std::vector<Task>> tasks;
  for (const machine::Machine& machine : machines) tasks.push_back(tasks_of(paper, study.request, machine));
  const std::filesystem::path folder = prepare_folder(paper, study.request);
  size_t failed = 0;
  for (size_t i = 0; i < machines.size(); ++i)
    study.parts.push_back(run_cells(study, machines[i], tasks[i], folder, failed));
  io::write_text(study.request.csv, csv(study));
  io::write_text(study.request.html, page(study));
  if (request.json) {
    fmt::print("{}", json(study));
  } else {
    for (const Figure& figure : figures_of(study)) fmt::print("{}\n", text(figure));
    fmt::print("{}Written: {}, {}\n", notes_of(study), study.request.csv, study.request.html);
  }
  return failed == 0 ? 0 : 1;
}

void add_options(CLI::App& command, const Paper& paper, Request& r) {
  const auto names = [](const std::string& text) { return parse_names(text); };
  r.machines = parse_names(std::string(paper.machines));
  if (paper.has_machines)
    add(command, "--machine", r.machines, names,
        fmt::format("A modelled machine, host (measured), or both (default: {})", paper.machines));
  add(command, "--only", r.only, names, "Sections to run and show, from the list below (default: all)");
  if (!paper.full.empty()) command.add_flag("--full", r.full, std::string(paper.full));
  if (paper.data)
    command.add_option("--data", r.data,
                       fmt::format("Folder with {}, for {} (default: TESSERA_DATA)", paper.data->contents,
                                   paper.data->what));
  if (paper.has_machines)
    add_count(command, "--threads", r.threads,
              "Number of threads of the host, or of concurrent cells of a modelled machine (default: one per "
              "physical "
              "core)",
              4096);
  if (paper.has_verification)
    command.add_flag("!--no-verify", r.verify, "Do not compare results with float64");
  const auto add_text = [&](const char* option, std::string& value, const char* help) {
    command.add_option(option, value, fmt::format(fmt::runtime(help), paper.name));
  };
  add_text("--out", r.out,
           "Folder of finished cells, from which the next run resumes, and of result files (default: {})");
  add_text("--published", r.published,
           "Folder of other published tables, with the file names of src/studies/{}/published");
  add_text("--csv", r.csv, "File for all numbers (default: {}.csv in --out)");
  add_text("--html,--report", r.html, "File for a page with charts (default: {}.html in --out)");
  command.add_flag("--json", r.json, "Print one JSON object");
}

std::string section_list(const Paper& paper) {
  std::string list = "\nSections:\n";
  for (const Section& section : paper.sections)
    list += fmt::format("  {:<10} {}\n", section.name, section.title);
  return list;
}

}  // namespace

Command add_paper_command(CLI::App& reproduce, const Paper& paper,
                          void (*add_further)(CLI::App& command, Request& request)) {
  auto request = std::make_shared<Request>();
  CLI::App& command = *reproduce.add_subcommand(std::string(paper.name), std::string(paper.about));
  add_options(command, paper, *request);
  if (add_further != nullptr) add_further(command, *request);
  command.footer(fmt::format("{}\nExamples:\n{}", section_list(paper), paper.examples));
  return [request, &paper] { return run_study(paper, *request); };
}

}  // namespace tessera::cli
