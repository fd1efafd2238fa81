// Contents of memory as they were, of which each call compares a part.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "prefetch.h"

namespace tessera::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

/// Address and bytes of a tensor's memory; 0 bytes: it is not read.
using TensorMemory = std::pair<uintptr_t, uint64_t>;

constexpr uint64_t kBytesOfWord = sizeof(uint64_t);

/// Another word gives another result, and so does another number before it.
uint64_t mixed_with(uint64_t mixed, uint64_t word) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
  return (std::rotl(mixed, 27) ^ word) * kFactor;
}

uint64_t word_at(const std::byte* at, uint64_t bytes = kBytesOfWord) {
  uint64_t word = 0;
  if (bytes < kBytesOfWord)
    std::memcpy(&word, at, bytes);
  else
    std::memcpy(&word, at, kBytesOfWord);
  return word;
}

/// A word of a tensor's memory, with the value that it had.
struct SampledWord {
  const std::byte* at = nullptr;
  uint64_t bytes = 0;
  uint64_t value = 0;

  bool is_changed() const { return word_at(at, bytes) != value; }
};

/// Words at equal distances, each moved on to the next that is not zero: factors and masks leave zeros
/// as they are. Words hold whole elements: low bytes alone stay as they are when a factor is a power of 2.
std::vector<SampledWord> words_of(const TensorMemory& memory, uint64_t count) {
  constexpr uint64_t kMostZeros = 4096 * kBytesOfWord;
  const auto* begin = pointer<const std::byte>(memory.first);
  const uint64_t bytes = memory.second, last = bytes < kBytesOfWord ? 0 : bytes - kBytesOfWord;
  const auto sample = [&](uint64_t place) {
    const uint64_t size = std::min(bytes, kBytesOfWord);
    return SampledWord{begin + place, size, word_at(begin + place, size)};
  };
  std::vector<SampledWord> words;
  for (uint64_t i = 0; i < (bytes == 0 ? 0 : count); ++i) {
    const uint64_t start = i + 1 < count ? last * i / (count - 1) / kBytesOfWord * kBytesOfWord : last;
    const uint64_t end = std::min({last, last * (i + 1) / (count - 1), start + kMostZeros});
    SampledWord word = sample(start);
    for (uint64_t place = start + kBytesOfWord; word.value == 0 && place < end; place += kBytesOfWord)
      word = sample(place);
    words.push_back(word.value == 0 ? sample(start) : word);
  }
  return words;
}

/// A number that changes if the memory does, mostly: it mixes a few of its words and their addresses.
uint64_t fingerprint(const std::vector<TensorMemory>& memory) {
  constexpr uint64_t kWords = 32;
  uint64_t mixed = memory.size();
  for (const TensorMemory& each : memory)
    for (const SampledWord& word : words_of(each, kWords))
      mixed = mixed_with(mixed_with(mixed, reinterpret_cast<uintptr_t>(word.at)), word.value);
  return mixed;
}

/// A number that changes with all contents but for a chance of 2⁻⁶⁴, and surely if one word does. With a
/// single chain, each product would wait for the one before. The memory that follows is prefetched: the next
/// block is often there, in another page, where processors stop prefetching by themselves.
uint64_t sum_of(std::span<const std::byte> block) {
  std::array<uint64_t, 4> chains{};
  constexpr size_t kStep = 4 * kBytesOfWord, kAhead = 24 * kLineBytes;
  size_t at = 0;
  for (; at + kStep <= block.size(); at += kStep) {
    if (at % kLineBytes == 0) prefetch_after(block.data() + at, kAhead);
    for (size_t i = 0; i < chains.size(); ++i)
      chains[i] = mixed_with(chains[i], word_at(block.data() + at + i * kBytesOfWord));
  }
  for (; at < block.size(); at += kBytesOfWord)
    chains[0] = mixed_with(chains[0], word_at(block.data() + at, block.size() - at));
  uint64_t sum = 0;
  for (const uint64_t chain : chains) sum = mixed_with(sum, chain);
  return sum;
}

