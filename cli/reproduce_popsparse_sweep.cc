#include "cli/reproduce_popsparse_sweep.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "cli/output.h"
#include "cli/progress.h"
#include "cli/spmm_runner.h"
#include "machine/host/detect.h"
#include "sparse/blocks/packed_blocks.h"

namespace tessera::cli::popsparse {
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

SpmmRequest request_of(const Request& r, const Operand& operand) {
  SpmmRequest request;
  request.m = request.k = operand.size;
  request.machines = {r.machine};
  request.modes = {operand.mode};
  request.threads = r.threads;
  request.planner = r.planner;
  return request;
}

SpmmCase case_of(const Request& r, const Cell& cell) {
  const Operand& o = cell.operand;
  const bool dense = o.mode == Mode::dense;
  SpmmCase what;
  what.machine = r.machine;
  what.mode = o.mode;
  what.precision = o.precision;
  if (!dense) what.density = o.density;
  what.block = dense ? sparse::kDenseBlockSize : o.block;
  what.n = cell.n;
  return what;
}

class SweepRun {
 public:
  SweepRun(const Request& request, const machine::Machine& machine, const Sweep& sweep, Store& store)
      : request_(request), kind_(machine.kind), store_(store), bar_(missing(sweep, store)) {
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
    bar_.clear();
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
    SpmmRequest request = request_of(request_, task.operand);
    SpmmRunner runner(request);
    std::optional<uint32_t> too_many;
    for (uint32_t n : task.columns) {
      if (stopped_) return;
      const Cell cell{task.operand, n};
      const Result* known = store_.find(cell);
      if (known == nullptr) {
        show(cell);
        request.estimate = kind_ == machine::Kind::tiled && !(request_.verify && sample_.contains(cell));
        request.verify = request_.verify && sample_.contains(cell) ? Verify::sample : Verify::none;
        finish(cell, too_many ? beyond(cell, *too_many) : run(runner, cell));
        known = store_.find(cell);
      }
      if (known != nullptr && !known->fits && !too_many) too_many = n;
    }
  }

  /// None if it fails, which is reported.
  std::optional<Result> run(SpmmRunner& runner, const Cell& cell) {
    try {
      return result_of(cell, runner.run(case_of(request_, cell)));
    } catch (const Error& e) {
      tell(fmt::format("{}: {}", name_of(cell), e.what()));
    } catch (const std::bad_alloc&) {
      tell(fmt::format("{}: out of memory; try --threads 1, or smaller sizes", name_of(cell)));
    }
    return std::nullopt;
  }

  static Result result_of(const Cell& cell, const SpmmResult& r) {
    Result result;
    result.cell = cell;
    result.fits = r.fits;
    if (!r.fits) result.reason = "it exceeds tile memory, or no plan is within the limits";
    result.nnz = r.nnz;
    result.seconds = r.seconds;
    result.cycles = r.cycles;
    result.update_seconds = r.update_seconds;
    result.steps = r.steps;
    result.tile_bytes = r.memory.max_tile_bytes;
    result.tiles_used = r.tiles_used;
    result.verified = r.verified;
    result.max_rel_error = r.max_rel_error;
    result.tolerance = r.tolerance;
    return result;
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
    bar_.show(done_, name_of(cell), all_ > 0 ? done_weight_ / all_ : 0);
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
    bar_.clear();
    complain(message);
  }

  const Request& request_;
  machine::Kind kind_;
  Store& store_;
  Progress bar_;
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

void check(const Request& request, const Sweep& sweep) {
  for (const auto& [operand, columns] : sweep) {
    const SpmmRequest asked = request_of(request, operand);
    SpmmRunner(asked).check(case_of(request, {operand, columns.front()}));
  }
}

size_t missing(const Sweep& sweep, const Store& store) {
  size_t count = 0;
  for (const auto& [operand, columns] : sweep)
    for (uint32_t n : columns) count += store.find({operand, n}) == nullptr;
  return count;
}

size_t run(const Request& request, const machine::Machine& machine, const Sweep& sweep, Store& store) {
  const bool host = machine.kind == machine::Kind::host;
  const uint32_t threads =
      request.threads != 0 ? request.threads : machine::default_threads(machine::detect_host());
  return SweepRun(request, machine, sweep, store).run(host ? 1 : threads);
}

}  // namespace tessera::cli::popsparse
