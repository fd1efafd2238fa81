// Codelets of products that write their result without reading it: variants of those that add beta times
// what was there before.
#pragma once

#include <array>
#include <cstddef>

#include "program/codelet.h"

namespace tessera::kernels {

/// The fields, of which one is written only.
template <size_t n>
constexpr std::array<program::FieldSpec, n> write_only(std::array<program::FieldSpec, n> fields,
                                                       size_t field) {
  fields[field].access = program::Access::out;
  return fields;
}

}  // namespace tessera::kernels
