// Damages valid files in seeded ways. Every result must be read or rejected, in bounded memory.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "base/random.h"
#include "fuzz/formats.h"
#include "support/number_of.h"

namespace {

std::atomic<size_t> allocated{0};
std::atomic<size_t> peak{0};

void* counted_allocate(size_t bytes) noexcept {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) return nullptr;
  const size_t now = allocated += malloc_usable_size(memory);
  if (now > peak) peak = now;
  return memory;
}

void counted_free(void* memory) {
  if (memory == nullptr) return;
  allocated -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) {
  void* memory = counted_allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted_allocate(bytes); }
void operator delete(void* memory) noexcept { counted_free(memory); }
void operator delete[](void* memory) noexcept { counted_free(memory); }
void operator delete(void* memory, size_t) noexcept { counted_free(memory); }
void operator delete[](void* memory, size_t) noexcept { counted_free(memory); }

namespace tessera::fuzz {
namespace {

using base::RandomSequence;
using base::RandomStream;

uint32_t below(RandomSequence& random, size_t bound) {
  return random.below(static_cast<uint32_t>(std::max<size_t>(bound, 1)));
}

void truncate(RandomSequence& random, std::string& file) { file.resize(below(random, file.size() + 1)); }

void flip_bits(RandomSequence& random, std::string& file) {
  for (uint32_t i = 0; i <= random.below(4) && !file.empty(); ++i) {
    file[below(random, file.size())] ^= static_cast<char>(1 << random.below(8));
  }
}

void set_bytes(RandomSequence& random, std::string& file) {
  for (uint32_t i = 0; i <= random.below(8) && !file.empty(); ++i) {
    file[below(random, file.size())] = static_cast<char>(random.below(256));
  }
}

void insert_bytes(RandomSequence& random, std::string& file) {
  const std::string alphabet = "0123456789 ,.-+eE\n\r\t%[]{}()\"':\\nainf";
  std::string text;
  for (uint32_t i = 0; i <= random.below(12); ++i) text += alphabet[below(random, alphabet.size())];
  file.insert(below(random, file.size() + 1), text);
}

void remove_bytes(RandomSequence& random, std::string& file) {
  const size_t first = below(random, file.size() + 1);
  file.erase(first, random.below(8) + 1);
}

void repeat_bytes(RandomSequence& random, std::string& file) {
  const std::string part = file.substr(below(random, file.size() + 1), random.below(32));
  file.insert(below(random, file.size() + 1), part);
}

// Replaces a number in text by one that is likely to break arithmetic.
void change_number(RandomSequence& random, std::string& file) {
  constexpr const char* kNumbers[] = {"0",
                                      "1",
                                      "-1",
                                      "4",
                                      "65536",
                                      "4194304",
                                      "4194305",
                                      "2147483647",
                                      "2147483648",
                                      "4294967295",
                                      "4294967296",
                                      "1000000000000000000",
                                      "9223372036854775807",
                                      "9223372036854775808",
                                      "18446744073709551615",
                                      "18446744073709551616",
                                      "1e400",
                                      "nan"};
  std::vector<size_t> starts;
  for (size_t i = 0; i < file.size(); ++i) {
    const auto digit = [&](size_t j) { return file[j] >= '0' && file[j] <= '9'; };
    if (digit(i) && (i == 0 || !digit(i - 1))) starts.push_back(i);
  }
  if (starts.empty()) return;
  const size_t first = starts[below(random, starts.size())];
  const size_t last = std::min(file.find_first_not_of("0123456789", first), file.size());
  file.replace(first, last - first, kNumbers[below(random, std::size(kNumbers))]);
}

// Overwrites the little-endian length at the front of binary formats.
void change_length(RandomSequence& random, std::string& file) {
  const uint64_t length = (uint64_t{random.word()} << 32 | random.word()) >> random.below(64);
  for (size_t i = 0; i < 8 && i < file.size(); ++i) file[i] = static_cast<char>(length >> 8 * i);
}

std::string mutate(RandomSequence& random, std::string file) {
  using Mutation = void (*)(RandomSequence&, std::string&);
  // Numbers break more than noise does, so they are mutated more often.
  constexpr Mutation kMutations[] = {truncate,      flip_bits,    set_bytes,     insert_bytes,
                                     remove_bytes,  repeat_bytes, change_number, change_number,
                                     change_number, change_length};
  const uint32_t times = 1 + random.below(3);
  for (uint32_t i = 0; i < times; ++i) kMutations[random.below(std::size(kMutations))](random, file);
  return file;
}

// Row indices of at most 2^22 rows, their copies while sorting, and a little for the file.
constexpr size_t kMostMemory = size_t{256} << 20;

class Fuzz : public testing::TestWithParam<Format> {};

/// TESSERA_TEST_DAMAGED_FILES sets the number of files of each format.
TEST_P(Fuzz, ReadsOrRejects) {
  const uint64_t runs = test::number_of("TESSERA_TEST_DAMAGED_FILES", 5'000);
  const Format& format = GetParam();
  const std::vector<std::string> examples = format.examples();
  for (const std::string& example : examples) {
    ASSERT_TRUE(accepts(format, std::as_bytes(std::span(example)))) << example;
  }
  uint64_t accepted = 0;
  for (uint64_t seed = 0; seed < runs; ++seed) {
    RandomSequence random(RandomStream(seed, 0, static_cast<uint32_t>(format.name[0])));
    const std::string file = mutate(random, examples[random.below(static_cast<uint32_t>(examples.size()))]);
    const size_t before = allocated;
    peak = before;
    try {
      accepted += accepts(format, std::as_bytes(std::span(file))) ? 1 : 0;
    } catch (const std::exception& error) {
      FAIL() << format.name << " seed " << seed << ": " << error.what();
    }
    ASSERT_LE(peak - before, kMostMemory) << format.name << " seed " << seed;
    ASSERT_EQ(allocated, before) << format.name << " seed " << seed << " leaks";
  }
  // Damage that never, or always, leaves a valid file tests little.
  EXPECT_GT(accepted, runs / 400);
  EXPECT_LT(accepted, runs / 2);
}

INSTANTIATE_TEST_SUITE_P(Files, Fuzz, testing::ValuesIn(fuzzed_here().begin(), fuzzed_here().end()),
                         [](const auto& format) { return std::string(format.param.name); });

}  // namespace
}  // namespace tessera::fuzz
