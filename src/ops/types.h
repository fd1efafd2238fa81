// The types that an operation accepts.
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/types.h>

#include <string_view>

namespace tessera::ops {

/// Throws UsageError unless kernels convert the type to FP32 to compute with it.
inline void require_float(Type type, std::string_view what) {
  if (type != Type::f32 && type != Type::f16 && type != Type::bf16)
    throw UsageError(fmt::format("{} of {} is not possible: use f32, f16 or bf16", what, name_of(type)));
}

/// Throws UsageError unless kernels compute with the type, in FP32 or as integers modulo 2^32.
inline void require_number(Type type, std::string_view what) {
  if (type != Type::u32 && type != Type::i32) require_float(type, what);
}

}  // namespace tessera::ops
