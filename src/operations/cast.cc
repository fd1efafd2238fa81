// A value in another type.
#include "ops/map/cast.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include "base/integer_types.h"
#include "kernels/map/cast/cast.h"
#include "lower/lowering.h"
#include "operations/constants.h"
#include "operations/list.h"

namespace tessera::model {
namespace {

Type cast_type_of(const Node& node) {
  const std::string name = node.text("type");
  for (Type type : {Type::f32, Type::f16, Type::bf16, Type::u32, Type::i32})
    if (name == name_of(type)) return type;
  throw UsageError(fmt::format("cast: there is no type '{}': use f32, f16, bf16, u32 or i32", name));
}

Types infer_cast(const Signature& s) {
  require_number(s, s.inputs[0]);
  TensorType out = s.inputs[0];
  out.type = cast_type_of(s.attributes);
  return {out};
}

/// None of integers.
Gradients cast_gradient(const Differentiation& d) {
  const Type from = d.input(0).type().type;
  if (is_integer(from) || is_integer(d.dy[0]->type().type)) return {{}};
  return {cast(*d.dy[0], from)};
}

std::vector<Array> cast_reference(const Evaluation& e) {
  Array y = *e.inputs[0];
  for (double& x : y) x = kernels::converted(e.input_type(0).type, e.output_type(0).type, x);
  return {y};
}

void lower_cast(Lowering& l, const Node&) {
  const ops::Operand in = l.input(0), out = l.output(0);
  l.add(ops::CastProblem{l.builder().type_of(in), l.builder().type_of(out), in.rows(), in.cols()}, {in, out});
}

std::vector<Case> cast_cases() {
  return {{{{Type::f32, {5, 33}, {}, {}}}, {{"type", "f16"}}},
          {{{Type::f16, {5, 33}, {}, {}}}, {{"type", "f32"}}},
          {{{Type::f32, {5, 33}, {}, {}}}, {{"type", "bf16"}}},
          {.inputs = {{Type::u32, {5, 33}, {}, {}}}, .attributes = {{"type", "f16"}}, .below = 1000},
          {.inputs = {{Type::i32, {5, 33}, {}, {}}}, .attributes = {{"type", "f32"}}, .below = 1000},
          {.inputs = {{Type::i32, {3}, {}, {}}},
           .attributes = {{"type", "u32"}},
           .differentiable = false,
           .given = {{0, {-1, 5, -1 << 30}}}},
          {.inputs = {{Type::f32, {5, 33}, {}, {}}},
           .attributes = {{"type", "i32"}},
           .low = -1000,
           .high = 1000,
           .differentiable = false},
          {.inputs = {{Type::f32, {5, 33}, {}, {}}},
           .attributes = {{"type", "u32"}},
           .low = -20,
           .high = 1000,
           .differentiable = false}};
}

constexpr Operation kCast[] = {
    {"cast",
     1,
     1,
     infer_cast,
     cast_gradient,
     cast_reference,
     elementwise_layouts,
     lower_cast,
     cast_cases,
     {.keeps_zeros = always_keeps_zeros, .keeps_samples = elements_keep_samples, .elementwise = true}}};

}  // namespace

std::span<const Operation> cast_operations() { return kCast; }

Value cast(Value x, Type type) {
  if (x.type().type == type) return x;
  return x.owner().apply("cast", {x}, {{"type", std::string(name_of(type))}})[0];
}

}  // namespace tessera::model
