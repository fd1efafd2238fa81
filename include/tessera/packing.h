// Sequence packing: sequences joined into packs of a maximum length, so that little is padding. Planners and
// proofs of a histogram; packs of a data set as arrays of indices; what a training batch takes from packs;
// streams in bounded memory.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::pack {

/// How many sequences there are of each length. All that a planner needs to know of its input.
struct Histogram {
  /// counts[l] sequences have length l, in tokens; counts[0] is 0. The last one is that of the
  /// longest length that fits, so counts has max_length() + 1 entries.
  std::vector<uint64_t> counts = {0};

  /// An empty histogram for packs of `max_length` tokens.
  static Histogram of_max_length(uint32_t max_length);

  uint32_t max_length() const { return static_cast<uint32_t>(counts.size() - 1); }  ///< L
  uint64_t sequences() const;                                                       ///< N
  uint64_t tokens() const;
};

/// Throws UsageError unless the maximum is 1 to 2^28, no sequence has length 0, and all
/// sequences padded to the maximum have fewer than 2^63 tokens, so that no sum overflows.
void require_sane(const Histogram& histogram);

/// Equally long sequences of one pack.
struct Part {
  uint32_t length = 0;
  uint32_t copies = 0;
  bool operator==(const Part&) const = default;
};

/// What one pack consists of, and how many packs are like it.
struct Strategy {
  std::vector<Part> parts;  ///< by descending length, each length once
  uint64_t count = 0;

  uint64_t tokens() const;  ///< of one pack, at most the maximum
  uint64_t depth() const;   ///< sequences in one pack
  bool operator==(const Strategy&) const = default;
};

/// A proof that no packing has fewer packs, which integer arithmetic alone can check: give each
/// sequence of length l the weight weights[l]. If no pack can hold more than `heaviest`, at least
/// ⌈Σ counts[l] · weights[l] / heaviest⌉ packs are needed. (Weights are the duals of the linear
/// program over all strategies, Gilmore and Gomory 1961, times a constant, rounded down.)
struct Certificate {
  Histogram histogram;
  uint32_t max_per_pack = 0;      ///< D; 0: any number
  std::vector<uint64_t> weights;  ///< one a length, as Histogram::counts; weights[0] is 0
  uint64_t heaviest = 1;          ///< no pack weighs more
  uint64_t lower_bound = 0;       ///< ⌈Σ counts · weights / heaviest⌉
};

/// Checks by a knapsack over all packs that none is heavier than `heaviest`, and recomputes the
/// bound, from the histogram and the weights, in whole numbers. Throws Error, naming both values,
/// where the certificate says otherwise; UsageError for a histogram out of range or sizes that
/// disagree.
void verify(const Certificate& certificate);

/// Writes and reads a certificate as JSON; docs/packing.md describes the file and how to check it.
/// Throw Error, naming the file, when that fails or the file is malformed; reading does not verify.
void save_certificate(const std::string& path, const Certificate& certificate);
Certificate load_certificate(const std::string& path);

/// How sequences are joined.
enum class Algorithm : uint8_t {
  best,      ///< column generation and rounding: fewest packs, with the sharpest bound
  spfhp,     ///< shortest-pack-first: descending lengths, each into the pack with the most room
  lpfhp,     ///< longest-pack-first: descending lengths, each into the pack with the least room
  nnlshp,    ///< non-negative least squares over all full packs of at most three sequences
  ffd,       ///< first-fit decreasing
  next_fit,  ///< one open pack; of a histogram in descending order of lengths
};

inline constexpr Algorithm algorithms[] = {Algorithm::best,   Algorithm::spfhp, Algorithm::lpfhp,
                                           Algorithm::nnlshp, Algorithm::ffd,   Algorithm::next_fit};

/// "best", "spfhp", …, "next-fit".
std::string_view name_of(Algorithm algorithm);

/// The algorithm of that name; throws UsageError, with the names there are, for another.
Algorithm algorithm_named(std::string_view name);

/// How far a planner has come.
struct Progress {
  uint64_t packs = 0;        ///< of the best packing so far; 0: none yet
  uint64_t lower_bound = 0;  ///< proven so far
  double seconds = 0;        ///< since the start
};

struct Options {
  Algorithm algorithm = Algorithm::best;
  uint32_t max_per_pack = 0;  ///< D, most sequences in a pack; 0: any number
  /// Also find the best bound and certificate for it, by column generation, whatever the algorithm.
  /// Without it the certificate is what the algorithm has found on its way.
  bool certify = false;
  double time_limit = 0;  ///< seconds after which the best so far is returned; 0: none
  uint64_t seed = 0;      ///< of random choices
  /// Called a few times a second during long searches; false ends them with the best so far.
  std::function<bool(const Progress&)> poll = {};
};

/// A packing of a histogram: every sequence in exactly one pack.
struct Packing {
  Algorithm algorithm = Algorithm::best;
  uint32_t max_length = 0;
  uint32_t max_per_pack = 0;  ///< as it was asked for; 0: any number
  std::vector<Strategy> strategies;
  uint64_t sequences = 0;
  uint64_t tokens = 0;
  Certificate certificate;  ///< of the lower bound
  bool cut_short = false;   ///< by the time limit or Options::poll, so not reproducible
  double seconds = 0;

