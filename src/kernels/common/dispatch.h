// Dispatch of SIMD forms that need contiguous rows. Included behind Highway.
#pragma once

#include <algorithm>

#include "kernels/common/codelet_list.h"
#include "kernels/common/element.h"

/// Exports run_NAME() and defines NAME_simd(), which is the reference where rows are not contiguous.
#define TESSERA_DISPATCH_RUN(codelet, ...)                  \
  TESSERA_EXPORT_RUN(codelet)                               \
  void codelet##_simd(const program::Vertex& v) {           \
    if (!has_vector_rows(v)) return codelet##_reference(v); \
    HWY_DYNAMIC_DISPATCH(run_##codelet)(v);                 \
  }

/// Defines run_NAME() as rows<In, Out>(v), for the types of its fields `in` and `out`.
#define TESSERA_RUN_FLOATS(codelet, in, out, rows)                                            \
  void run_##codelet(const program::Vertex& v) {                                              \
    with_float_types(v.fields[codelet##_field::in].type, v.fields[codelet##_field::out].type, \
                     [&]<class In, class Out>(In, Out) { rows<In, Out>(v); });                \
  }

namespace tessera::kernels {

inline bool has_vector_rows(const program::Vertex& v) {
  return std::ranges::all_of(
      v.fields, [](const program::FieldView& field) { return field.empty() || has_contiguous_rows(field); });
}

}  // namespace tessera::kernels
