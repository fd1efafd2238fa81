#include "kernels/map/optimizer/codelet.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/map/optimizer/optimizer.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

/// The single number of a field of 1 × 1.
template <class T>
T scalar_of(const FieldView& field) {
  return static_cast<T>(number_at(field, 0, 0));
}

/// A step with a learning rate of NaN is left out: nothing changes.
bool is_left_out(const FieldView& lr) { return std::isnan(scalar_of<float>(lr)); }

/// Calls visit(row, column, at) for each element, where at(field) is a field's number there.
template <class Visit>
void for_each_element(const FieldView& like, const Visit& visit) {
  for (uint32_t r = 0; r < like.rows; ++r)
    for (uint32_t c = 0; c < like.cols; ++c)
      visit(r, c, [&](const FieldView& field) { return f32_at(field, r, c); });
}

SgdStep sgd_of(const Vertex& v) {
  return {.lr = scalar_of<float>(v.fields[sgd_field::lr]), .decay = float_of(v.params[sgd_param::decay])};
}

void sgd_reference(const Vertex& v) {
  if (is_left_out(v.fields[sgd_field::lr])) return;
  const SgdStep step = sgd_of(v);
  const FieldView& weight = v.fields[sgd_field::weight];
  for_each_element(weight, [&](uint32_t r, uint32_t c, const auto& at) {
    const float g = std::fma(step.decay, at(weight), at(v.fields[sgd_field::gradient]));
    set_number(weight, r, c, std::fma(-step.lr, g, at(weight)));
  });
}

SgdStep momentum_of(const Vertex& v) {
  const auto lr = scalar_of<float>(v.fields[momentum_field::lr]);
  const bool in_velocity = v.params[momentum_param::lr_in_velocity] != 0;
  return {.lr = in_velocity ? 1 : lr,
          .gradient_scale = in_velocity ? lr : 1,
          .decay = float_of(v.params[momentum_param::decay]),
          .momentum = float_of(v.params[momentum_param::momentum]),
          .nesterov = v.params[momentum_param::nesterov] != 0};
}

void momentum_reference(const Vertex& v) {
  if (is_left_out(v.fields[momentum_field::lr])) return;
  const SgdStep step = momentum_of(v);
  const FieldView& velocity = v.fields[momentum_field::velocity];
  const FieldView& weight = v.fields[momentum_field::weight];
  for_each_element(weight, [&](uint32_t r, uint32_t c, const auto& at) {
    const float g =
        step.gradient_scale * std::fma(step.decay, at(weight), at(v.fields[momentum_field::gradient]));
    const float moved = std::fma(step.momentum, at(velocity), g);
    set_number(velocity, r, c, moved);
    const float direction = step.nesterov ? std::fma(step.momentum, moved, g) : moved;
    set_number(weight, r, c, std::fma(-step.lr, direction, at(weight)));
  });
}

AdamStep adam_of(const Vertex& v) {
  using namespace adam_param;
  return adam_step(scalar_of<float>(v.fields[adam_field::lr]),
                   scalar_of<uint32_t>(v.fields[adam_field::step]),
                   {.beta1 = float_of(v.params[beta1]),
                    .beta2 = float_of(v.params[beta2]),
                    .epsilon = float_of(v.params[epsilon]),
                    .decay = float_of(v.params[decay]),
                    .decoupled = v.params[decoupled] != 0,
                    .bias_correction = v.params[bias_correction] != 0});
}

AdamStep adam_direction_of(const Vertex& v) {
  using namespace adam_direction_param;
  return adam_direction_step(scalar_of<uint32_t>(v.fields[adam_direction_field::step]),
                             {.beta1 = float_of(v.params[beta1]),
                              .beta2 = float_of(v.params[beta2]),
                              .epsilon = float_of(v.params[epsilon]),
                              .decay = float_of(v.params[decay]),
                              .bias_correction = v.params[bias_correction] != 0});
}

