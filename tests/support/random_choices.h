// Random shapes and numbers for tests that print their seeds.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

namespace tessera::test {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint32_t below(uint32_t end) { return static_cast<uint32_t>(engine_() % end); }
  bool coin() { return below(2) == 1; }
  float value() { return std::uniform_real_distribution<float>(-1, 1)(engine_); }
  double unit() { return std::uniform_real_distribution<double>(0, 1)(engine_); }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<uint32_t>(list.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tessera::test
