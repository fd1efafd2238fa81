#include "studies/spmm/runner.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/io.h>

#include "bound/product.h"
#include "sparse/generate.h"
#include "sparse/pattern.h"

namespace tessera::studies::spmm {

SpmmRunner::SpmmRunner(const SpmmRequest& request) : request_(request) {
  if (request.weights.empty()) return;
  file_ = io::read_weights(request.weights, request.tensor);
  if (!file_->has_values) file_->matrix.values = sparse::random_values(file_->matrix.pattern, request.seed);
}

const machine::Machine& SpmmRunner::machine_of(const SpmmCase& what) {
  const std::string title = machine_title(what);
  const auto found = machines_.find(title);
  if (found != machines_.end()) return found->second;
  machine::Machine machine = machine::find(what.machine, request_.threads);
  try {
    for (const machine::Setting& setting : what.settings) machine::apply(setting, machine);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("--set for {}", e.what()));
  }
  return machines_.emplace(title, std::move(machine)).first->second;
}

/// If both modes run, dense is the baseline and keeps its own plan.
const ops::ForcedKnobs& SpmmRunner::knobs_of(const SpmmCase& what) const {
  static const ops::ForcedKnobs none;
  return what.mode != Mode::dense || request_.modes.size() == 1 ? request_.force : none;
}

void SpmmRunner::check(const SpmmCase& what) {
  const machine::Machine& machine = machine_of(what);
  if (machine.kind == machine::Kind::host && what.precision.f32_partials)
    throw UsageError("--type f16-f32 is for tiled machines; a host sums in FP32 with every type");
  if (machine.kind == machine::Kind::tiled && request_.layout != Layout::row_major)
    throw UsageError(
        fmt::format("--layout column is for host; {} spreads X and Y over its tiles", what.machine));
  bound::check(problem_of(request_, what, machine), what.block, machine, knobs_of(what),
               {request_.layout, request_.layout});
  if (what.block < 1 || what.block > sparse::kMaxBlockSize)
    throw UsageError(fmt::format("--block {}: {} takes a block size from 1 to {}", what.block, what.machine,
                                 sparse::kMaxBlockSize));
  sparse::validate_sizes(m(), k(), what.block);
}

SpmmResult SpmmRunner::failed(const SpmmCase& what, std::string why) const {
  SpmmResult result;
  result.what = what;
  result.m = m();
  result.k = k();
  result.failure = std::move(why);
  return result;
}

const SparseMatrix& SpmmRunner::matrix_of(const SpmmCase& what) {
  const auto same = [&](const SpmmCase& other) {
    return (other.mode == Mode::dense) == (what.mode == Mode::dense) && other.density == what.density &&
           other.block == what.block;
  };
  if (matrix_is_of_ && same(*matrix_is_of_)) return *matrix_;
  products_.forget_weight();
  if (what.mode == Mode::dense)
    matrix_ = generate({PatternKind::random, m(), k(), 1.0, what.block, request_.seed});
  else if (file_)
    matrix_ = what.block == 1 ? file_->matrix : cover_with_blocks(file_->matrix, what.block);
  else
    matrix_ = generate(
        {request_.pattern.value_or(PatternKind::random), m(), k(), *what.density, what.block, request_.seed});
  matrix_is_of_ = what;
  return *matrix_;
}

SpmmResult SpmmRunner::run(const SpmmCase& what) {
  const machine::Machine& machine = machine_of(what);
  const SparseMatrix& matrix = matrix_of(what);
  SpmmResult result = products_.run(request_, what, matrix, machine, knobs_of(what));
  if (file_ && what.mode != Mode::dense && file_->matrix.pattern.blocks() != 0)
    result.fill_in = static_cast<double>(result.nnz) / static_cast<double>(file_->matrix.pattern.blocks());
  compare_with_dense(what, result);
  return result;
}

/// Dense runs before the products that are compared with it.
void SpmmRunner::compare_with_dense(const SpmmCase& what, SpmmResult& result) {
  const std::tuple key{machine_title(what), what.precision, what.product, what.n};
  if (what.mode == Mode::dense && result.seconds) dense_seconds_[key] = *result.seconds;
  const auto dense = dense_seconds_.find(key);
  if (dense != dense_seconds_.end()) result.dense_seconds = dense->second;
}

}  // namespace tessera::studies::spmm
