// Sums over micro-batches.
#include <algorithm>

#include "model/lowering.h"
#include "model/operations/list.h"
#include "ops/map/elementwise.h"
#include "ops/map/fill.h"

namespace tessera::model {
namespace {

double scale_of(const Node& node) { return node.number("scale", 1.0); }

Types infer(const Signature& s) {
  require_float(s, s.inputs[0]);
  scale_of(s.attributes);
  return {s.inputs[0]};
}

std::vector<Array> reference(const Evaluation& e) {
  Array sum = e.before != nullptr ? *e.before : Array(e.inputs[0]->size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += scale_of(e.node) * (*e.inputs[0])[i];
  return {sum};
}

void lower(Lowering& l, const Node& node) {
  const ops::Operand in = l.input(0), sum = l.output(0);
  const Type type = l.builder().type_of(sum);
  const ops::FillProblem zero{type, sum.rows(), sum.cols(), 0};
  l.run_before_repetition(ops::add(l.builder(), zero, {sum}));
  l.add(ops::BinaryProblem{kernels::Binary::add_scaled, type, sum.rows(), sum.cols(),
                           static_cast<float>(scale_of(node))},
        {sum, in, sum});
}

std::vector<Case> cases() {
  return {
      {.inputs = {{Type::f32, {5, 33}, {}, {}}}, .attributes = {{"scale", 0.25}}, .differentiable = false}};
}

constexpr Operation kAccumulate[] = {{"accumulate",
                                      1,
                                      1,
                                      infer,
                                      nullptr,
                                      reference,
                                      same_layouts,
                                      lower,
                                      cases,
                                      {.keeps_zeros = always_keeps_zeros}}};

}  // namespace

std::span<const Operation> accumulate_operations() { return kAccumulate; }

}  // namespace tessera::model
