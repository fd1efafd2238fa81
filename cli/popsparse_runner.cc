#include "cli/popsparse_runner.h"

#include <memory>

#include "cli/spmm_runner.h"
#include "sparse/blocks/packed_blocks.h"

namespace tessera::cli {
namespace {

using studies::popsparse::Cell;
using studies::popsparse::Operand;
using studies::popsparse::Request;
using studies::popsparse::Result;

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

Result result_of(const Cell& cell, const SpmmResult& r) {
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

class Runner : public studies::popsparse::CellRunner {
 public:
  Runner(const Request& asked, const Operand& operand)
      : asked_(asked), request_(request_of(asked, operand)), runner_(request_) {}

  void check(const Cell& cell) override { runner_.check(case_of(asked_, cell)); }

  Result run(const Cell& cell, bool estimate, bool verify) override {
    request_.estimate = estimate;
    request_.verify = verify ? Verify::sample : Verify::none;
    return result_of(cell, runner_.run(case_of(asked_, cell)));
  }

 private:
  const Request& asked_;
  SpmmRequest request_;  // before what refers to it
  SpmmRunner runner_;
};

}  // namespace

studies::popsparse::MakeRunner popsparse_runners(const Request& request) {
  return [&request](const Operand& operand) { return std::make_unique<Runner>(request, operand); };
}

}  // namespace tessera::cli
