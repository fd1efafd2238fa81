#include <cstdint>

#include "fuzz/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::kAedat.read(std::as_bytes(std::span(data, size)));
  return 0;
}
