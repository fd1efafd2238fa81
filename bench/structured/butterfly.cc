#include "structured/butterfly.h"

#include <algorithm>

#include "kernels/host/butterfly/layout.h"

namespace tessera::bench {
namespace {

using program::FieldView;

constexpr size_t kLineFloats = 16;

FieldView matrix(float* data, uint32_t rows, uint32_t cols, uint32_t row_stride) {
  return {reinterpret_cast<std::byte*>(data), Type::f32, rows, cols, row_stride, 1};
}

float* aligned(std::vector<float>& floats) {
  const auto address = reinterpret_cast<uintptr_t>(floats.data());
  return floats.data() + (64 - address % 64) % 64 / sizeof(float);
}

}  // namespace

/// Fields and parameters of one thread's vertices.
struct ButterflyLayer::Slice {
  Slice(ButterflyLayer& l, uint32_t thread) {
    const kernels::ButterflyShape& s = l.shape_;
    const uint32_t begin = l.begins_[thread], count = l.begins_[thread + 1] - begin;
    const auto batch = [&](std::vector<float>& values) {
      return s.transposed ? matrix(aligned(values) + begin, s.n(), count, l.batch_)
                          : matrix(aligned(values) + size_t{begin} * s.n(), count, s.n(), s.n());
    };
    const auto twiddle = [&](std::vector<float>& values) {
      return matrix(aligned(values), s.twiddle_rows(), s.twiddle_cols(), s.twiddle_cols());
    };
    std::vector<float>& scratch = l.scratch_[thread];
    const auto floats = static_cast<uint32_t>(scratch.size() - kLineFloats);
    const FieldView memory = matrix(aligned(scratch), 1, floats, floats);
    forward_fields = {batch(l.x_), twiddle(l.twiddle_), batch(l.y_), memory};
    gradient_fields = {
        batch(l.x_), batch(l.dy_), twiddle(l.twiddle_), batch(l.dx_), twiddle(l.dtwiddle_[thread]), memory};
    params = {s.transposed, s.stacks, s.blocks, s.log_n, s.tied, s.complex, s.decreasing};
  }

  std::vector<FieldView> forward_fields, gradient_fields;
  std::vector<int64_t> params;
};

ButterflyLayer::ButterflyLayer(const kernels::ButterflyShape& shape, uint32_t batch, unsigned threads)
    : shape_(shape), batch_(batch) {
  const size_t values = size_t{batch} * shape.n() + kLineFloats;
  const size_t weights = size_t{shape.twiddle_rows()} * shape.twiddle_cols() + kLineFloats;
  x_ = random_floats(values, 1);
  dy_ = random_floats(values, 2);
  twiddle_ = random_floats(weights, 3);
  y_.resize(values);
  dx_.resize(values);
  const uint32_t lines = (batch + kernels::kButterflyLanes - 1) / kernels::kButterflyLanes;
  const uint32_t slices = std::min(threads, lines);
  for (uint32_t i = 0; i <= slices; ++i)
    begins_.push_back(std::min(batch, lines * i / slices * kernels::kButterflyLanes));
  for (uint32_t i = 0; i < slices; ++i) {
    const uint32_t count = begins_[i + 1] - begins_[i];
    dtwiddle_.emplace_back(weights);
    scratch_.emplace_back(
        std::max(butterfly_forward_scratch(shape, count), butterfly_gradients_scratch(shape, count)) +
        kLineFloats);
  }
}

void ButterflyLayer::forward() {
  const auto slices = static_cast<uint32_t>(scratch_.size());
  engine::Pool::Team team(engine::Pool::shared(), slices);
  team.run([&](uint32_t thread) {
    const Slice slice(*this, thread);
    kernels::butterfly_forward_simd({slice.forward_fields, slice.params});
  });
}

void ButterflyLayer::add_gradients(uint32_t thread) {
  const size_t count = dtwiddle_[0].size() - kLineFloats;
  const size_t begin = count * thread / scratch_.size(), end = count * (thread + 1) / scratch_.size();
  float* total = aligned(dtwiddle_[0]);
  for (size_t slice = 1; slice < dtwiddle_.size(); ++slice) {
    const float* part = aligned(dtwiddle_[slice]);
    for (size_t i = begin; i < end; ++i) total[i] += part[i];
  }
}

void ButterflyLayer::gradients() {
  const auto slices = static_cast<uint32_t>(scratch_.size());
  engine::Pool::Team team(engine::Pool::shared(), slices);
  team.run([&](uint32_t thread) {
    const Slice slice(*this, thread);
    kernels::butterfly_gradients_simd({slice.gradient_fields, slice.params});
  });
  if (slices > 1) team.run([&](uint32_t thread) { add_gradients(thread); });
}

}  // namespace tessera::bench
