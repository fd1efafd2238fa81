#include "base/random.h"

#include <cmath>
#include <cstddef>

namespace tessera::base {
namespace {

// 2^-32 and 2^-24 as exact constants.
constexpr double kTwoToMinus32 = 0x1p-32;
constexpr float kTwoToMinus24 = 0x1p-24f;

float uniform_of(uint32_t word) { return static_cast<float>(word >> 8) * kTwoToMinus24; }

float symmetric_of(uint32_t word) {
  const int32_t odd = static_cast<int32_t>(word >> 8) * 2 + 1 - (1 << 24);
  return static_cast<float>(odd) * kTwoToMinus24;
}

// The C library's log, sin and cos differ in their last bit between platforms. These use only
// operations that IEEE 754 defines exactly, and are good to about 1e-13.

// ln(x) for normal x > 0: x = f · 2^e with f in [√½, √2), ln f = 2 atanh((f - 1)/(f + 1)).
double natural_log(double x) {
  int exponent = 0;
  double f = std::frexp(x, &exponent);
  if (f < 0.70710678118654752) {
    f *= 2;
    exponent -= 1;
  }
  const double z = (f - 1) / (f + 1);
  const double z2 = z * z;
  double sum = 0;
  for (int n = 17; n >= 1; n -= 2) sum = sum * z2 + 1.0 / n;
  return 2 * z * sum + exponent * 0.69314718055994531;
}

struct SinCos {
  double sin;
  double cos;
};

// Taylor series of sin and cos on [0, π/4].
SinCos sin_cos_first_octant(double x) {
  const double x2 = x * x;
  double sin = 0;
  double cos = 0;
  for (int n = 15; n >= 1; n -= 2) {
    sin = 1 - sin * x2 / ((n + 1) * (n + 2));
    cos = 1 - cos * x2 / (n * (n + 1));
  }
  return {sin * x, cos};
}

// sin and cos of 2π · word / 2^32, by octants.
SinCos sin_cos_of_turn(uint32_t word) {
  constexpr uint32_t kOctant = 1u << 29;
  const uint32_t octant = word >> 29;
  const uint32_t within = word & (kOctant - 1);
  const uint32_t folded = octant % 2 == 0 ? within : kOctant - within;
  SinCos v = sin_cos_first_octant(folded * (6.2831853071795865 * kTwoToMinus32));
  if (octant % 4 == 1 || octant % 4 == 2) v = {v.cos, v.sin};
  if (octant >= 2 && octant < 6) v.cos = -v.cos;
  if (octant >= 4) v.sin = -v.sin;
  return v;
}

// Two normals from two words.
std::array<float, 2> normals_of(uint32_t radius_word, uint32_t angle_word) {
  const double u = (radius_word + 0.5) * kTwoToMinus32;
  const double radius = std::sqrt(-2 * natural_log(u));
  const SinCos angle = sin_cos_of_turn(angle_word);
  return {static_cast<float>(radius * angle.cos), static_cast<float>(radius * angle.sin)};
}

std::array<float, 4> normals_of(const std::array<uint32_t, 4>& words) {
  const auto low = normals_of(words[0], words[1]);
  const auto high = normals_of(words[2], words[3]);
  return {low[0], low[1], high[0], high[1]};
}

template <float of(uint32_t)>
std::array<float, 4> each_of(const std::array<uint32_t, 4>& words) {
  return {of(words[0]), of(words[1]), of(words[2]), of(words[3])};
}

// out[i] = element first + i, where four_of(words(j)) gives elements 4j to 4j + 3.
template <class FourOf>
void fill(const RandomStream& stream, std::span<float> out, uint64_t first, FourOf four_of) {
  size_t i = 0;
  while (i < out.size()) {
    const uint64_t element = first + i;
    const std::array<float, 4> four = four_of(stream.words(element / 4));
    for (size_t j = element % 4; j < 4 && i < out.size(); ++j) out[i++] = four[j];
  }
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

std::array<uint32_t, 4> RandomStream::words(uint64_t block) const {
  return philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), operation_, step_},
                {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
}

float RandomStream::uniform(uint64_t element) const { return uniform_of(word(element)); }

float RandomStream::symmetric(uint64_t element) const { return symmetric_of(word(element)); }

float RandomStream::normal(uint64_t element) const { return normals_of(words(element / 4))[element % 4]; }

void RandomStream::fill_uniform(std::span<float> out, uint64_t first) const {
  fill(*this, out, first, each_of<uniform_of>);
}

void RandomStream::fill_symmetric(std::span<float> out, uint64_t first) const {
  fill(*this, out, first, each_of<symmetric_of>);
}

void RandomStream::fill_normal(std::span<float> out, uint64_t first) const {
  fill(*this, out, first, [](const auto& words) { return normals_of(words); });
}

void RandomSequence::refill() {
  // Independent blocks in one loop, so that the processor overlaps their long multiply chains.
  for (size_t i = 0; i < words_.size() / 4; ++i) {
    const std::array<uint32_t, 4> four = stream_.words(block_ + i);
    for (size_t j = 0; j < 4; ++j) words_[4 * i + j] = four[j];
  }
  block_ += words_.size() / 4;
  used_ = 0;
}

}  // namespace tessera::base
