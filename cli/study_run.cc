#include "cli/study_run.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/isa.h"
#include "cli/option_parsing.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "io/atomic_file.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

/// Shows a bar of progress on a terminal.
class Bar : public studies::Watcher {
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

/// What the numbers of cells depend on: of a host, what it is.
ordered_json made_on(std::string_view name, const machine::Machine& machine, const ordered_json& settings) {
  ordered_json what = {{"file", fmt::format("tessera reproduce {}", name)},
                       {"schema", 1},
                       {"version", TESSERA_VERSION},
                       {"machine", machine.name}};
  what.update(settings);
  ordered_json& figures = what["figures"] = ordered_json::object();
  if (machine.kind == machine::Kind::host) {
    figures["processor"] = machine.facts.cpu;
    figures["instruction set"] = std::string(name_of(machine.figures.isa));
    figures["threads"] = machine.tiles;
  } else {
    for (const machine::Figure& figure : machine.sources) figures[figure.name] = figure.value;
  }
  return what;
}

}  // namespace

void add_study_options(CLI::App& command, const StudyWords& words, studies::Request& r) {
  add_count(command, "--threads", r.threads,
            "Threads of a host; concurrent cells of a modelled machine (default: one per physical core)",
            4096);
  command.add_flag("!--no-verify", r.verify, std::string(words.no_verify));
  command.add_option(
      "--out", r.out,
      fmt::format("Folder of finished cells, from which the next run resumes, and of the files "
                  "below (default: {})",
                  words.folder));
  command.add_option(
      "--published", r.published,
      fmt::format("Folder of other published tables, by the names of those in src/studies/{}/published",
                  words.name));
  command.add_option("--csv", r.csv,
                     fmt::format("File for {} (default: {}.csv in that folder)", words.csv, words.name));
  command.add_option("--html", r.html,
                     fmt::format("File for {} (default: {}.html in that folder)", words.page, words.name));
  command.add_flag("--json", r.json, "Print one JSON object");
}

std::filesystem::path prepare_folder(std::string_view name, const std::string& default_folder,
                                     studies::Request& request) {
  const std::filesystem::path folder = request.out.empty() ? default_folder : request.out;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(fmt::format("cannot create {}: {}", folder.string(), error.message()));
  if (request.csv.empty()) request.csv = folder / fmt::format("{}.csv", name);
  if (request.html.empty()) request.html = folder / fmt::format("{}.html", name);
  for (const std::string& file : {request.csv, request.html}) io::require_writable(file);
  return folder;
}

studies::Part run_cells(std::string_view name, const studies::Request& request,
                        const machine::Machine& machine, const std::vector<studies::Task>& tasks,
                        const std::filesystem::path& file, const nlohmann::ordered_json& settings,
                        size_t& failed) {
  studies::Store store(file, made_on(name, machine, settings));
  const size_t to_run = missing(tasks, store);
  fmt::print(stderr, "{}: {} of {} cells are finished; an interrupted run resumes here\n", store.file(),
             tasks.size() - to_run, tasks.size());
  {
    Bar bar(to_run);
    failed += studies::run(request, machine, tasks, store, bar);
  }
  studies::Part part{machine, {}};
  for (const studies::Task& task : tasks)
    if (const studies::Result* result = store.find(task.section, task.cell.name))
      part.results[{task.section, task.cell.name}] = *result;
  return part;
}

void print(const studies::Request& request, const std::vector<studies::Figure>& figures,
           const std::string& notes) {
  for (const studies::Figure& figure : figures) fmt::print("{}\n", text(figure));
  fmt::print("{}Written: {}, {}\n", notes, request.csv, request.html);
}

}  // namespace tessera::cli
