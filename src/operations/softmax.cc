// Softmax over the last dimension.
#include "ops/map/softmax.h"

#include <algorithm>
#include <cmath>

#include "graph/dims.h"
#include "lower/lowering.h"
#include "operations/list.h"

namespace tessera::graph {
namespace {

Types infer_softmax(const Signature& s) {
  require_dense(s);
  require_float(s, s.inputs[0]);
  return {s.inputs[0]};
}

Gradients softmax_gradient(const Differentiation& d) {
  const Value y = d.output(0), weighted = *d.dy[0] * y;
  return {weighted - y * sum(weighted, {-1}, true)};
}

std::vector<Array> softmax_reference(const Evaluation& e) {
  const uint32_t cols = e.input_type(0).cols();
  Array y = *e.inputs[0];
  for (uint64_t begin = 0; begin < y.size(); begin += cols) {
    const std::span<double> row(y.data() + begin, cols);
    const double most = *std::ranges::max_element(row);
    double total = 0;
    for (double& x : row) total += x = std::exp(x - most);
    for (double& x : row) x /= total;
  }
  return {y};
}

void lower_softmax(Lowering& l, const Node&) {
  const ops::Operand in = l.input(0), out = l.output(0);
  l.add(ops::SoftmaxProblem{in.rows(), in.cols(), l.input_layout(0).transposed, l.builder().type_of(in)},
        {in, out});
}

std::vector<Case> softmax_cases() {
  return {{.inputs = {{Type::f32, {3, 4, 10}, {}, {}}}, .low = -4, .high = 4},
          {.inputs = {{Type::f32, {5, 100}, {}, {}}}, .low = -4, .high = 4},
          {.inputs = {{Type::f16, {5, 33}, {}, {}}}, .low = -4, .high = 4}};
}

constexpr Operation kSoftmax[] = {{"softmax",
                                   1,
                                   1,
                                   infer_softmax,
                                   softmax_gradient,
                                   softmax_reference,
                                   same_layouts,
                                   lower_softmax,
                                   softmax_cases,
                                   {.keeps_samples = rows_keep_samples}}};

}  // namespace

std::span<const Operation> softmax_operations() { return kSoftmax; }

Value softmax(Value x, int dim) {
  const size_t count = x.shape().size(), at = dimension_of("softmax", x.type(), dim);
  if (at + 1 == count) return x.owner().apply("softmax", {x})[0];
  return moved(softmax(moved(x, at, count - 1)), count - 1, at);
}

Value log_softmax(Value x, int dim) {
  // A sum over many elements is beyond FP16.
  const Type type = x.type().type;
  if (size_of(type) < size_of(Type::f32)) return cast(log_softmax(cast(x, Type::f32), dim), type);
  const Value shifted = x - max(x, {dim}, true);
  return shifted - log(sum(exp(shifted), {dim}, true));
}

}  // namespace tessera::graph
