// Fuzzes the format that TESSERA_TEST_FORMAT names; without it, prints the names of all.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "fuzz/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::fuzz;
  static const char* const name = std::getenv("TESSERA_TEST_FORMAT");
  static const Format* const format = [] {
    for (const auto& all : {formats(), graph_formats()})
      for (const Format& f : all) {
        if (name == nullptr) std::puts(f.name);
        if (name != nullptr && std::string_view(name) == f.name) return &f;
      }
    // libFuzzer takes exit() for a crash.
    std::fflush(stdout);
    std::_Exit(name == nullptr ? 0 : 1);
  }();
  accepts(*format, std::as_bytes(std::span(data, size)));
  return 0;
}