/// Gradient, moments, weight, and what is computed.
using AdamFields = std::array<FieldView, 5>;

AdamFields adam_fields_of(const Vertex& v) {
  using namespace adam_field;
  return {v.fields[gradient], v.fields[first_moment], v.fields[second_moment], v.fields[weight],
          v.fields[weight]};
}

AdamFields adam_direction_fields_of(const Vertex& v) {
  using namespace adam_direction_field;
  return {v.fields[gradient], v.fields[first_moment], v.fields[second_moment], v.fields[weight],
          v.fields[direction]};
}

void apply_adam_reference(const AdamStep& step, const AdamFields& fields) {
  const FieldView &gradient = fields[0], &first = fields[1], &second = fields[2], &weight = fields[3],
                  &target = fields[4];
  for_each_element(weight, [&](uint32_t r, uint32_t c, const auto& at) {
    const float g = std::fma(step.gradient_decay, at(weight), at(gradient));
    const float mean = std::fma(step.from_gradient, g - at(first), at(first));
    const float square = std::fma(step.beta2, at(second), step.from_square * (g * g));
    set_number(first, r, c, mean);
    set_number(second, r, c, square);
    const float direction = mean / std::fma(step.second_scale, std::sqrt(square), step.epsilon);
    set_number(target, r, c, std::fma(-step.lr, direction, step.keep * at(weight)));
  });
}

void adam_reference(const Vertex& v) {
  if (!is_left_out(v.fields[adam_field::lr])) apply_adam_reference(adam_of(v), adam_fields_of(v));
}

/// Whether a direction was set to 0 because its step is left out.
bool leaves_out_direction(const Vertex& v) {
  if (!is_left_out(v.fields[adam_direction_field::lr])) return false;
  const FieldView& direction = v.fields[adam_direction_field::direction];
  for_each_element(direction, [&](uint32_t r, uint32_t c, const auto&) { set_number(direction, r, c, 0); });
  return true;
}

void adam_direction_reference(const Vertex& v) {
  if (!leaves_out_direction(v)) apply_adam_reference(adam_direction_of(v), adam_direction_fields_of(v));
}

/// Makes the rows of all matrices contiguous, if need be as columns of their transposes. False if that is not
/// possible.
template <size_t N>
bool make_rows_contiguous(std::array<FieldView, N>& fields) {
  if (std::all_of(fields.begin(), fields.end(), has_contiguous_rows)) return true;
  for (FieldView& field : fields) field = transposed(field);
  return std::all_of(fields.begin(), fields.end(), has_contiguous_rows);
}

void sgd_simd(const Vertex& v) {
  std::array fields = {v.fields[sgd_field::gradient], v.fields[sgd_field::weight]};
  if (fields[0].empty() || is_left_out(v.fields[sgd_field::lr])) return;
  if (!make_rows_contiguous(fields)) return sgd_reference(v);
  apply_sgd(sgd_of(v), fields[0], {}, fields[1]);
}

void momentum_simd(const Vertex& v) {
  using namespace momentum_field;
  std::array fields = {v.fields[gradient], v.fields[velocity], v.fields[weight]};
  if (fields[0].empty() || is_left_out(v.fields[lr])) return;
  if (!make_rows_contiguous(fields)) return momentum_reference(v);
  apply_sgd(momentum_of(v), fields[0], fields[1], fields[2]);
}

void apply_adam(const AdamStep& step, AdamFields fields) {
  if (fields[0].empty()) return;
  if (!make_rows_contiguous(fields)) return apply_adam_reference(step, fields);
  apply_adam(step, fields[0], fields[1], fields[2], fields[3], fields[4]);
}

void adam_simd(const Vertex& v) {
  if (!is_left_out(v.fields[adam_field::lr])) apply_adam(adam_of(v), adam_fields_of(v));
}
void adam_direction_simd(const Vertex& v) {
  if (!leaves_out_direction(v)) apply_adam(adam_direction_of(v), adam_direction_fields_of(v));
}

