#include "studies/popsparse/run.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "machine/host/detect.h"

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
      : request_(request), kind_(machine.kind), store_(store), make_runner_(make_runner), watcher_(watcher) {
    for (const Cell& cell : sample_of(sweep)) sample_.insert(cell);
    for (const auto& [operand, columns] : sweep) {
      Task task{operand, columns, 0};
      for (uint32_t n : columns)
        if (store.find({operand, n}) == nullptr) task.weight += weight_of({operand, n}, kind_);
      all_ += task.weight;
      if (task.weight > 0) tasks_.push_back(std::move(task));
    }
    // Longest first, so that no thread starts a long one at the end.
    std::stable_sort(tasks_.begin(), tasks_.end(),
                     [](const Task& a, const Task& b) { return a.weight > b.weight; });
  }

  size_t run(uint32_t threads) {
    {
      std::vector<std::jthread> others;
      for (uint32_t t = 1; t < threads; ++t) others.emplace_back([this] { work(); });
      work();
    }
    if (error_) std::rethrow_exception(error_);
    return failed_;
  }

 private:
  /// Cells of one operand, which share its matrix.
  struct Task {
    Operand operand;
    std::vector<uint32_t> columns;
    double weight = 0;
  };

  void work() {
    for (size_t t = next_++; t < tasks_.size() && !stopped_; t = next_++) try {
        run(tasks_[t]);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        stopped_ = true;
      }
  }

  void run(const Task& task) {
    const std::unique_ptr<CellRunner> runner = make_runner_(task.operand);
    std::optional<uint32_t> too_many;
    for (uint32_t n : task.columns) {
      if (stopped_) return;
      const Cell cell{task.operand, n};
      const Result* known = store_.find(cell);
      if (known == nullptr) {
        show(cell);
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
      tell(fmt::format("{}: {}", name_of(cell), e.what()));
    } catch (const std::bad_alloc&) {
      tell(fmt::format("{}: out of memory; try --threads 1, or smaller sizes", name_of(cell)));
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

  void show(const Cell& cell) {
    const std::lock_guard lock(mutex_);
    watcher_.progress(done_, name_of(cell), all_ > 0 ? done_weight_ / all_ : 0);
  }

  void finish(const Cell& cell, const std::optional<Result>& result) {
    if (result) store_.add(*result);
    if (result && result->verified == false)
      tell(fmt::format("{}: differs from float64 by {:.3g}, more than {:.3g}", name_of(cell),
                       result->max_rel_error.value_or(0), result->tolerance.value_or(0)));
    const std::lock_guard lock(mutex_);
    ++done_;
    done_weight_ += weight_of(cell, kind_);
    failed_ += !result || result->verified == false;
  }

  void tell(const std::string& message) {
    const std::lock_guard lock(mutex_);
    watcher_.complain(message);
  }

  const Request& request_;
  machine::Kind kind_;
  Store& store_;
  const MakeRunner& make_runner_;
  Watcher& watcher_;
  std::set<Cell> sample_;
  std::vector<Task> tasks_;
  double all_ = 0;

  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // guards the following
  size_t done_ = 0;
  double done_weight_ = 0;
  size_t failed_ = 0;
  std::exception_ptr error_;
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
  const bool host = machine.kind == machine::Kind::host;
  const uint32_t threads =
      request.threads != 0 ? request.threads : machine::default_threads(machine::detect_host());
  return SweepRun(request, machine, sweep, store, make_runner, watcher).run(host ? 1 : threads);
}

}  // namespace tessera::studies::popsparse
