// A value in another type.
#include "ops/map/cast.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <array>
#include <string_view>
#include <utility>

#include "base/integer_types.h"
#include "base/names.h"
#include "graph/substream.h"
#include "kernels/map/cast/cast.h"
#include "lower/lowering.h"
#include "operations/constants.h"
#include "operations/dropout.h"
#include "operations/list.h"
#include "operations/update.h"

namespace tessera::graph {
namespace {

Type cast_type_of(const Node& node) {
  const std::string name = node.text("type");
  for (Type type : {Type::f32, Type::f16, Type::bf16, Type::u32, Type::i32})
    if (name == name_of(type)) return type;
  throw UsageError(fmt::format("cast: unknown type '{}' (choose from f32, f16, bf16, u32, i32)", name));
}

/// Pixels become numbers by casts alone.
bool is_pixels(const TensorType& type) { return type.type == Type::u8; }

/// The attribute "rounding". Stochastic rounding has a step as second input, and attributes "seed" and
/// "stream"; if it is "shared", 1, replicas, micro-batches and calls draw the same.
bool is_stochastic(const Node& node) {
  constexpr std::array<std::string_view, 2> kRoundingNames = {"nearest", "stochastic"};
  return base::position_of(kRoundingNames, node.text("rounding", "nearest"), "rounding of a cast") == 1;
}

bool is_shared(const Node& node) { return node.integer("shared", 0) != 0; }

bool draws_in_substreams(const Node& node) { return is_stochastic(node) && !is_shared(node); }

void require_stochastic(const Signature& s, Type to) {
  require_float(s, s.inputs[0]);
  if (to != Type::f16 && to != Type::bf16)
    throw UsageError(
        fmt::format("cast: to {} nothing is rounded stochastically: only f16 and bf16", name_of(to)));
  if (s.inputs.size() < 2) throw UsageError("cast: stochastic rounding takes the step as its second input");
  require_step(s, s.inputs[1]);
  seed_of(s.attributes);
  stream_of(s.attributes);
}

Types infer_cast(const Signature& s) {
  if (!is_pixels(s.inputs[0])) require_number(s, s.inputs[0]);
  TensorType out = s.inputs[0];
  out.type = cast_type_of(s.attributes);
  if (is_stochastic(s.attributes))
    require_stochastic(s, out.type);
  else if (s.inputs.size() > 1)
    throw UsageError("cast: only stochastic rounding takes a step");
  return {out};
}

/// Casts from or to integers have no gradient.
Gradients cast_gradient(const Differentiation& d) {
  Gradients gradients(d.node.inputs.size());
  const Type from = d.input(0).type().type;
  if (!is_integer(from) && !is_integer(d.dy[0]->type().type)) gradients[0] = cast(*d.dy[0], from);
  return gradients;
}

/// The reference does not round, which also is the mean of stochastic rounding.
std::vector<Array> cast_reference(const Evaluation& e) {
  Array y = *e.inputs[0];
  for (double& x : y) x = kernels::converted(e.input_type(0).type, e.output_type(0).type, x);
  return {y};
}

void lower_stochastic(Lowering& l, const Node& node) {
  const ops::Operand step = is_shared(node) ? l.input(1) : l.with_substream(1);
  const auto round = [&](const ops::Operand& in, const ops::Operand& out,
                         const kernels::ElementOrder& order) {
    l.add(ops::StochasticCastProblem{.from = l.builder().type_of(in),
                                     .to = l.builder().type_of(out),
                                     .rows = in.rows(),
                                     .cols = in.cols(),
                                     .order = order,
                                     .seed = seed_of(node),
                                     .operation = stream_of(node),
                                     .substream_words = is_shared(node) ? 0 : l.substream_words()},
          {in, step, out});
  };
  const ops::Operand in = l.input(0);
  // The values of a sparse weight are numbered as they are stored.
  if (const auto order = l.operand_layout(l.graph().type(node.inputs[0]), l.input_layout(0)).order())
    return round(in, l.output(0), *order);
  const TensorType &from = l.graph().type(node.inputs[0]), &to = l.graph().type(node.outputs[0]);
  std::vector<program::StepId> steps;
  const auto convert = [&](const ops::Operand& operand, const TensorType& type, const ValueLayout& has,
                           const ValueLayout& wants) {
    const ops::Operand converted = l.convert(l.builder(), operand, type, has, wants, steps);
    for (program::StepId converting : std::exchange(steps, {})) l.run(converting);
    return converted;
  };
  const ops::Operand wide = convert(in, from, l.input_layout(0), kRows);
  const ops::Operand narrow = l.temporary("rows", to.type, wide.rows(), wide.cols());
  round(wide, narrow, kernels::ElementOrder::strided(wide.cols(), 1));
  l.copy_to_output(0, convert(narrow, to, kRows, l.output_layout(0)));
}

std::vector<LayoutChoice> cast_layouts(Lowering& l, const Node& node) {
  if (is_pixels(l.graph().type(node.inputs[0]))) return row_layouts(l, node);
  return is_stochastic(node) ? same_layouts(l, node) : elementwise_layouts(l, node);
}

void lower_cast(Lowering& l, const Node& node) {
  // Results of updates in FP32 are rounded in the memory of their parameters.
  if (const auto state = replaced_state(l, node, 0)) l.alias(node.outputs[0], *state);
  if (is_stochastic(node)) return lower_stochastic(l, node);
  const ops::Operand in = l.input(0), out = l.output(0);
  l.add(ops::CastProblem{l.builder().type_of(in), l.builder().type_of(out), in.rows(), in.cols()}, {in, out});
}

std::vector<Case> cast_cases() {
  const TensorType step{Type::u32, {}, {}, {}};
  const auto stochastic = [](const char* type, int64_t shared) {
    return Attributes{{"type", type},
                      {"rounding", "stochastic"},
                      {"seed", int64_t{5}},
                      {"stream", int64_t{2}},
                      {"shared", shared}};
  };
  return {
      {{{Type::f32, {5, 33}, {}, {}}}, {{"type", "f16"}}},
      {{{Type::f16, {5, 33}, {}, {}}}, {{"type", "f32"}}},
      {{{Type::f32, {5, 33}, {}, {}}}, {{"type", "bf16"}}},
      {.inputs = {{Type::u32, {5, 33}, {}, {}}}, .attributes = {{"type", "f16"}}, .below = 1000},
      {.inputs = {{Type::i32, {5, 33}, {}, {}}}, .attributes = {{"type", "f32"}}, .below = 1000},
      {.inputs = {{Type::i32, {3}, {}, {}}},
       .attributes = {{"type", "u32"}},
       .differentiable = false,
       .given = {{0, {-1, 5, -1 << 30}}}},
      {.inputs = {{Type::u8, {3, 7, 5, 3}, {}, {}}}, .attributes = {{"type", "f32"}}, .below = 255},
      {.inputs = {{Type::u8, {5, 33}, {}, {}}}, .attributes = {{"type", "f16"}}, .below = 255},
      {.inputs = {{Type::f32, {5, 33}, {}, {}}},
       .attributes = {{"type", "i32"}},
       .low = -1000,
       .high = 1000,
       .differentiable = false},
      {.inputs = {{Type::f32, {5, 33}, {}, {}}},
       .attributes = {{"type", "u32"}},
       .low = -20,
       .high = 1000,
       .differentiable = false},
      {.inputs = {{Type::f32, {3, 4, 33}, {}, {}}, step}, .attributes = stochastic("f16", 0), .below = 100},
      {.inputs = {{Type::f32, {5, 33}, {}, {}}, step}, .attributes = stochastic("bf16", 1), .below = 100}};
}

constexpr Operation kCast[] = {{.name = "cast",
                                .least_inputs = 1,
                                .most_inputs = 2,
                                .infer = infer_cast,
                                .gradient = cast_gradient,
                                .reference = cast_reference,
                                .layouts = cast_layouts,
                                .lower = lower_cast,
                                .cases = cast_cases,
                                .traits = {.keeps_zeros = always_keeps_zeros,
                                           .keeps_samples = elements_keep_samples,
                                           .elementwise = true,
                                           .draws_by_place = is_stochastic,
                                           .has_substreams = draws_in_substreams}}};

}  // namespace

std::span<const Operation> cast_operations() { return kCast; }

Value cast(Value x, Type type) {
  if (x.type().type == type) return x;
  return x.owner().apply("cast", {x}, {{"type", std::string(name_of(type))}})[0];
}

Value stochastic_cast(Value x, Type type, Value step, uint64_t seed) {
  return x.owner().apply("cast", {x, step},
                         {{"type", std::string(name_of(type))},
                          {"rounding", "stochastic"},
                          {"seed", static_cast<int64_t>(seed)}})[0];
}

}  // namespace tessera::graph
