// Counter-based random numbers: element i of a stream is a function of (seed, step, operation, i), so every
// engine draws the same numbers in any order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tessera::base {

/// Philox 4x32 with 10 rounds (Salmon et al., SC 2011): four random words from a counter and a key.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// The seed of a sub-stream, such as a replica's: `seed` itself for number 0, otherwise by SplitMix64 (Steele
/// et al., OOPSLA 2014). Several numbers may distinguish a sub-stream, each applied in turn at its position.
inline uint64_t seed_of_substream(uint64_t seed, uint32_t position, uint32_t number) {
  if (number == 0) return seed;
  uint64_t mixed = seed + (uint64_t{position} << 32 | number) * 0x9E3779B97F4A7C15;
  mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
  return mixed ^ mixed >> 31;
}

/// One stream of random numbers. The bits are the same on every platform.
class RandomStream {
 public:
  explicit RandomStream(uint64_t seed, uint32_t step = 0, uint32_t operation = 0)
      : seed_(seed), step_(step), operation_(operation) {}

  /// Words 4·block to 4·block + 3.
  std::array<uint32_t, 4> words(uint64_t block) const;

  /// Word `element`.
  uint32_t word(uint64_t element) const { return words(element / 4)[element % 4]; }

  /// Uniform in [0, 1), a multiple of 2^-24.
  float uniform(uint64_t element) const;

  /// Uniform in (-1, 1), an odd multiple of 2^-24, so never 0.
  float symmetric(uint64_t element) const;

  /// Normal with mean 0 and variance 1 (Box and Muller); |x| < 6.8.
  float normal(uint64_t element) const;

  /// Elements first, first + 1, … of the streams above.
  void fill_uniform(std::span<float> out, uint64_t first = 0) const;
  void fill_symmetric(std::span<float> out, uint64_t first = 0) const;
  void fill_normal(std::span<float> out, uint64_t first = 0) const;

 private:
  uint64_t seed_;
  uint32_t step_;
  uint32_t operation_;
};

/// The words of a stream in sequence, for rejection sampling and shuffling.
class RandomSequence {
 public:
  explicit RandomSequence(const RandomStream& stream) : stream_(stream) {}

  uint32_t word() {
    if (used_ == words_.size()) refill();
    return words_[used_++];
  }

  /// A number below `bound` > 0; its distribution deviates from uniform by at most bound / 2^32.
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(uint64_t{word()} * bound >> 32); }

  /// Shuffles items (Fisher and Yates).
  void shuffle(std::span<uint32_t> items) {
    for (size_t left = items.size(); left > 1; --left)
      std::swap(items[left - 1], items[below(static_cast<uint32_t>(left))]);
  }

 private:
  void refill();

  RandomStream stream_;
  uint64_t block_ = 0;
  std::array<uint32_t, 32> words_{};
  size_t used_ = words_.size();
};

}  // namespace tessera::base
