// Variants of product codelets that write their result without reading it, instead of adding beta times its
// previous value.
#pragma once

#include <array>
#include <cstddef>

#include "program/codelet.h"

namespace tessera::kernels {

/// The fields, one of which becomes write-only.
template <size_t n>
constexpr std::array<program::FieldSpec, n> write_only(std::array<program::FieldSpec, n> fields,
                                                       size_t field) {
  fields[field].access = program::Access::out;
  return fields;
}

}  // namespace tessera::kernels
