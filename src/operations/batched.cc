// Products of two computed matrices, or of two stacks of matrices.
#include "ops/map/batched.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <utility>
#include <vector>

#include "graph/dims.h"
#include "lower/lowering.h"
#include "operations/list.h"

namespace tessera::graph {
namespace {

bool transposes(const Node& node, const char* attribute) { return node.integer(attribute, 0) != 0; }

/// Sizes of a product. A matrix b is shared by all matrices of an a with more dimensions.
struct Sizes {
  uint32_t matrices = 1, m = 0, k = 0, n = 0;
  bool transpose_a = false, transpose_b = false;

  Sizes(const Node& node, const TensorType& a, const TensorType& b)
      : transpose_a(transposes(node, "transpose_a")), transpose_b(transposes(node, "transpose_b")) {
    const bool is_one = b.shape.size() == 2;
    const uint32_t a_rows = is_one ? a.rows() : a.shape[a.shape.size() - 2],
                   b_rows = b.shape[b.shape.size() - 2];
    matrices = a.rows() / a_rows;
    m = transpose_a ? a.cols() : a_rows;
    k = transpose_a ? a_rows : a.cols();
    n = transpose_b ? b_rows : b.cols();
  }
};

Types infer_batched(const Signature& s) {
  const TensorType &a = s.inputs[0], &b = s.inputs[1];
  require_dense(s);
  require_float(s, a);
  const auto require = [&](bool holds) {
    if (!holds)
      throw UsageError(
          fmt::format("{}: {} and {} are not [..., m, k] and [..., k, n] of one type, or their "
                      "transposes, with the same leading dimensions, or none of the second",
                      s.operation, to_string(a), to_string(b)));
  };
  require(a.type == b.type && a.shape.size() >= 2 && b.shape.size() >= 2);
  if (a.shape.size() == 2 || b.shape.size() > 2)
    require(a.shape.size() == b.shape.size() &&
            std::equal(a.shape.begin(), a.shape.end() - 2, b.shape.begin()));
  else
    require(!transposes(s.attributes, "transpose_a"));
  const Sizes sizes(s.attributes, a, b);
  require(sizes.k == (sizes.transpose_b ? b.cols() : b.shape[b.shape.size() - 2]));
  TensorType y = a;
  if (sizes.transpose_a) y.shape[y.shape.size() - 2] = sizes.m;
  y.shape.back() = sizes.n;
  return {y};
}

/// With y = a · b, da = dy · bᵀ and db = aᵀ · dy.
Gradients batched_gradient(const Differentiation& d) {
  Value a = d.input(0), dy = *d.dy[0];
  const Value b = d.input(1);
  if (b.shape().size() == 2 && a.shape().size() > 2) {
    const auto as_matrix = [](Value x) { return reshape(x, {x.type().rows(), x.type().cols()}); };
    const bool tb = transposes(d.node, "transpose_b");
    const Value da = matmul(dy, b, false, !tb);
    a = as_matrix(a), dy = as_matrix(dy);
    return {da, tb ? matmul(dy, a, true) : matmul(a, dy, true)};
  }
  const bool ta = transposes(d.node, "transpose_a"), tb = transposes(d.node, "transpose_b");
  return {ta ? matmul(b, dy, tb, true) : matmul(dy, b, false, !tb),
          tb ? matmul(dy, a, true, ta) : matmul(a, dy, !ta, false)};
}

std::vector<Array> batched_reference(const Evaluation& e) {
  const Sizes z(e.node, e.input_type(0), e.input_type(1));
  const Array &a = *e.inputs[0], &b = *e.inputs[1];
  Array y(e.output_type(0).elements());
  for (uint64_t i = 0; i < z.matrices; ++i)
    for (uint64_t r = 0; r < z.m; ++r)
      for (uint64_t c = 0; c < z.n; ++c)
        for (uint64_t t = 0; t < z.k; ++t)
          y[(i * z.m + r) * z.n + c] += a[i * z.m * z.k + (z.transpose_a ? t * z.m + r : r * z.k + t)] *
                                        b[i * z.k * z.n + (z.transpose_b ? c * z.k + t : t * z.n + c)];
  return {y};
}

void lower_batched(Lowering& l, const Node& node) {
  const Sizes z(node, l.graph().type(node.inputs[0]), l.graph().type(node.inputs[1]));
  const ops::Operand a = l.input(0), b = l.input(1), y = l.output(0);
  l.add(ops::BatchedProblem{.matrices = z.matrices,
                            .m = z.m,
                            .k = z.k,
                            .n = z.n,
                            .transpose_a = z.transpose_a,
                            .transpose_b = z.transpose_b,
                            .type = l.builder().type_of(y)},
        {a, b, y});
}

std::vector<Case> batched_cases() {
  const auto flags = [](int64_t a, int64_t b) { return Attributes{{"transpose_a", a}, {"transpose_b", b}}; };
  return {{{dense_type(Type::f32, {7, 9}), dense_type(Type::f32, {9, 5})}},
          {{dense_type(Type::f32, {2, 3, 7, 9}), dense_type(Type::f32, {2, 3, 9, 5})}},
          {{dense_type(Type::f32, {4, 6, 10}), dense_type(Type::f32, {10, 7})}},
          {{dense_type(Type::f32, {4, 6, 10}), dense_type(Type::f32, {4, 7, 10})}, flags(0, 1)},
          {{dense_type(Type::f32, {4, 10, 6}), dense_type(Type::f32, {4, 10, 7})}, flags(1, 0)},
          {{dense_type(Type::f32, {3, 10, 6}), dense_type(Type::f32, {3, 7, 10})}, flags(1, 1)},
          {{dense_type(Type::f16, {5, 33, 40}), dense_type(Type::f16, {5, 40, 21})}},
          {{dense_type(Type::bf16, {3, 5, 12}), dense_type(Type::bf16, {3, 9, 12})}, flags(0, 1)}};
}

/// Both operands are divided, or the second is one matrix shared by all samples.
bool batched_keeps_samples(const Divided& divided) {
  const size_t dims = divided.shape(1).size();
  return divided.operands[0] && divided.shape(0).size() > 2 && (divided.operands[1] ? dims > 2 : dims == 2);
}

constexpr Operation kBatched[] = {
    {.name = "matmul",
     .least_inputs = 2,
     .most_inputs = 2,
     .infer = infer_batched,
     .gradient = batched_gradient,
     .reference = batched_reference,
     .layouts = row_layouts,
     .lower = lower_batched,
     .cases = batched_cases,
     .traits = {.keeps_samples = batched_keeps_samples, .kind = OperationKind::product}}};

/// x · W, or x · Wᵀ, of all rows of x at once.
Value by_weight(Value x, Value weight, bool transpose) {
  return transpose ? linear(x, weight) : x.owner().apply("linear_input_gradient", {x, weight})[0];
}

/// With a sparse factor: the product of a layer, or (bᵀ · aᵀ)ᵀ.
Value sparse_matmul(Value a, Value b, bool transpose_a, bool transpose_b) {
  const bool is_right = b.type().pattern != nullptr;
  const TensorType& dense = is_right ? a.type() : b.type();
  if (dense.pattern || dense.shape.size() < 2)
    throw UsageError(
        fmt::format("matmul: {} and {}: beside a sparse matrix the other factor is dense, of two "
                    "dimensions or more",
                    to_string(a.type()), to_string(b.type())));
  if (is_right) return by_weight(transpose_a ? with_transposed_matrices(a) : a, b, transpose_b);
  return with_transposed_matrices(by_weight(transpose_b ? b : with_transposed_matrices(b), a, !transpose_a));
}

}  // namespace

std::span<const Operation> batched_operations() { return kBatched; }

Value matmul(Value a, Value b, bool transpose_a, bool transpose_b) {
  if (a.type().pattern || b.type().pattern) return sparse_matmul(a, b, transpose_a, transpose_b);
  Attributes attributes;
  if (transpose_a) attributes["transpose_a"] = int64_t{1};
  if (transpose_b) attributes["transpose_b"] = int64_t{1};
  return a.owner().apply("matmul", {a, b}, std::move(attributes))[0];
}

}  // namespace tessera::graph
