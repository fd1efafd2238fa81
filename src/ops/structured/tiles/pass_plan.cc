#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>

#include "base/ceil_divide.h"
#include "compiler/compile.h"
#include "kernels/tile/kronecker/cost.h"
#include "ops/structured/tiles/pass_grid.h"
#include "ops/tiles/expected.h"
#include "program/cycles.h"

namespace tessera::ops {
namespace {

using base::ceil_divide;
using machine::Machine;
using program::Role;

// Least number of outputs in a part of a group, if the group has more.
constexpr uint32_t kLeastOutputs = 4;

void check(const TilePassProblem& p, const Machine& m) {
  const TilePass& pass = p.pass;
  if (m.kind != machine::Kind::tiled)
    throw UsageError(fmt::format("passes of structured maps run on tiled machines, not on '{}'", m.name));
  if (pass.a == 0 || pass.b == 0 || pass.c == 0 || pass.d == 0 || p.n == 0)
    throw UsageError(fmt::format("a pass of ({}, {}, {}, {}) and {} samples is empty", pass.a, pass.b, pass.c,
                                 pass.d, p.n));
  if (pass.levels > 0 && (pass.levels > 16 || pass.b != 1U << pass.levels || pass.c != pass.b))
    throw UsageError(fmt::format("{} butterfly factors need groups of 2^{} features, not {} × {}",
                                 pass.levels, pass.levels, pass.b, pass.c));
  if (pass.width != 1 && (pass.width != 2 || pass.levels == 0))
    throw UsageError(fmt::format(
        "features of {} numbers are not possible; features of butterflies have 1 or 2", pass.width));
  if (p.numbers.operands != Type::f32 && p.numbers.operands != Type::f16)
    throw UsageError(
        fmt::format("passes on tiles compute with f32 or f16, not {}", tessera::name_of(p.numbers.operands)));
  const bool is_whole = p.product == TilePassProduct::gradients;
  if (p.product != TilePassProduct::forward && is_whole != (pass.levels > 0))
    throw UsageError("of butterfly factors both gradients are computed together, of others by themselves");
}

/// Expected cycles of a partition, from the largest part.
class PassEstimate {
 public:
  PassEstimate(const TilePassProblem& p, const TilePassPartition& partition, const Machine& m)
      : p_(p),
        pass_(p.pass),
        partition_(partition),
        m_(m),
        groups_(ceil_divide(p.pass.groups(), partition.group_parts)),
        columns_(ceil_divide(p.n, partition.n_parts)),
        outputs_(ceil_divide(TilePassGrid::divided(p), partition.output_parts)) {}

  Expected<TilePassPartition> all() const {
    program::PhaseTimes cycles;
    cycles[program::Phase::compute] = compute() + program::superstep_cycles(m_, partition_.tiles());
    const double size = static_cast<double>(size_of(p_.numbers.operands));
    const double in = size * groups_ * columns_ * read(), out = size * groups_ * columns_ * written();
    const double weights = size * groups_ * pass_.weights() / partition_.output_parts;
    const double shared = partition_.n_parts > 1 ? weights : 0;
    double moved = in + out + (p_.reads_weight() ? shared : 0);
    if (partition_.n_parts > 1 && p_.gives_dweight()) {
      moved += weights;
      const double owned = weights / size / partition_.n_parts;
      cycles[program::Phase::reduce] = reduce_cycles(m_, p_.numbers, partition_.n_parts, std::ceil(owned)) +
                                       program::superstep_cycles(m_, partition_.tiles());
    }
    const double transfers = m_.exchange_transfer_cycles * groups_ * read();
    add_exchange(m_, moved / m_.exchange_bytes_per_cycle + transfers, cycles);
    add_exchange(m_, 0, cycles);
    const double bytes = 2 * in + 2 * out + 2 * weights;
    return {partition_, cycles, bytes};
  }

 private:
  kernels::ButterflyPassSize butterfly() const { return {groups_, pass_.levels, pass_.width}; }
  /// Rows of a group that a tile reads and writes.
  double read() const { return pass_.width * features_read(); }
  double features_read() const {
    switch (p_.product) {
      case TilePassProduct::forward: return pass_.c;
      case TilePassProduct::input_gradient: return pass_.b;
      case TilePassProduct::weight_gradient: return outputs_ + pass_.c;
      default: return pass_.b + pass_.c + (pass_.levels - 1.0) * pass_.c;
    }
  }
  double written() const {
    if (p_.product == TilePassProduct::weight_gradient) return 0;
    return pass_.width * (p_.product == TilePassProduct::gradients ? pass_.c : outputs_);
  }

