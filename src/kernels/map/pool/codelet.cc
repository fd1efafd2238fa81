#include "kernels/map/pool/codelet.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/map/pool/pool.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

FieldView as_pixels(const FieldView& field, bool channels_in_rows) {
  return channels_in_rows ? transposed(field) : field;
}

WindowRows rows_of(const FieldView& table, int64_t size, int64_t step) {
  WindowRows rows{.of = std::vector<WindowRow>(table.rows),
                  .size = static_cast<uint32_t>(size),
                  .step = static_cast<uint32_t>(step)};
  for (uint32_t i = 0; i < table.rows; ++i)
    rows.of[i] = {static_cast<uint32_t>(number_at(table, i, 0)),
                  static_cast<uint32_t>(number_at(table, i, 1))};
  return rows;
}

WindowRows weighted_rows_of(const FieldView& table, const FieldView& weights, int64_t size) {
  WindowRows rows = rows_of(table, size, 1);
  rows.weights.reserve(weights.elements());
  for (uint32_t i = 0; i < weights.rows; ++i)
    for (uint32_t t = 0; t < weights.cols; ++t) rows.weights.push_back(f32_at(weights, i, t));
  for (uint32_t i = 0; i < table.rows; ++i)
    rows.of[i].weights = rows.weights.data() + size_t{i} * weights.cols;
  return rows;
}

Windowed max_pool_of(const Vertex& v) {
  using namespace max_pool_field;
  using namespace max_pool_param;
  const bool in_rows = v.params[channels_in_rows] != 0;
  return {.x = as_pixels(v.fields[x], in_rows),
          .y = as_pixels(v.fields[y], in_rows),
          .down = rows_of(v.fields[down], v.params[height], v.params[step_down]),
          .across = rows_of(v.fields[across], v.params[width], v.params[step_across]),
          .row = static_cast<uint32_t>(v.params[row])};
}

Windowed resample_of(const Vertex& v) {
  using namespace resample_field;
  using namespace resample_param;
  const bool in_rows = v.params[channels_in_rows] != 0;
  return {.x = as_pixels(v.fields[x], in_rows),
          .y = as_pixels(v.fields[y], in_rows),
          .down = weighted_rows_of(v.fields[down], v.fields[weights_down], v.params[height]),
          .across = weighted_rows_of(v.fields[across], v.fields[weights_across], v.params[width]),
          .row = static_cast<uint32_t>(v.params[row]),
          .weighted = true};
}

MaxPoolGradient max_pool_gradient_of(const Vertex& v) {
  using namespace max_pool_gradient_field;
  using namespace max_pool_gradient_param;
  const bool in_rows = v.params[channels_in_rows] != 0;
  return {.dy = as_pixels(v.fields[dy], in_rows),
          .x = as_pixels(v.fields[x], in_rows),
          .dx = as_pixels(v.fields[dx], in_rows),
          .down = rows_of(v.fields[down], v.params[height], v.params[step_down]),
          .across = rows_of(v.fields[across], v.params[width], v.params[step_across])};
}

/// Calls visit(pixel in the image, weight) for each element of a window.
template <class Visit>
void each_element(const WindowRows& down, const WindowRow& i, const WindowRows& across, const WindowRow& j,
                  const Visit& visit) {
  for (uint32_t a = 0; a < i.count; ++a)
    for (uint32_t b = 0; b < j.count; ++b) {
      const uint64_t row = i.first + uint64_t{a} * down.step, col = j.first + uint64_t{b} * across.step;
      visit(static_cast<int64_t>(row * across.size + col),
            i.weights == nullptr ? 1.0F : i.weights[a] * j.weights[b]);
    }
}

void reference(const Windowed& f) {
  for (uint32_t r = 0; r < f.rows(); ++r)
    for (uint32_t j = 0; j < f.across.outputs(); ++j)
      for (uint32_t c = 0; c < f.y.cols; ++c) {
        float y = f.weighted ? 0 : -std::numeric_limits<float>::infinity();
        each_element(f.down, f.window(r), f.across, f.across.of[j], [&](int64_t pixel, float weight) {
          const auto x = f32_at(f.x, static_cast<int64_t>(f.image(r)) + pixel, c);
          if (f.weighted)
            y += weight != 0 ? weight * x : 0;
          else if (x > y || std::isnan(x))
            y = x;
        });
        set_number(f.y, int64_t{r} * f.across.outputs() + j, c, y);
      }
}

