// Fastfood layers with Hadamard matrices by their definition.
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/host/fastfood/codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using Vector = std::vector<double>;

/// [batch × features].
FieldView by_sample(const program::Vertex& v, const FieldView& field) {
  return v.params[fastfood_param::transposed] != 0 ? transposed(field) : field;
}

Vector row_of(const FieldView& field, uint32_t row) {
  Vector values(field.cols);
  for (uint32_t i = 0; i < field.cols; ++i) values[i] = number_at(field, row, i);
  return values;
}

/// `count` features of a sample from `begin` on, zeros where it has none.
Vector features_of(const FieldView& batch, uint32_t sample, size_t begin, size_t count) {
  Vector values(count);
  for (size_t i = 0; i < count && begin + i < batch.cols; ++i)
    values[i] = number_at(batch, sample, static_cast<int64_t>(begin + i));
  return values;
}

Vector hadamard(const Vector& v) {
  Vector result(v.size());
  for (size_t i = 0; i < v.size(); ++i) {
    for (size_t j = 0; j < v.size(); ++j) result[i] += std::popcount(i & j) % 2 == 0 ? v[j] : -v[j];
    result[i] /= std::sqrt(static_cast<double>(v.size()));
  }
  return result;
}

Vector product(const Vector& a, const Vector& b) {
  Vector result(a.size());
  for (size_t i = 0; i < a.size(); ++i) result[i] = a[i] * b[i];
  return result;
}

Vector permuted(const Vector& v, const FieldView& permutation, uint32_t row) {
  Vector result(v.size());
  for (size_t i = 0; i < v.size(); ++i)
    result[i] = v[static_cast<size_t>(number_at(permutation, row, static_cast<int64_t>(i)))];
  return result;
}

Vector unpermuted(const Vector& v, const FieldView& permutation, uint32_t row) {
  Vector result(v.size());
  for (size_t i = 0; i < v.size(); ++i)
    result[static_cast<size_t>(number_at(permutation, row, static_cast<int64_t>(i)))] = v[i];
  return result;
}

void add_to(Vector& sum, const Vector& more) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

void write_row(const FieldView& field, uint32_t row, const Vector& values) {
  for (uint32_t i = 0; i < field.cols && !field.empty(); ++i) set_number(field, row, i, values[i]);
}

}  // namespace

void fastfood_forward_reference(const program::Vertex& v) {
  using namespace fastfood_forward_field;
  const FieldView in = by_sample(v, v.fields[x]), out = by_sample(v, v.fields[y]);
  const uint32_t size = v.fields[s].cols;
  for (uint32_t row = 0; row < v.fields[s].rows; ++row)
    for (uint32_t sample = 0; sample < out.rows; ++sample) {
      const Vector u = hadamard(product(row_of(v.fields[b], row), features_of(in, sample, 0, size)));
      const Vector w = hadamard(product(row_of(v.fields[g], row), permuted(u, v.fields[permutation], row)));
      const Vector result = product(row_of(v.fields[s], row), w);
      for (uint32_t i = 0; i < size && row * size + i < out.cols; ++i)
        set_number(out, sample, row * size + i, result[i]);
    }
}

void fastfood_gradients_reference(const program::Vertex& v) {
  using namespace fastfood_gradients_field;
  const FieldView in = by_sample(v, v.fields[x]), gradient = by_sample(v, v.fields[dy]);
  const FieldView out = by_sample(v, v.fields[dx]);
  const FieldView& map = v.fields[permutation];
  const uint32_t size = v.fields[s].cols, stacks = v.fields[s].rows;
  std::vector<Vector> to_x(gradient.rows, Vector(size));
  for (uint32_t row = 0; row < stacks; ++row) {
    const Vector s_row = row_of(v.fields[s], row), g_row = row_of(v.fields[g], row),
                 b_row = row_of(v.fields[b], row);
    Vector to_s(size), to_g(size), to_b(size);
    for (uint32_t sample = 0; sample < gradient.rows; ++sample) {
      const Vector input = features_of(in, sample, 0, size);
      const Vector after = features_of(gradient, sample, size_t{row} * size, size);
      const Vector u = permuted(hadamard(product(b_row, input)), map, row);
      add_to(to_s, product(after, hadamard(product(g_row, u))));
      const Vector before = hadamard(product(s_row, after));
      add_to(to_g, product(before, u));
      const Vector first = hadamard(unpermuted(product(g_row, before), map, row));
      add_to(to_b, product(first, input));
      add_to(to_x[sample], product(b_row, first));
    }
    write_row(v.fields[ds], row, to_s);
    write_row(v.fields[dg], row, to_g);
    write_row(v.fields[db], row, to_b);
  }
  for (uint32_t sample = 0; sample < out.rows; ++sample) write_row(out, sample, to_x[sample]);
}

}  // namespace tessera::kernels