  double compute() const {
    const Type type = p_.numbers.operands;
    switch (p_.product) {
      case TilePassProduct::forward:
        return pass_.levels > 0
                   ? kernels::butterfly_pass_cycles(m_, type, butterfly(), columns_)
                   : kernels::kronecker_product_cycles(m_, type, groups_, outputs_, pass_.c, columns_, false);
      case TilePassProduct::input_gradient:
        return kernels::kronecker_product_cycles(m_, type, groups_, outputs_, pass_.b, columns_, true);
      case TilePassProduct::weight_gradient:
        return kernels::kronecker_weight_gradient_cycles(m_, type, groups_, outputs_, pass_.c, columns_);
      default: return kernels::butterfly_pass_gradients_cycles(m_, type, butterfly(), columns_);
    }
  }

  const TilePassProblem& p_;
  const TilePass& pass_;
  const TilePassPartition& partition_;
  const Machine& m_;
  uint32_t groups_;
  uint32_t columns_;
  uint32_t outputs_;
};

std::vector<Expected<TilePassPartition>> partitions(const TilePassProblem& p, const Machine& m) {
  std::vector<Expected<TilePassPartition>> all;
  for (const uint32_t group_parts : part_counts(p.pass.groups(), m.tiles))
    for (const uint32_t n_parts : part_counts(p.n, m.tiles / group_parts)) {
      const bool divides = group_parts == p.pass.groups() && p.pass.levels == 0;
      const uint32_t most = divides ? std::max(1U, TilePassGrid::divided(p) / kLeastOutputs) : 1;
      for (const uint32_t output_parts : part_counts(most, m.tiles / group_parts / n_parts)) {
        const TilePassPartition partition{group_parts, n_parts, output_parts};
        all.push_back(PassEstimate(p, partition, m).all());
      }
    }
  const auto capacity = static_cast<double>(m.tile_bytes);
  std::ranges::stable_sort(all, [&](const auto& a, const auto& b) {
    const bool a_fits = a.bytes <= capacity, b_fits = b.bytes <= capacity;
    return a_fits != b_fits ? a_fits : a.cycles.total() < b.cycles.total();
  });
  return all;
}

/// The pass between matrices that are spread over all tiles, with weights on the tiles that use them.
compiler::Estimate count(const TilePassProblem& p, const TilePassPartition& partition, const Machine& m) {
  program::Program program;
  const Builder b(program, m);
  const Type type = p.numbers.operands;
  const auto features = [&](const char* name, Role role, uint32_t rows) {
    return FeatureOperand{b.external(name, role, type, rows, p.n), {}};
  };
  const auto weights = [&](const char* name, Role role) {
    return b.external(name, role, type, 1, p.pass.all_weights(), pass_weight_mapping(p, partition),
                      role == Role::input ? program::Purpose::parameter : program::Purpose::gradient);
  };
  TilePassOperands o;
  if (p.reads_weight()) o.weight = weights("weight", Role::input);
  if (p.reads_x()) o.x = features("x", Role::input, p.pass.inputs());
  o.y = features("y", p.is_forward() ? Role::output : Role::input, p.pass.outputs());
  if (p.gives_dx()) o.dx = features("dx", Role::output, p.pass.inputs());
  if (p.gives_dweight()) o.dweight = weights("dweight", Role::output);
  program.set_main(build_tile_pass(b, p, partition, o));
  return compiler::estimate(program, m);
}

}  // namespace

std::string to_string(const TilePassPartition& p) {
  return fmt::format("{} parts of groups × {} of columns × {} of outputs", p.group_parts, p.n_parts,
                     p.output_parts);
}

TilePassPlan plan_tile_pass(const TilePassProblem& problem, const Machine& machine) {
  check(problem, machine);
  TilePassPlan plan;
  std::vector<TilePassPartition> counted;
  bool fits = false;
  for (const Expected<TilePassPartition>& expected : partitions(problem, machine)) {
    if (counted.size() >= (fits ? kRecounted : kMostRecounted)) break;
    const compiler::Estimate exact = count(problem, expected.partition, machine);
    fits = fits || exact.memory.fits();
    counted.push_back(expected.partition);
    plan.candidates.push_back({to_string(expected.partition), exact.cycles.scaled(1 / machine.clock_hz),
                               exact.memory.max_tile_bytes,
                               exact.memory.fits() ? "" : compiler::overflow_text(exact.memory)});
  }
  const size_t best = choose_fastest(plan.candidates);
  plan.partition = counted[best];
  plan.chosen = plan.candidates[best];
  return plan;
}

}  // namespace tessera::ops