/// Pieces of memory as they were: a few words of each, and a sum of each of their blocks.
class Contents {
 public:
  explicit Contents(const std::vector<TensorMemory>& memory) {
    constexpr uint64_t kWords = 6;
    for (const TensorMemory& each : memory) {
      const std::vector<SampledWord> words = words_of(each, kWords);
      words_.insert(words_.end(), words.begin(), words.end());
      const uint64_t first = sums_.size(), blocks = (each.second + kBlock - 1) / kBlock;
      pieces_.push_back({pointer<const std::byte>(each.first), each.second, first, first + blocks});
      for (uint64_t i = first; i < first + blocks; ++i) sums_.push_back(sum_of(pieces_.back().block(i)));
    }
    const uint64_t share = (sums_.size() + kMostCalls - 1) / kMostCalls;
    blocks_of_call_ = std::min<uint64_t>(std::max(share, kLeastBlocks), sums_.size());
  }

  /// Compares a few words of each piece, and the blocks whose turn it is.
  bool look_unchanged() { return samples_are_unchanged() && next_are_unchanged(); }

  /// Compares the blocks whose turn it is: in kMostCalls calls all have theirs.
  bool next_are_unchanged() {
    for (uint64_t i = 0; i < blocks_of_call_; ++i) {
      if (next_block_ == sums_.size()) next_block_ = next_piece_ = 0;
      while (next_block_ == pieces_[next_piece_].end) ++next_piece_;
      if (!is_unchanged(pieces_[next_piece_], next_block_)) return false;
      ++next_block_;
    }
    return true;
  }

  bool are_unchanged() const {
    return std::ranges::all_of(pieces_, [&](const Piece& each) { return is_unchanged(each); });
  }

  /// For each of these pieces, whether it has other contents.
  std::vector<bool> changed(const std::vector<uint64_t>& pieces) const {
    std::vector<bool> changed;
    for (const uint64_t each : pieces) changed.push_back(!is_unchanged(pieces_.at(each)));
    return changed;
  }

 private:
  static constexpr uint64_t kBlock = 4096, kLeastBlocks = 2, kMostCalls = 8192;

  struct Piece {
    const std::byte* begin;
    uint64_t bytes;
    uint64_t first, end;  ///< its blocks, numbered over all pieces

    std::span<const std::byte> block(uint64_t i) const {
      const uint64_t start = (i - first) * kBlock;
      return {begin + start, std::min(kBlock, bytes - start)};
    }
  };

  /// Each word lies in a page of its own: many are prefetched at once.
  bool samples_are_unchanged() const {
    constexpr size_t kAhead = 24;
    for (size_t i = 0; i < words_.size(); ++i) {
      if (i + kAhead < words_.size()) __builtin_prefetch(words_[i + kAhead].at);
      if (words_[i].is_changed()) return false;
    }
    return true;
  }

  bool is_unchanged(const Piece& piece, uint64_t block) const {
    return sum_of(piece.block(block)) == sums_[block];
  }
  bool is_unchanged(const Piece& piece) const {
    for (uint64_t i = piece.first; i < piece.end; ++i)
      if (!is_unchanged(piece, i)) return false;
    return true;
  }

  std::vector<SampledWord> words_;
  std::vector<Piece> pieces_;
  std::vector<uint64_t> sums_;  ///< of all blocks
  uint64_t blocks_of_call_ = 0;
  uint64_t next_piece_ = 0, next_block_ = 0;  ///< where the next call goes on
};

}  // namespace

void bind_contents(nb::module_& m) {
  m.def("fingerprint", &fingerprint, "memory"_a,
        "A number that changes with most contents of memory, given by addresses and bytes.");
  nb::class_<Contents>(
      m, "Contents",
      "A record of contents of memory, which is read at the same addresses and must still be there.")
      .def(nb::init<const std::vector<TensorMemory>&>(), "memory"_a, "Takes addresses and bytes.")
      .def("look_unchanged", &Contents::look_unchanged,
           "Compares a few words of each piece of memory and, in turns, all blocks within 8,192 calls.")
      .def("next_are_unchanged", &Contents::next_are_unchanged,
           "Compares the blocks whose turn it is: all within 8,192 calls.")
      .def("are_unchanged", &Contents::are_unchanged, "Compares everything.")
      .def("changed", &Contents::changed, "pieces"_a, "For each piece, whether its contents have changed.");
}

}  // namespace tessera::python
