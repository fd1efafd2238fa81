// Dropout (Srivastava et al. 2014), with the same mask on every machine.
#include "ops/map/dropout.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include "base/random.h"
#include "graph/substream.h"
#include "lower/lowering.h"
#include "operations/dropout.h"
#include "operations/list.h"

namespace tessera::graph {
namespace {

Types infer_dropout(const Signature& s) {
  require_dropout(s, s.inputs[1]);
  require_dense(s);
  require_float(s, s.inputs[0]);
  return {s.inputs[0]};
}

/// Applies the same mask to the gradient.
Gradients dropout_gradient(const Differentiation& d) {
  return {d.graph.apply("dropout", {*d.dy[0], d.input(1)}, d.node.attributes)[0], {}};
}

std::vector<Array> dropout_reference(const Evaluation& e) {
  const float keep = keep_of(e.node);
  const auto step = static_cast<uint32_t>((*e.inputs[1])[0]);
  const base::RandomStream random(seed_in(e.substream, seed_of(e.node)), step, stream_of(e.node));
  Array y = *e.inputs[0];
  for (uint64_t i = 0; i < y.size(); ++i)
    y[i] = random.uniform(i) < keep ? y[i] / static_cast<double>(keep) : 0;
  return {y};
}

void lower_dropout(Lowering& l, const Node& node) {
  const ops::Operand in = l.input(0), out = l.output(0);
  l.add(ops::DropoutProblem{.type = l.builder().type_of(in),
                            .rows = in.rows(),
                            .cols = in.cols(),
                            .keep = keep_of(node),
                            .seed = seed_of(node),
                            .operation = stream_of(node),
                            .transposed = l.input_layout(0).transposed,
                            .substream_words = l.substream_words()},
        {in, l.with_substream(1), out});
}

std::vector<LayoutChoice> dropout_layouts(Lowering&, const Node&) {
  return {{{kRows, kRows}, {kRows}}, {{kTransposed, kRows}, {kTransposed}}};
}

std::vector<Case> dropout_cases() {
  const Attributes attributes = {{"p", 0.3}, {"seed", int64_t{5}}, {"stream", int64_t{2}}};
  return {{.inputs = {{Type::f32, {3, 4, 33}, {}, {}}, {Type::u32, {}, {}, {}}},
           .attributes = attributes,
           .below = 100},
          {.inputs = {{Type::f16, {12, 33}, {}, {}}, {Type::u32, {}, {}, {}}},
           .attributes = attributes,
           .below = 100}};
}

constexpr Operation kDropout[] = {{.name = "dropout",
                                   .least_inputs = 2,
                                   .most_inputs = 2,
                                   .infer = infer_dropout,
                                   .gradient = dropout_gradient,
                                   .reference = dropout_reference,
                                   .layouts = dropout_layouts,
                                   .lower = lower_dropout,
                                   .cases = dropout_cases,
                                   .traits = {.has_substreams = [](const Node&) { return true; }}}};

}  // namespace

float keep_of(const Node& node) { return static_cast<float>(1 - node.number("p")); }
uint64_t seed_of(const Node& node) { return static_cast<uint64_t>(node.integer("seed", 0)); }
uint32_t stream_of(const Node& node) { return static_cast<uint32_t>(node.integer("stream", 0)); }

void require_step(const Signature& s, const TensorType& step) {
  if (step.type != Type::u32 || step.elements() != 1)
    throw UsageError(fmt::format("{}: the step is {}; it must be u32[]", s.operation, to_string(step)));
}

void require_dropout(const Signature& s, const TensorType& step) {
  const double p = s.attributes.number("p");
  if (!(p >= 0 && p < 1)) throw UsageError(fmt::format("{}: p = {} is not in [0, 1)", s.operation, p));
  require_step(s, step);
}

std::span<const Operation> dropout_operations() { return kDropout; }

Value dropout(Value x, double p, Value step, uint64_t seed) {
  return x.owner().apply("dropout", {x, step}, {{"p", p}, {"seed", static_cast<int64_t>(seed)}})[0];
}

}  // namespace tessera::graph
