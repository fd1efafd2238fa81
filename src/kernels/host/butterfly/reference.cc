// Butterflies in plain loops, a factor at a time.
#include <complex>
#include <vector>

#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/host/butterfly/codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using Number = std::complex<float>;
using Numbers = std::vector<Number>;

Number load_value(const FieldView& field, uint32_t row, uint32_t i, bool complex) {
  if (!complex) return {f32_at(field, row, i), 0};
  return {f32_at(field, row, 2 * i), f32_at(field, row, 2 * i + 1)};
}

void store_value(const FieldView& field, uint32_t row, uint32_t i, bool complex, Number value) {
  set_number(field, row, complex ? 2 * i : i, value.real());
  if (complex) set_number(field, row, 2 * i + 1, value.imag());
}

/// A butterfly of one sample.
class Reference {
 public:
  Reference(const ButterflyShape& shape, const FieldView& twiddle) : s_(shape), twiddle_(twiddle) {}

  /// Calls visit(row, matrix, p, p + stride) for each pair of a factor.
  template <class Visit>
  void each_pair(uint32_t stack, uint32_t factor, const Visit& visit) const {
    const uint32_t block = factor / s_.log_n, i = factor % s_.log_n;
    const bool decreasing = s_.decreasing != (block % 2 == 1);
    const uint32_t stride = 1U << (decreasing ? s_.log_n - 1 - i : i);
    for (uint32_t pair = 0; pair < s_.n() / 2; ++pair) {
      const uint32_t low = pair % stride, p = 2 * (pair - low) + low;
      visit(s_.tied ? stack : stack * s_.factors() + factor, s_.tied ? stride - 1 + low : pair, p,
            p + stride);
    }
  }

  Number coefficient(uint32_t row, uint32_t matrix, uint32_t i) const {
    return load_value(twiddle_, row, 4 * matrix + i, s_.complex);
  }

  Numbers apply(uint32_t stack, uint32_t factor, const Numbers& x) const {
    Numbers y(x.size());
    each_pair(stack, factor, [&](uint32_t row, uint32_t matrix, uint32_t p, uint32_t q) {
      y[p] = coefficient(row, matrix, 0) * x[p] + coefficient(row, matrix, 1) * x[q];
      y[q] = coefficient(row, matrix, 2) * x[p] + coefficient(row, matrix, 3) * x[q];
    });
    return y;
  }

  Numbers apply_transposed(uint32_t stack, uint32_t factor, const Numbers& dy) const {
    Numbers dx(dy.size());
    each_pair(stack, factor, [&](uint32_t row, uint32_t matrix, uint32_t p, uint32_t q) {
      const auto conjugate = [&](uint32_t i) { return std::conj(coefficient(row, matrix, i)); };
      dx[p] = conjugate(0) * dy[p] + conjugate(2) * dy[q];
      dx[q] = conjugate(1) * dy[p] + conjugate(3) * dy[q];
    });
    return dx;
  }

  void add_gradient(uint32_t stack, uint32_t factor, const Numbers& x, const Numbers& dy,
                    const FieldView& sums) const {
    each_pair(stack, factor, [&](uint32_t row, uint32_t matrix, uint32_t p, uint32_t q) {
      const Number products[] = {dy[p] * std::conj(x[p]), dy[p] * std::conj(x[q]), dy[q] * std::conj(x[p]),
                                 dy[q] * std::conj(x[q])};
      for (uint32_t i = 0; i < 4; ++i)
        store_value(sums, row, 4 * matrix + i, s_.complex,
                    load_value(sums, row, 4 * matrix + i, s_.complex) + products[i]);
    });
  }

  /// Features [begin, begin + N) of a sample, zeros where it has none.
  Numbers load(const FieldView& x, uint32_t sample, uint32_t begin) const {
    Numbers numbers(s_.n());
    for (uint32_t f = 0; f < s_.n() && begin + f < x.cols / s_.parts(); ++f)
      numbers[f] = load_value(x, sample, begin + f, s_.complex);
    return numbers;
  }
  void store(const Numbers& numbers, const FieldView& y, uint32_t sample, uint32_t begin) const {
    for (uint32_t f = 0; f < s_.n() && begin + f < y.cols / s_.parts(); ++f)
      store_value(y, sample, begin + f, s_.complex, numbers[f]);
  }

 private:
  ButterflyShape s_;
  FieldView twiddle_;
};

FieldView by_samples(const FieldView& field, const ButterflyShape& s) {
  return s.transposed ? transposed(field) : field;
}

}  // namespace

void butterfly_forward_reference(const program::Vertex& v) {
  using namespace butterfly_forward_field;
  const ButterflyShape s = butterfly_shape(v);
  const FieldView in = by_samples(v.fields[x], s), out = by_samples(v.fields[y], s);
  const Reference reference(s, v.fields[twiddle]);
  for (uint32_t sample = 0; sample < out.rows; ++sample)
    for (uint32_t stack = 0; stack < s.stacks; ++stack) {
      Numbers values = reference.load(in, sample, 0);
      for (uint32_t factor = 0; factor < s.factors(); ++factor)
        values = reference.apply(stack, factor, values);
      reference.store(values, out, sample, stack * s.n());
    }
}

void butterfly_gradients_reference(const program::Vertex& v) {
  using namespace butterfly_gradients_field;
  const ButterflyShape s = butterfly_shape(v);
  const FieldView in = by_samples(v.fields[x], s), gradient = by_samples(v.fields[dy], s);
  const FieldView out = by_samples(v.fields[dx], s), &sums = v.fields[dtwiddle];
  const Reference reference(s, v.fields[twiddle]);
  clear(sums);
  for (uint32_t sample = 0; sample < gradient.rows; ++sample) {
    Numbers total(s.n());
    for (uint32_t stack = 0; stack < s.stacks; ++stack) {
      std::vector<Numbers> values = {reference.load(in, sample, 0)};
      for (uint32_t factor = 0; factor < s.factors(); ++factor)
        values.push_back(reference.apply(stack, factor, values.back()));
      Numbers g = reference.load(gradient, sample, stack * s.n());
      for (uint32_t factor = s.factors(); factor-- > 0;) {
        if (!sums.empty()) reference.add_gradient(stack, factor, values[factor], g, sums);
        g = reference.apply_transposed(stack, factor, g);
      }
      for (uint32_t f = 0; f < s.n(); ++f) total[f] += g[f];
    }
    if (!out.empty()) reference.store(total, out, sample, 0);
  }
}

}  // namespace tessera::kernels
