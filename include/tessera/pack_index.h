// Packs of a data set as arrays of indices: which sequences are in each pack, and where. The
// sequences themselves are neither read nor moved.
#pragma once

#include <tessera/pack.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera::pack {

/// Lengths of sequences in the order of the input, where they lie: in a caller's array or in a
/// mapped file. Copies share a mapping.
class Lengths {
 public:
  Lengths() = default;

  /// Those of an array, which must outlive it.
  template <std::integral T>
  explicit Lengths(std::span<const T> lengths)
      : data_(lengths.data()), size_(lengths.size()), width_(sizeof(T)), signed_(std::signed_integral<T>) {}

  /// Those of documents that lie one after another: document i is [offsets[i], offsets[i + 1]).
  template <std::integral T>
  static Lengths of_offsets(std::span<const T> offsets) {
    Lengths lengths(offsets);
    lengths.differences_ = true;
    if (lengths.size_ > 0) --lengths.size_;
    return lengths;
  }

  uint64_t size() const { return size_; }

  /// Fills `out` with lengths `first`, first + 1, … Throws Error, naming the first that is wrong,
  /// where one is not from 1 to 2^63 − 1.
  void read(uint64_t first, std::span<uint64_t> out) const;

  /// One length, not checked.
  uint64_t operator[](uint64_t i) const;

  /// Throws Error "NAME: entry ENTRY: WHAT", of a text "NAME: line LINE: WHAT".
  [[noreturn]] void fail_at(uint64_t entry, const std::string& what) const;

 private:
  friend class LengthFile;

  template <class T>
  void convert(uint64_t first, std::span<uint64_t> out) const;
  void fetch(uint64_t first, std::span<uint64_t> out) const;
  [[noreturn]] void reject(uint64_t entry, uint64_t value) const;

  const void* data_ = nullptr;
  uint64_t size_ = 0;
  uint8_t width_ = 4;  // bytes
  bool signed_ = false;
  bool swapped_ = false;      // not in this computer's byte order
  bool differences_ = false;  // of neighbours
  bool lines_ = false;        // from a text, with one a line
  std::string name_ = "lengths";
  std::shared_ptr<const void> owner_;
};

/// Reads lengths: `.npy` of one dimension and any type of integers, which stays mapped and must not
/// become shorter meanwhile, or text with one length a line; "-" is such a text on standard input.
/// Throws Error, naming the file and line, when it cannot be read.
Lengths read_lengths(const std::string& path);

/// Reads offsets of n documents: a `.npy` of n + 1 integers, each not below the one before.
Lengths read_offsets(const std::string& path);

/// What to do with sequences longer than the maximum.
enum class TooLong : uint8_t {
  error,     ///< refuse the input
  drop,      ///< leave them out
  truncate,  ///< keep the first tokens
  split,     ///< into pieces of the maximum and what is left
};

std::string_view name_of(TooLong policy);
/// Throws UsageError, with the names there are, for another.
TooLong too_long_named(std::string_view name);

/// What there is to pack. Sequences within the maximum are one piece each.
struct Input {
  Histogram histogram;  ///< of the pieces
  TooLong policy = TooLong::error;
  uint64_t sequences = 0;    ///< of the input, too long ones included
  uint64_t tokens = 0;       ///< likewise
  uint64_t too_long = 0;     ///< sequences above the maximum
  uint64_t lost_tokens = 0;  ///< dropped or cut off
};

/// Counts lengths. Throws Error, naming the first, where one is out of range, or too long and the
/// policy is error; UsageError for a maximum out of range.
Input count(const Lengths& lengths, uint32_t max_length, TooLong policy = TooLong::error);

/// Reads a histogram: text with `length,count` a line, in any order, below a first line that may
/// name the two. Throws as count() does, naming the line.
Input read_histogram(const std::string& path, uint32_t max_length, TooLong policy = TooLong::error);

/// The order of packs in the index.
struct Order {
  /// Seed of a random order; without it, packs with the same lengths follow one another.
  std::optional<uint64_t> shuffle = {};
  /// Above 1: packs are ordered so that ranks which take them in turn (pack i to rank i mod ranks)
  /// have nearly the same attention cost, Σ length², in every step. Steps, not packs, are shuffled.
  uint32_t ranks = 0;
};

/// An array of unsigned integers, of 4 bytes each where those suffice, else of 8.
class IndexArray {
 public:
  IndexArray() = default;
  /// Not initialised.
  IndexArray(uint64_t size, uint64_t largest);

  uint64_t size() const { return size_; }
  uint32_t width() const { return width_; }  ///< bytes of an element: 4 or 8
  uint64_t operator[](uint64_t i) const;
  std::span<const std::byte> bytes() const { return {bytes_.get(), size_ * width_}; }
  std::byte* data() { return bytes_.get(); }

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  std::unique_ptr<std::byte[], Free> bytes_;
  uint64_t size_ = 0;
  uint32_t width_ = 4;
};

/// Packs as arrays. Pack p has the entries offsets[p] to offsets[p + 1] − 1; entry e is a sequence
/// of the input and where it begins in its pack.
struct PackIndex {
  IndexArray offsets;   ///< one more than packs
  IndexArray sequence;  ///< of each entry: position in the input
  IndexArray start;     ///< of each entry: first token in its pack
  /// Of each entry: the first of the sequence's tokens that is in the pack, and how many are. Empty
  /// where nothing was cut: each entry is then a whole sequence.
  IndexArray begin;
  IndexArray length;
};

/// The index of a packing: `packing` is a plan of `input`'s histogram, and `input` the count of
/// `lengths`. Sequences of equal length are taken in the order of the input. Takes memory for one
/// more index a sequence meanwhile, and with an Order one a pack. Throws UsageError where the three
/// do not belong together, Error where the lengths have changed or memory does not suffice.
PackIndex index_packs(const Packing& packing, const Input& input, const Lengths& lengths,
                      const Order& order = {});

/// Where packs came from, for meta.json.
struct Provenance {
  std::string source;  ///< of the lengths
  uint64_t seed = 0;   ///< of the plan
};

/// How long writing took, beside computing.
struct WriteTimes {
  double computing = 0;  ///< seconds of sorting and assembling
  double writing = 0;    ///< seconds of handing over to the disk
};

/// Writes that index as a folder of `.npy` files and meta.json, whole or not at all; a folder
/// written before is replaced (docs/packing.md has the format). Arrays go to the disk as they are
/// made. `poll` is called now and then with the share that is done. Throws as index_packs() does,
/// and Error when writing fails.
WriteTimes write_packs(const std::string& folder, const Packing& packing, const Input& input,
                       const Lengths& lengths, const Order& order, const Provenance& provenance,
                       const std::function<void(double)>& poll = {});

/// Writes the strategies of a histogram's packing as such a folder: strategies.csv and meta.json.
void write_strategies(const std::string& folder, const Packing& packing, const Input& input,
                      const Provenance& provenance);

}  // namespace tessera::pack
