// Histograms for tests.
#pragma once

#include <tessera/packing.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <string>

namespace tessera::test {

/// The histogram `name`.csv of published lengths, if $TESSERA_DATA has it.
inline std::optional<pack::Histogram> published(const std::string& name, uint32_t max_length) {
  const char* const data = std::getenv("TESSERA_DATA");
  if (data == nullptr) return std::nullopt;
  const std::filesystem::path file = std::filesystem::path(data) / "lengths" / (name + ".csv");
  if (!std::filesystem::exists(file)) return std::nullopt;
  return pack::read_histogram(file, max_length).histogram;
}

/// Shapes of histograms that are hard for packers for different reasons.
enum class Shape { uniform, heavy_tail, few_lengths, above_half, primes, above_third };
inline constexpr Shape shapes[] = {Shape::uniform,    Shape::heavy_tail, Shape::few_lengths,
                                   Shape::above_half, Shape::primes,     Shape::above_third};

inline bool is_prime(uint32_t n) {
  for (uint32_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return n > 1;
}

/// A random histogram of a shape, with about `sequences` sequences.
inline pack::Histogram random_histogram(Shape shape, uint32_t max_length, uint32_t sequences,
                                        std::mt19937& random) {
  pack::Histogram histogram = pack::Histogram::of_max_length(max_length);
  const auto between = [&](uint32_t least, uint32_t most) {
    return std::uniform_int_distribution<uint32_t>(least, std::max(least, most))(random);
  };
  uint32_t few[5];
  for (uint32_t& length : few) length = between(1, max_length);
  for (uint32_t i = 0; i < sequences; ++i) {
    uint32_t length = 0;
    switch (shape) {
      case Shape::uniform: length = between(1, max_length); break;
      case Shape::heavy_tail:
        length = static_cast<uint32_t>(max_length / 16.0 / (1 - between(0, 999) / 1000.0)) + 1;
        break;
      case Shape::few_lengths: length = few[between(0, 4)]; break;
      case Shape::above_half: length = max_length / 2 + between(1, max_length / 4 + 1); break;
      case Shape::primes: length = between(1, max_length / 2); break;
      case Shape::above_third: length = max_length / 3 + between(0, max_length / 5); break;
    }
    if (shape == Shape::primes && !is_prime(length)) continue;
    ++histogram.counts[std::min(std::max(length, 1U), max_length)];
  }
  return histogram;
}

}  // namespace tessera::test