  uint64_t packs() const;
  uint64_t lower_bound() const { return certificate.lower_bound; }
  uint64_t gap() const { return packs() - lower_bound(); }
  bool optimal() const { return gap() == 0; }
  uint64_t padding() const;       ///< tokens
  double efficiency() const;      ///< tokens / (packs · maximum), 0 to 1; of no packs 1
  double packing_factor() const;  ///< sequences / packs; of no packs 1
  /// depths()[d] packs hold d sequences.
  std::vector<uint64_t> depths() const;
};

/// Packs a histogram. The same result for the same histogram, options and seed, unless it is
/// cut_short. Throws UsageError for a histogram out of range or an option that does not fit:
/// Algorithm::nnlshp packs three, so it takes max_per_pack 0 and 3 only, and up to 2,048 tokens.
Packing plan(const Histogram& histogram, const Options& options = {});

/// Throws Error, saying which sequence or pack is wrong, unless the packing holds exactly the
/// histogram's sequences and no pack is too long or too deep.
void verify(const Packing& packing, const Histogram& histogram);

// Packs of a data set as arrays of indices: which sequences are in each pack, and where. The sequences
// themselves are neither read nor moved.

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

// What training takes from packs: boundaries, positions and masks of a batch, and work that is even over
// ranks.

/// Tokens of each entry of `packs` packs from `first_pack` on. `lengths` are those that were indexed.
/// Throws UsageError for packs that there are not.
std::vector<uint32_t> entry_lengths(const PackIndex& index, const Lengths& lengths, uint64_t first_pack,
                                    uint64_t packs = 1);

/// Prefix sums of lengths, from 0 on, as attention kernels for variable lengths take them. Throws
/// Error where the sum is above 2^31 − 1.
std::vector<int32_t> cu_seqlens(std::span<const uint32_t> lengths);

/// Positions of the tokens of a pack of out.size() tokens: they begin at `offset` in each sequence
/// (RoBERTa: 2), and are `padding` after the last. Throws UsageError where the sequences are longer
/// than the pack, Error where a position is above 2^31 − 1.
void position_ids(std::span<const uint32_t> lengths, std::span<int32_t> out, int32_t offset = 0,
                  int32_t padding = 0);

/// For each token of a pack the number of its sequence in the pack, from 1 on; 0 for padding. Tokens
/// with the same number, not 0, see one another: the block-diagonal mask. Throws as position_ids().
void sequence_ids(std::span<const uint32_t> lengths, std::span<int32_t> out);

/// A rank for each pack such that their costs are even: packs by descending cost, one to each rank
/// in turn, the dearest to the rank that has least (Graham 1969, with equal numbers of packs).
/// `costs` may be Σ length². Throws UsageError for no ranks.
std::vector<uint32_t> assign_to_ranks(std::span<const uint64_t> costs, uint32_t ranks);

/// How even attention's work, Σ length² of each pack, is over ranks that take packs in turn: pack i
/// goes to rank i mod ranks.
struct RankBalance {
  double spread = 0;  ///< (largest − smallest) / mean of the ranks' sums
  double idle = 0;    ///< share of all time that ranks wait for the slowest of their step, 0 to 1
};

/// Of all packs in this order. Throws UsageError for no ranks.
RankBalance rank_balance(const Packing& packing, const Order& order, uint32_t ranks);

// A stream of sequences, packed as they come in bounded memory.

/// Some tokens of a sequence in a pack.
struct Entry {
  uint64_t sequence = 0;  ///< its number in the stream
  uint64_t begin = 0;     ///< first of its tokens; 0 unless it is split
  uint32_t length = 0;    ///< tokens
  uint32_t start = 0;     ///< where they begin in the pack
  bool operator==(const Entry&) const = default;
};

struct StreamOptions {
  uint32_t max_length = 0;    ///< L, tokens of a pack
  uint32_t window = 1000;     ///< W, pieces that wait for others at most
  uint32_t max_per_pack = 0;  ///< D; 0: any number
  TooLong policy = TooLong::error;
};

/// Holds a window of pieces. When it is full, packs close until a quarter is left: each begins with
/// the longest piece, then takes what fills it best, looking two pieces ahead (of equally long ones
/// the first that came). Every sequence is in exactly one pack; the same stream gives the same
/// packs. Memory: a few words for each piece of the window and each length up to the maximum.
class StreamPacker {
 public:
  /// Throws UsageError for a maximum of 0 or above 2^28, or a window of 0 or above 2^28.
  explicit StreamPacker(const StreamOptions& options);
  ~StreamPacker();
  StreamPacker(StreamPacker&&) noexcept;
  StreamPacker& operator=(StreamPacker&&) noexcept;

  /// Takes the next sequence, number 0, 1, … Packs that close are then to be had from next(). Throws
  /// Error for a length of 0, or one above the maximum where the policy is error.
  void push(uint64_t length);

  /// The next pack that is closed, in descending order of lengths; empty where there is none. It is
  /// good until the next call.
  std::span<const Entry> next();

  /// Closes all packs: the stream is at its end.
  void finish();

  /// What was pushed so far: sequences, tokens, those too long. Its histogram is not kept.
  const Input& seen() const;

 private:
  class Window;
  std::unique_ptr<Window> window_;
};

}  // namespace tessera::pack
