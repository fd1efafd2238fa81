// Index arrays by element type.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <span>

namespace tessera::pack {

/// Calls f with the array as a span of uint32_t or uint64_t.
template <class F>
void visit(IndexArray& array, F f) {
  void* data = array.data();
  if (array.width() == 4)
    f(std::span(static_cast<uint32_t*>(data), array.size()));
  else
    f(std::span(static_cast<uint64_t*>(data), array.size()));
}

}  // namespace tessera::pack
