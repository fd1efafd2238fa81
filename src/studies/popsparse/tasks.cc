#include "studies/popsparse/tasks.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "sparse/blocks/packed_blocks.h"
#include "studies/paper/product_cell.h"
#include "studies/spmm/runner.h"

namespace tessera::studies::popsparse {
namespace {

using spmm::SpmmCase;
using spmm::SpmmRequest;
using spmm::SpmmResult;
using spmm::SpmmRunner;
using spmm::Verify;

SpmmRequest request_of(const Request& r, const Operand& operand) {
  SpmmRequest request;
  request.m = request.k = operand.size;
  request.machines = r.machines;
  request.modes = {operand.mode};
  request.threads = r.threads;
  request.planner = r.planner;
  return request;
}

SpmmCase case_of(const Request& r, const Cell& cell) {
  const Operand& o = cell.operand;
  const bool dense = o.mode == Mode::dense;
  SpmmCase what;
  what.machine = r.machine();
  what.mode = o.mode;
  what.precision = o.precision;
  if (!dense) what.density = o.density;
  what.block = dense ? sparse::kDenseBlockSize : o.block;
  what.n = cell.n;
  return what;
}

Result result_of(const SpmmResult& r) {
  Result result = studies::result_of(r);
  const auto enter = [&](const char* name, const auto& value) {
    if (value) result.values[name] = static_cast<double>(*value);
  };
  enter("nnz", std::optional(r.nnz));
  enter("update_seconds", r.update_seconds);
  enter("steps", r.steps);
  enter("tile_bytes", std::optional(r.memory.max_tile_bytes));
  enter("tiles_used", std::optional(r.tiles_used));
  if (r.seconds && *r.seconds > 0)
    result.values["tflops"] = 2e-12 * static_cast<double>(r.nnz) * r.what.n / *r.seconds;
  return result;
}

/// Runs the cells of one operand, which share its matrix.
struct Runner {
  explicit Runner(SpmmRequest of) : request(std::move(of)), runner(request) {}

  SpmmRequest request;  // before what refers to it
  SpmmRunner runner;
};

Result run(const Request& r, const Cell& cell, bool verify, const Setting& setting) {
  if (*setting.shared == nullptr) *setting.shared = std::make_shared<Runner>(request_of(r, cell.operand));
  auto& [request, runner] = *static_cast<Runner*>(setting.shared->get());
  request.verify = verify ? Verify::sample : Verify::none;
  request.estimate = !setting.on_host() && !verify;
  try {
    return result_of(runner.run(case_of(r, cell)));
  } catch (const std::bad_alloc&) {
    throw Error("out of memory; try --threads 1, or smaller sizes");
  }
}

/// Relative cost of cells, for the remaining time; fitted by eye. Planning walks the blocks; measuring
/// repeats the product.
double seconds_of(const Cell& cell, machine::Kind kind) {
  const Operand& o = cell.operand;
  if (kind == machine::Kind::host) return 0.4 + 1e-10 * cell.flops();
  if (o.mode == Mode::dense) return 0.1;
  const double blocks = cell.flops() / (2.0 * cell.n * o.block * o.block);
  return 0.3 + 5e-7 * blocks;
}

}  // namespace

void check(const Sweep& sweep, const Request& request) {
  for (const auto& [operand, columns] : sweep)
    Runner(request_of(request, operand)).runner.check(case_of(request, {operand, columns.front()}));
}

std::vector<Task> tasks_of(const Sweep& sweep, const Request& request, machine::Kind kind) {
  const std::vector<Cell> sample = sample_of(sweep);
  std::vector<Task> tasks;
  for (const auto& [operand, columns] : sweep)
    for (uint32_t n : columns) {
      const Cell cell{operand, n};
      const bool verify = request.verify && std::ranges::find(sample, cell) != sample.end();
      tasks.push_back({"",
                       {.name = name_of(cell),
                        .seconds = seconds_of(cell, kind),
                        .run = [=, &request](const Setting& s) { return run(request, cell, verify, s); },
                        .series = name_of(operand),
                        .extent = fmt::format("n = {}", n)}});
    }
  return tasks;
}

}  // namespace tessera::studies::popsparse
