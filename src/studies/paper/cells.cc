#include "studies/paper/cells.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "base/parallel.h"
#include "machine/host/detect.h"

namespace tessera::studies {
namespace {

std::string cells_name_of(const Task& task) {
  return task.section.empty() ? task.cell.name : fmt::format("{}: {}", task.section, task.cell.name);
}

/// The tasks of a series, or a single one.
struct Series {
  std::vector<const Task*> tasks{};
  double seconds = 0;  ///< of the tasks that the store lacks

  bool takes(const Task& task) const {
    return !task.cell.series.empty() && tasks.front()->cell.series == task.cell.series;
  }
};

/// The series that the store lacks, longest first, so that no thread starts a long one at the end.
std::vector<Series> series_of(const std::vector<Task>& tasks, const Store& store) {
  std::vector<Series> all;
  for (const Task& task : tasks) {
    if (all.empty() || !all.back().takes(task)) all.emplace_back();
    all.back().tasks.push_back(&task);
    if (store.find(task.section, task.cell.name) == nullptr) all.back().seconds += task.cell.seconds;
  }
  std::erase_if(all, [](const Series& series) { return series.seconds == 0; });
  std::stable_sort(all.begin(), all.end(),
                   [](const Series& a, const Series& b) { return a.seconds > b.seconds; });
  return all;
}

class Run {
 public:
  Run(const Request& request, const machine::Machine& machine, const std::vector<Task>& tasks, Store& store,
      Watcher& watcher)
      : setting_{machine, request.verify, request.threads},
        store_(store),
        todo_(series_of(tasks, store)),
        seconds_(std::accumulate(todo_.begin(), todo_.end(), 0.0,
                                 [](double sum, const Series& s) { return sum + s.seconds; })),
        watcher_(watcher) {}

  size_t operator()() {
    base::run_parallel(todo_.size(), threads(),
                       [this](size_t i, const std::atomic<bool>& stopped) { run(todo_[i], stopped); });
    return failed_;
  }

 private:
  /// Several for modelled machines, one for measurements.
  uint32_t threads() const {
    if (setting_.on_host()) return 1;
    return setting_.threads != 0 ? setting_.threads : machine::default_threads(machine::detect_host());
  }

  void run(const Series& series, const std::atomic<bool>& stopped) {
    std::shared_ptr<void> shared;
    Setting setting = setting_;
    setting.shared = &shared;
    std::string too_large;
    for (const Task* task : series.tasks) {
      if (stopped) return;
      const Result* result = store_.find(task->section, task->cell.name);
      if (result == nullptr) result = run(*task, setting, too_large);
      if (result != nullptr && !result->fits && too_large.empty()) too_large = task->cell.extent;
    }
  }

  /// Null if it fails, which is reported.
  const Result* run(const Task& task, const Setting& setting, const std::string& too_large) {
    begin(cells_name_of(task));
    std::optional<Result> result;
    if (too_large.empty())
      result = try_to_run(task, setting);
    else
      result = Result{.fits = false, .reason = fmt::format("not tried: {} does not fit", too_large)};
    if (result) store_.add(task.section, task.cell.name, *result);
    const bool wrong = result && result->verified == false;
    if (wrong)
      tell(fmt::format("{}: differs from float64 by {:.3g}, more than {:.3g}", cells_name_of(task),
                       result->max_rel_error.value_or(0), result->tolerance.value_or(0)));
    finish(task.cell.seconds, !result || wrong);
    return store_.find(task.section, task.cell.name);
  }

  std::optional<Result> try_to_run(const Task& task, const Setting& setting) {
    try {
      return task.cell.run(setting);
    } catch (const Error& e) {
      tell(fmt::format("{}: {}", cells_name_of(task), e.what()));
    } catch (const std::bad_alloc&) {
      tell(fmt::format("{}: out of memory; try --threads 1", cells_name_of(task)));
    }
    return std::nullopt;
  }

  void begin(const std::string& cell) {
    const std::lock_guard lock(mutex_);
    watcher_.progress(done_, cell, seconds_ > 0 ? done_seconds_ / seconds_ : 0);
  }
  void finish(double seconds, bool failed) {
    const std::lock_guard lock(mutex_);
    ++done_;
    done_seconds_ += seconds;
    failed_ += failed;
  }
  void tell(const std::string& message) {
    const std::lock_guard lock(mutex_);
    watcher_.complain(message);
  }

  const Setting setting_;
  Store& store_;
  const std::vector<Series> todo_;
  const double seconds_;
  std::mutex mutex_;  // guards the following
  Watcher& watcher_;
  size_t done_ = 0;
  double done_seconds_ = 0;
  size_t failed_ = 0;
};

}  // namespace

std::vector<Task> tasks_of(const Paper& paper, const Request& request, const machine::Machine& machine) {
  std::set<std::string_view> needed;
  for (const Section& section : sections_of(paper, request)) needed.insert({section.name, section.reads});
  std::vector<Task> tasks;
  for (const Section& section : paper.sections)
    if (section.cells != nullptr && needed.contains(section.name))
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
  return Run(request, machine, tasks, store, watcher)();
}

}  // namespace tessera::studies