void reference(const MaxPoolGradient& f) {
  const int64_t pixels = int64_t{f.down.size} * f.across.size;
  std::vector<float> dx(static_cast<size_t>(pixels));
  for (int64_t image = 0, out = 0; image < f.images(); ++image)
    for (uint32_t c = 0; c < f.dx.cols; ++c) {
      std::ranges::fill(dx, 0.0F);
      int64_t at = out;
      for (const WindowRow& i : f.down.of)
        for (const WindowRow& j : f.across.of) {
          int64_t first = -1;
          float most = 0;
          each_element(f.down, i, f.across, j, [&](int64_t pixel, float) {
            const auto x = f32_at(f.x, image * pixels + pixel, c);
            if (first < 0 || x > most || std::isnan(x)) first = pixel, most = x;
          });
          if (first >= 0) dx[static_cast<size_t>(first)] += f32_at(f.dy, at, c);
          ++at;
        }
      for (int64_t pixel = 0; pixel < pixels; ++pixel)
        set_number(f.dx, image * pixels + pixel, c, dx[static_cast<size_t>(pixel)]);
      if (c + 1 == f.dx.cols) out = at;
    }
}

void max_pool_reference(const Vertex& v) { reference(max_pool_of(v)); }
void resample_reference(const Vertex& v) { reference(resample_of(v)); }
void max_pool_gradient_reference(const Vertex& v) { reference(max_pool_gradient_of(v)); }

void max_pool_simd(const Vertex& v) { apply_windowed(max_pool_of(v)); }
void resample_simd(const Vertex& v) { apply_windowed(resample_of(v)); }
void max_pool_gradient_simd(const Vertex& v) { apply_max_pool_gradient(max_pool_gradient_of(v)); }

// Vector operations on a host for each element of a window: the load, what is computed of it, and the walk;
// with the channels in rows, where neighbours in a row of pixels are combined one by one, unless windows are
// whole rows.
constexpr double kMaximumOperations = 3;
constexpr double kSumOperations = 2;
constexpr double kGradientOperations = 8;
constexpr double kInRows = 4;

/// Cost of the elements of y, with `taps` elements of each window.
program::PhaseTimes cost(const FieldView& x, const FieldView& y, double taps, double operations,
                         bool one_by_one, const machine::Machine& m) {
  const auto elements = static_cast<double>(y.elements());
  const double read = std::min(bytes_of(x), elements * taps * static_cast<double>(size_of(x.type)));
  const double of_tap = operations * (one_by_one ? kInRows : 1) + widen_operations(x.type);
  return in_phase(
      Phase::compute,
      host_cycles(m, {read, bytes_of(y), elements * taps * of_tap + elements * round_operations(y.type)}));
}

program::PhaseTimes max_pool_cost(const Vertex& v, const machine::Machine& m) {
  return cost(v.fields[max_pool_field::x], v.fields[max_pool_field::y],
              static_cast<double>(v.params[max_pool_param::taps]), kMaximumOperations,
              v.params[max_pool_param::channels_in_rows] != 0, m);
}

program::PhaseTimes resample_cost(const Vertex& v, const machine::Machine& m) {
  const double taps =
      double{1} * v.fields[resample_field::weights_down].cols * v.fields[resample_field::weights_across].cols;
  const bool whole_rows = v.fields[resample_field::across].rows == 1 &&
                          v.fields[resample_field::weights_across].cols == v.params[resample_param::width];
  return cost(v.fields[resample_field::x], v.fields[resample_field::y], taps, kSumOperations,
              v.params[resample_param::channels_in_rows] != 0 && !whole_rows, m);
}

program::PhaseTimes max_pool_gradient_cost(const Vertex& v, const machine::Machine& m) {
  using namespace max_pool_gradient_field;
  const FieldView& gradient = v.fields[dy];
  const auto taps = static_cast<double>(v.params[max_pool_gradient_param::taps]);
  const double operations = (kGradientOperations + 2 * widen_operations(gradient.type)) *
                            static_cast<double>(gradient.elements()) * taps;
  return in_phase(Phase::compute, host_cycles(m, {bytes_of(gradient) + bytes_of(v.fields[x]),
                                                  bytes_of(v.fields[dx]), operations}));
}

}  // namespace

TESSERA_DEFINE_FAMILY(pool, TESSERA_POOL_CODELETS, TESSERA_HOST_CODELET)

}  // namespace tessera::kernels
