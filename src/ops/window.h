// Windows as constants of programs.
#pragma once

#include <memory>

#include "kernels/common/window.h"
#include "ops/builder.h"

namespace tessera::ops {

inline Operand window_constant(const Builder& builder, const kernels::Window& window) {
  const auto words = std::make_shared<const kernels::Window>(window);
  return builder.constant("window", Type::u32, 1, kernels::kWindowWords,
                          {words, reinterpret_cast<const std::byte*>(words.get())});
}

}  // namespace tessera::ops
