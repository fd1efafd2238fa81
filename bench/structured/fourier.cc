#include "structured/fourier.h"

#include <algorithm>
#include <numeric>

#include "kernels/common/lane_columns.h"
#include "kernels/host/circulant/codelet.h"
#include "kernels/host/fastfood/codelet.h"

namespace tessera::bench {
namespace {

using program::FieldView;

constexpr size_t kLineFloats = 16;

/// Fisher-Yates.
std::vector<uint32_t> random_permutation(uint32_t n) {
  std::vector<uint32_t> permutation(n);
  std::iota(permutation.begin(), permutation.end(), 0U);
  const std::vector<float> random = random_floats(n, 7);
  for (uint32_t i = n; i > 1; --i)
    std::swap(
        permutation[i - 1],
        permutation[std::min(i - 1, static_cast<uint32_t>((random[i - 1] + 1) / 2 * static_cast<float>(i)))]);
  return permutation;
}

}  // namespace

FourierLayer::Array::Array(size_t count, uint64_t seed)
    : floats_(seed == 0 ? std::vector<float>(count + kLineFloats)
                        : random_floats(count + kLineFloats, seed)) {}

float* FourierLayer::Array::data() {
  const auto address = reinterpret_cast<uintptr_t>(floats_.data());
  return floats_.data() + (64 - address % 64) % 64 / sizeof(float);
}

FieldView FourierLayer::Array::view(size_t offset, uint32_t rows, uint32_t cols, uint32_t row_stride) {
  return {reinterpret_cast<std::byte*>(data() + offset), Type::f32, rows, cols, row_stride, 1};
}

FourierLayer::FourierLayer(Kind kind, uint32_t n, uint32_t batch, bool transposed, unsigned threads)
    : kind_(kind),
      n_(n),
      batch_(batch),
      params_{transposed},
      x_(size_t{n} * batch, 1),
      y_(size_t{n} * batch),
      dy_(size_t{n} * batch, 2),
      dx_(size_t{n} * batch) {
  const bool is_circulant = kind == Kind::circulant;
  if (is_circulant) params_.push_back(0);
  for (uint64_t i = 0; i < (is_circulant ? 1 : 3); ++i) parameters_.emplace_back(n, 3 + i);
  if (!is_circulant) permutation_ = random_permutation(n);
  const uint32_t tiles = (batch + kernels::kColumnLanes - 1) / kernels::kColumnLanes;
  const uint32_t slices = std::min(threads, tiles);
  for (uint32_t i = 0; i <= slices; ++i)
    begins_.push_back(std::min(batch, tiles * i / slices * kernels::kColumnLanes));
  for (uint32_t i = 0; i < slices; ++i) {
    gradients_.emplace_back(parameters_.size(), Array(n));
    scratch_.emplace_back(is_circulant ? kernels::circulant_gradients_scratch({n, n, n, false})
                                       : kernels::fastfood_gradients_scratch(n));
  }
}

FieldView FourierLayer::slice_of(Array& values, uint32_t thread) {
  const uint32_t begin = begins_[thread], count = begins_[thread + 1] - begin;
  const bool transposed = params_[0] != 0;
  return transposed ? values.view(begin, n_, count, batch_) : values.view(size_t{begin} * n_, count, n_, n_);
}

std::vector<FieldView> FourierLayer::parameters(std::vector<Array>& arrays) {
  std::vector<FieldView> fields;
  for (Array& array : arrays) fields.push_back(array.view(0, 1, n_, n_));
  return fields;
}

void FourierLayer::forward() {
  const auto slices = static_cast<uint32_t>(scratch_.size());
  engine::Pool::Team team(engine::Pool::shared(), slices);
  team.run([&](uint32_t thread) {
    std::vector<FieldView> fields = {slice_of(x_, thread)};
    for (const FieldView& field : parameters(parameters_)) fields.push_back(field);
    if (kind_ == Kind::fastfood)
      fields.push_back({reinterpret_cast<std::byte*>(permutation_.data()), Type::u32, 1, n_, n_, 1});
    fields.push_back(slice_of(y_, thread));
    fields.push_back(scratch_[thread].view(0, 1, 1, 1));
    const program::Vertex vertex{fields, params_};
    kind_ == Kind::circulant ? kernels::circulant_forward_simd(vertex)
                             : kernels::fastfood_forward_simd(vertex);
  });
}

void FourierLayer::add_gradients(uint32_t thread) {
  const size_t slices = gradients_.size(), begin = n_ * thread / slices, end = n_ * (thread + 1) / slices;
  for (size_t slice = 1; slice < slices; ++slice)
    for (size_t p = 0; p < parameters_.size(); ++p) {
      float* total = gradients_[0][p].data();
      const float* part = gradients_[slice][p].data();
      for (size_t i = begin; i < end; ++i) total[i] += part[i];
    }
}

void FourierLayer::gradients() {
  const auto slices = static_cast<uint32_t>(scratch_.size());
  engine::Pool::Team team(engine::Pool::shared(), slices);
  team.run([&](uint32_t thread) {
    std::vector<FieldView> fields = {slice_of(x_, thread), slice_of(dy_, thread)};
    for (const FieldView& field : parameters(parameters_)) fields.push_back(field);
    if (kind_ == Kind::fastfood)
      fields.push_back({reinterpret_cast<std::byte*>(permutation_.data()), Type::u32, 1, n_, n_, 1});
    fields.push_back(slice_of(dx_, thread));
    for (const FieldView& field : parameters(gradients_[thread])) fields.push_back(field);
    fields.push_back(scratch_[thread].view(0, 1, 1, 1));
    const program::Vertex vertex{fields, params_};
    kind_ == Kind::circulant ? kernels::circulant_gradients_simd(vertex)
                             : kernels::fastfood_gradients_simd(vertex);
  });
  if (slices > 1) team.run([&](uint32_t thread) { add_gradients(thread); });
}

}  // namespace tessera::bench
