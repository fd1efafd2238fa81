// Converts callers' arrays to views and bindings.
#pragma once

#include <tessera/types.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace tessera {

/// The bindings of one call, few of them on the stack: a small product takes less time than an allocation.
class CallBindings {
 public:
  CallBindings(std::initializer_list<engine::Binding> first) {
    for (const engine::Binding& binding : first) push_back(binding);
  }

  void push_back(const engine::Binding& binding) {
    if (count_ < few_.size()) {
      few_[count_++] = binding;
      return;
    }
    if (many_.empty()) many_.assign(few_.begin(), few_.end());
    many_.push_back(binding);
  }
  std::span<const engine::Binding> all() const {
    return many_.empty() ? std::span(few_.data(), count_) : std::span(many_);
  }

 private:
  std::array<engine::Binding, 16> few_;
  size_t count_ = 0;
  std::vector<engine::Binding> many_;
};

/// Throws UsageError for a null array of a matrix that has elements.
void require_array(const float* data, std::string_view name, uint32_t rows, uint32_t cols);

/// A caller's matrix of floats; leading dimension 0 means contiguous. Throws UsageError for a null array or a
/// leading dimension that is too small.
MatrixView<float> view_of(const float* data, std::string_view name, uint32_t rows, uint32_t cols,
                          Layout layout, int64_t leading);

/// Throws UsageError for a null array, and for strides by which elements coincide.
void require_matrix(const MatrixView<float>& matrix, std::string_view name, uint32_t rows, uint32_t cols);

}  // namespace tessera
