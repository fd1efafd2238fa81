#include "studies/popsparse/run.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace tessera::studies::popsparse {
namespace {

/// Relative cost of cells, for the remaining time; fitted by eye. Planning walks the blocks; measuring
/// repeats the product.
double weight_of(const Cell& cell, machine::Kind kind) {
  const Operand& o = cell.operand;
  if (kind == machine::Kind::host) return 0.4 + 1e-10 * cell.flops();
  if (o.mode == Mode::dense) return 0.1;
  const double blocks = cell.flops() / (2.0 * cell.n * o.block * o.block);
  return 0.3 + 5e-7 * blocks;
}

class SweepRun {
 public:
  SweepRun(const Request& request, const machine::Machine& machine, const Sweep& sweep, Store& store,
           const MakeRunner& make_runner, Watcher& watcher)
      : request_(request), kind_(machine.kind), store_(store), make_runner_(make_runner) {
    double all = 0;
    for (const Cell& cell : sample_of(sweep)) sample_.insert(cell);
    for (const auto& [operand, columns] : sweep) {
      Task task{operand, columns, 0};
      for (uint32_t n : columns)
        if (store.find({operand, n}) == nullptr) task.weight += weight_of({operand, n}, kind_);
      all += task.weight;
      if (task.weight > 0) tasks_.push_back(std::move(task));
    }
    // Longest first, so that no thread starts a long one at the end.
    std::stable_sort(tasks_.begin(), tasks_.end(),
                     [](const Task& a, const Task& b) { return a.weight > b.weight; });
    progress_.emplace(watcher, all);
  }

  size_t run(uint32_t threads) {
    run_parallel(tasks_.size(), threads,
                 [this](size_t t, const std::atomic<bool>& stopped) { run(tasks_[t], stopped); });
    return progress_->failed();
  }

 private:
  /// Cells of one operand, which share its matrix.
  struct Task {
    Operand operand;
    std::vector<uint32_t> columns;
    double weight = 0;
  };

  void run(const Task& task, const std::atomic<bool>& stopped) {
    const std::unique_ptr<CellRunner> runner = make_runner_(task.operand);
    std::optional<uint32_t> too_many;
    for (uint32_t n : task.columns) {
      if (stopped) return;
      const Cell cell{task.operand, n};
      const Result* known = store_.find(cell);
      if (known == nullptr) {
        progress_->begin(name_of(cell));
        finish(cell, too_many ? beyond(cell, *too_many) : run(*runner, cell));
        known = store_.find(cell);
      }
      if (known != nullptr && !known->fits && !too_many) too_many = n;
    }
  }

  /// None if it fails, which is reported.
  std::optional<Result> run(CellRunner& runner, const Cell& cell) {
    const bool verify = request_.verify && sample_.contains(cell);
    try {
      return runner.run(cell, kind_ == machine::Kind::tiled && !verify, verify);
    } catch (const Error& e) {
      progress_->tell(fmt::format("{}: {}", name_of(cell), e.what()));
    } catch (const std::bad_alloc&) {
      progress_->tell(fmt::format("{}: out of memory; try --threads 1, or smaller sizes", name_of(cell)));
    }
    return std::nullopt;
  }

  static Result beyond(const Cell& cell, uint32_t n) {
    Result result;
    result.cell = cell;
    result.fits = false;
    result.reason = fmt::format("not tried: n = {} does not fit", n);
    return result;
  }

  void finish(const Cell& cell, const std::optional<Result>& result) {
    if (result) store_.add(*result);
    if (result && result->verified == false)
      progress_->tell(fmt::format("{}: differs from float64 by {:.3g}, more than {:.3g}", name_of(cell),
                                  result->max_rel_error.value_or(0), result->tolerance.value_or(0)));
    progress_->finish(weight_of(cell, kind_), !result || result->verified == false);
  }

  const Request& request_;
  machine::Kind kind_;
  Store& store_;
  const MakeRunner& make_runner_;
  std::set<Cell> sample_;
  std::vector<Task> tasks_;
  std::optional<RunProgress> progress_;
};

}  // namespace

void check(const Sweep& sweep, const MakeRunner& make_runner) {
  for (const auto& [operand, columns] : sweep) make_runner(operand)->check({operand, columns.front()});
}

size_t missing(const Sweep& sweep, const Store& store) {
  size_t count = 0;
  for (const auto& [operand, columns] : sweep)
    for (uint32_t n : columns) count += store.find({operand, n}) == nullptr;
  return count;
}

size_t run(const Request& request, const machine::Machine& machine, const Sweep& sweep, Store& store,
           const MakeRunner& make_runner, Watcher& watcher) {
  return SweepRun(request, machine, sweep, store, make_runner, watcher)
      .run(threads_for_cells(machine, request.threads));
}

}  // namespace tessera::studies::popsparse
