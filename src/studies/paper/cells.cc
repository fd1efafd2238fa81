#include "studies/paper/cells.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "studies/common/json.h"

namespace tessera::studies {
namespace {

using nlohmann::ordered_json;

Result result_of(const ordered_json& json) {
  Result r;
  r.fits = json.at("fits");
  r.reason = json.at("reason");
  r.values = json.at("values").get<std::map<std::string, double>>();
  r.verified = optional_of<bool>(json.at("verified"));
  r.max_rel_error = optional_of<double>(json.at("max_rel_error"));
  r.tolerance = optional_of<double>(json.at("tolerance"));
  return r;
}

std::string name_of(const Task& task) { return fmt::format("{}: {}", task.section, task.cell.name); }

/// None if it fails, which is reported.
std::optional<Result> try_to_run(const Task& task, const Setting& setting, RunProgress& progress) {
  try {
    return task.cell.run(setting);
  } catch (const Error& e) {
    progress.tell(fmt::format("{}: {}", name_of(task), e.what()));
  } catch (const std::bad_alloc&) {
    progress.tell(fmt::format("{}: out of memory; try --threads 1", name_of(task)));
  }
  return std::nullopt;
}

}  // namespace

ordered_json json_of(const std::string& section, const std::string& cell, const Result& r) {
  return {{"section", section},
          {"cell", cell},
          {"fits", r.fits},
          {"reason", r.reason},
          {"values", r.values},
          {"verified", or_null(r.verified)},
          {"max_rel_error", or_null(r.max_rel_error)},
          {"tolerance", or_null(r.tolerance)}};
}

Store::Store(std::string file, const ordered_json& made_on)
    : file_(std::move(file), made_on, [this](const ordered_json& json) {
        results_[{json.at("section"), json.at("cell")}] = result_of(json);
      }) {}

const Result* Store::find(std::string_view section, std::string_view cell) const {
  const std::lock_guard lock(mutex_);
  const auto found = results_.find({std::string(section), std::string(cell)});
  return found == results_.end() ? nullptr : &found->second;
}

void Store::add(const std::string& section, const std::string& cell, const Result& result) {
  file_.append(json_of(section, cell, result));
  const std::lock_guard lock(mutex_);
  results_[{section, cell}] = result;
}

std::vector<Task> tasks_of(const Paper& paper, const Request& request, const machine::Machine& machine) {
  std::vector<Task> tasks;
  for (const Section& section : sections_of(paper, request))
    if (section.cells != nullptr)
      for (Cell& cell : section.cells(machine, request))
        tasks.push_back({std::string(section.name), std::move(cell)});
  return tasks;
}

size_t missing(const std::vector<Task>& tasks, const Store& store) {
  return static_cast<size_t>(std::count_if(tasks.begin(), tasks.end(), [&](const Task& t) {
    return store.find(t.section, t.cell.name) == nullptr;
  }));
}

size_t run(const Request& request, const machine::Machine& machine, const std::vector<Task>& tasks,
           Store& store, Watcher& watcher) {
  std::vector<const Task*> todo;
  double all = 0;
  for (const Task& task : tasks) {
    if (store.find(task.section, task.cell.name) != nullptr) continue;
    todo.push_back(&task);
    all += task.cell.seconds;
  }
  // Longest first, so that no thread starts a long one at the end.
  std::stable_sort(todo.begin(), todo.end(),
                   [](const Task* a, const Task* b) { return a->cell.seconds > b->cell.seconds; });
  RunProgress progress(watcher, all);
  const Setting setting{machine, request.verify, request.threads};
  const auto work = [&](size_t i, const std::atomic<bool>&) {
    const Task& task = *todo[i];
    progress.begin(name_of(task));
    const std::optional<Result> result = try_to_run(task, setting, progress);
    if (result) store.add(task.section, task.cell.name, *result);
    const bool wrong = result && result->verified == false;
    if (wrong)
      progress.tell(fmt::format("{}: differs from float64 by {:.3g}, more than {:.3g}", name_of(task),
                                result->max_rel_error.value_or(0), result->tolerance.value_or(0)));
    progress.finish(task.cell.seconds, !result || wrong);
  };
  run_parallel(todo.size(), threads_for_cells(machine, request.threads), work);
  return progress.failed();
}

}  // namespace tessera::studies
