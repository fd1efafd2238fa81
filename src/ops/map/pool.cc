#include "ops/map/pool.h"

#include <algorithm>
#include <cstring>

#include "kernels/map/pool/codelet.h"
#include "ops/types.h"

namespace tessera::ops {
namespace {

using program::Role;

template <class T>
std::shared_ptr<const std::byte> bytes_of(const std::vector<T>& values) {
  const std::shared_ptr<std::byte[]> all(new std::byte[std::max<size_t>(1, values.size() * sizeof(T))]);
  std::memcpy(all.get(), values.data(), values.size() * sizeof(T));
  return {all, all.get()};
}

MapOperand constant(const char* name, Type type, uint32_t rows, uint32_t cols,
                    std::shared_ptr<const std::byte> contents) {
  return {name, type, Role::constant, rows, cols, false, false, std::move(contents)};
}

MapOperand table_of(const char* name, const Windows& windows) {
  std::vector<uint32_t> table;
  for (const Taps& window : windows.of) table.insert(table.end(), {window.first, window.count});
  return constant(name, Type::u32, windows.outputs(), 2, bytes_of(table));
}

MapOperand weights_of(const char* name, const Windows& windows) {
  const uint32_t taps = std::max(1U, windows.taps());
  std::vector<float> weights(size_t{windows.outputs()} * taps);
  for (size_t i = 0; i < windows.of.size(); ++i)
    std::ranges::transform(windows.of[i].weights, weights.begin() + static_cast<int64_t>(i * taps),
                           [](double weight) { return static_cast<float>(weight); });
  return constant(name, Type::f32, windows.outputs(), taps, bytes_of(weights));
}

/// An operand of pixels × channels. A vertex has `per_row` pixels for each row of the operation; 0: all
/// pixels.
MapOperand image(const PoolProblem& p, const char* name, Role role, uint32_t pixels, uint32_t per_row) {
  MapOperand operand{name, p.type, role, p.transposed ? p.channels : pixels,
                     p.transposed ? pixels : p.channels};
  operand.split_rows = per_row > 0;
  operand.rows_per_row = std::max(1U, per_row);
  operand.transposed = p.transposed;
  return operand;
}

/// Rows of images are split, and channels.
MapOperation forward(const PoolProblem& p) {
  const uint32_t pixels = p.down.size * p.across.size;
  const bool sums = p.kind == Pooling::weighted_sum;
  MapOperation operation{.codelet = sums ? &kernels::resample_codelet : &kernels::max_pool_codelet,
                         .rows = p.samples * p.down.outputs(),
                         .cols = p.channels};
  operation.operands = {image(p, "x", Role::input, p.samples * pixels, 0), table_of("down", p.down),
                        table_of("across", p.across)};
  if (sums) {
    operation.operands.push_back(weights_of("weights down", p.down));
    operation.operands.push_back(weights_of("weights across", p.across));
  }
  operation.operands.push_back(
      image(p, "y", Role::output, operation.rows * p.across.outputs(), p.across.outputs()));
  operation.params = {p.down.size, p.across.size};
  if (!sums)
    operation.params.insert(operation.params.end(),
                            {p.down.step, p.across.step, int64_t{p.down.taps()} * p.across.taps()});
  operation.params.push_back(p.transposed ? 1 : 0);
  operation.takes_origin = true;
  return operation;
}

/// Whole images are split, and channels.
MapOperation gradient(const PoolProblem& p) {
  const uint32_t pixels = p.down.size * p.across.size, outputs = p.down.outputs() * p.across.outputs();
  MapOperation operation{
      .codelet = &kernels::max_pool_gradient_codelet, .rows = p.samples, .cols = p.channels};
  operation.operands = {image(p, "dy", Role::input, p.samples * outputs, outputs),
                        image(p, "x", Role::input, p.samples * pixels, pixels), table_of("down", p.down),
                        table_of("across", p.across),
                        image(p, "dx", Role::output, p.samples * pixels, pixels)};
  operation.params = {p.down.size,
                      p.across.size,
                      p.down.step,
                      p.across.step,
                      int64_t{p.down.taps()} * p.across.taps(),
                      p.transposed ? 1 : 0};
  return operation;
}

}  // namespace

uint32_t Windows::taps() const {
  uint32_t most = 0;
  for (const Taps& window : of) most = std::max(most, window.count);
  return most;
}

MapOperation operation_of(const PoolProblem& p) {
  require_float(p.type, "pooling");
  return p.kind == Pooling::maximum_gradient ? gradient(p) : forward(p);
}

}  // namespace tessera::ops