// Vector operations per element on a host; most of Adam's are its division and square root.
constexpr double kHostSgdOperations = 2;
constexpr double kHostMomentumOperations = 4;
constexpr double kHostAdamOperations = 18;
// Cycles on a tile, W = workers: 11 + W(29 + the cycles of each vector), from PopLibs' elementwise
// operations. Per vector, estimates: 3 for each addition or product of a pair of operands, of which scaled
// additions are two; 10 each for Adam's root and division.
constexpr double kTileSupervisorCycles = 11;
constexpr double kTileWorkerCycles = 29;
constexpr double kTileSgdCycles = 6;
constexpr double kTileMomentumCycles = 9;
constexpr double kTileAdamCycles = 42;
// Estimated cycles of Adam's bias corrections in software: two powers and a root.
constexpr double kTileCorrectionCycles = 1500;

// Bytes that an update reads and writes.
struct Traffic {
  double read = 0, written = 0;
};

// All but the first field and the scalars are read and written.
Traffic in_place(const Vertex& v) {
  const uint64_t elements = v.fields.back().elements();
  double state = 0;
  for (const FieldView& field : v.fields.subspan(1))
    if (field.elements() == elements) state += bytes_of(field);
  return {bytes_of(v.fields.front()) + state, state};
}

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m, const FieldView& weight, Traffic traffic,
                         double host_operations, double vector_cycles) {
  const auto elements = static_cast<double>(weight.elements());
  if (m.kind == machine::Kind::host) {
    const double conversions = widen_operations(v.fields.front().type) + widen_operations(weight.type) +
                               round_operations(weight.type);
    return in_phase(Phase::compute, host_cycles(m, {traffic.read, traffic.written,
                                                    (host_operations + conversions) * elements}));
  }
  Type widest = weight.type;
  for (const FieldView& field : v.fields.subspan(1))
    if (field.type == Type::f32) widest = Type::f32;
  const double vectors = std::ceil(worker_slice(m, elements) / tile_vector_width(widest));
  return in_phase(Phase::compute,
                  kTileSupervisorCycles + m.workers_per_tile * (kTileWorkerCycles + vector_cycles * vectors));
}

program::PhaseTimes cost_of_adam(const Vertex& v, const machine::Machine& m, const FieldView& weight,
                                 Traffic traffic) {
  program::PhaseTimes times = cost(v, m, weight, traffic, kHostAdamOperations, kTileAdamCycles);
  if (m.kind != machine::Kind::host) times[Phase::compute] += kTileCorrectionCycles;
  return times;
}

program::PhaseTimes sgd_cost(const Vertex& v, const machine::Machine& m) {
  return cost(v, m, v.fields.back(), in_place(v), kHostSgdOperations, kTileSgdCycles);
}
program::PhaseTimes momentum_cost(const Vertex& v, const machine::Machine& m) {
  return cost(v, m, v.fields.back(), in_place(v), kHostMomentumOperations, kTileMomentumCycles);
}
program::PhaseTimes adam_cost(const Vertex& v, const machine::Machine& m) {
  return cost_of_adam(v, m, v.fields.back(), in_place(v));
}
program::PhaseTimes adam_direction_cost(const Vertex& v, const machine::Machine& m) {
  using namespace adam_direction_field;
  const double moments = bytes_of(v.fields[first_moment]) + bytes_of(v.fields[second_moment]);
  return cost_of_adam(v, m, v.fields[weight],
                      {bytes_of(v.fields[gradient]) + bytes_of(v.fields[weight]) + moments,
                       moments + bytes_of(v.fields[direction])});
}

}  // namespace

TESSERA_DEFINE_FAMILY(optimizer, TESSERA_OPTIMIZER_CODELETS, TESSERA_CODELET)

}  // namespace tessera::kernels
