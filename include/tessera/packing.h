// Sequence packing: joins sequences into packs of a maximum length to avoid padding. Planners and lower-bound
// proofs for a histogram; packs of a data set as index arrays; inputs of a training batch of packs; streams
// in bounded memory.
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

/// Number of sequences of each length: all that a planner needs.
struct Histogram {
  /// counts[l] sequences have length l, in tokens; counts[0] is 0. There is an entry for every length that
  /// fits in a pack, so counts has max_length() + 1 entries.
  std::vector<uint64_t> counts = {0};

  /// An empty histogram for packs of `max_length` tokens.
  static Histogram of_max_length(uint32_t max_length);

  uint32_t max_length() const { return static_cast<uint32_t>(counts.size() - 1); }  ///< L
  uint64_t sequences() const;                                                       ///< N
  uint64_t tokens() const;
};

/// Throws UsageError unless the maximum is 1 to 2^28, no sequence has length 0, and all sequences padded to
/// the maximum have fewer than 2^63 tokens in total, so that no sum overflows.
void require_sane(const Histogram& histogram);

/// Sequences of equal length in one pack.
struct Part {
  uint32_t length = 0;
  uint32_t copies = 0;
  bool operator==(const Part&) const = default;
};

/// The contents of a pack, and the number of packs with these contents.
struct Strategy {
  std::vector<Part> parts;  ///< by descending length, each length once
  uint64_t count = 0;

  uint64_t tokens() const;  ///< per pack, at most the maximum
  uint64_t depth() const;   ///< sequences in one pack
  bool operator==(const Strategy&) const = default;
};

/// A proof that no packing has fewer packs, verifiable in integer arithmetic: give each sequence of length l
/// the weight weights[l]. If no pack can hold more than `heaviest`, at least ⌈Σ counts[l] · weights[l] /
/// heaviest⌉ packs are needed. (Weights are the duals of the linear program over all strategies, Gilmore and
/// Gomory 1961, scaled and rounded down.)
struct Certificate {
  Histogram histogram;
  uint32_t max_per_pack = 0;      ///< D; 0: any number
  std::vector<uint64_t> weights;  ///< one per length, as in Histogram::counts; weights[0] is 0
  uint64_t heaviest = 1;          ///< no pack weighs more
  uint64_t lower_bound = 0;       ///< ⌈Σ counts · weights / heaviest⌉
};

/// Checks by a knapsack over all possible packs that no pack is heavier than `heaviest`, and recomputes the
/// bound from the histogram and the weights, in integers. Throws Error, naming both values, if the
/// certificate disagrees; UsageError for a histogram out of range or inconsistent sizes.
void verify(const Certificate& certificate);

/// Writes and reads a certificate as JSON; docs/packing.md describes the file and how to check it. Throw
/// Error, naming the file, if that fails or the file is malformed; reading does not verify.
void save_certificate(const std::string& path, const Certificate& certificate);
Certificate load_certificate(const std::string& path);

/// How sequences are joined.
enum class Algorithm : uint8_t {
  best,      ///< column generation and rounding: fewest packs, with the sharpest bound
  spfhp,     ///< shortest-pack-first: descending lengths, each into the emptiest pack
  lpfhp,     ///< longest-pack-first: descending lengths, each into the fullest pack with enough space
  nnlshp,    ///< non-negative least squares over all full packs of at most three sequences
  ffd,       ///< first-fit decreasing
  next_fit,  ///< one open pack; for a histogram, in descending order of lengths
};

inline constexpr Algorithm algorithms[] = {Algorithm::best,   Algorithm::spfhp, Algorithm::lpfhp,
                                           Algorithm::nnlshp, Algorithm::ffd,   Algorithm::next_fit};

/// "best", "spfhp", …, "next-fit".
std::string_view name_of(Algorithm algorithm);

/// The algorithm with that name; throws UsageError, listing the names, for any other name.
Algorithm algorithm_named(std::string_view name);

/// Progress of a planner.
struct Progress {
  uint64_t packs = 0;        ///< number of packs in the best packing so far; 0: none yet
  uint64_t lower_bound = 0;  ///< lower bound proven so far
  double seconds = 0;        ///< time since the start
};

struct Options {
  Algorithm algorithm = Algorithm::best;
  uint32_t max_per_pack = 0;  ///< D, maximum number of sequences per pack; 0: any
  /// Also find the best bound and its certificate by column generation, whatever the algorithm. Otherwise the
  /// certificate is the one that the algorithm finds as a by-product.
  bool certify = false;
  double time_limit = 0;  ///< seconds after which the best packing so far is returned; 0: none
  uint64_t seed = 0;      ///< for random choices
  /// Called a few times per second during long searches; returning false ends them with the best packing so
  /// far.
  std::function<bool(const Progress&)> poll = {};
};

/// A packing of a histogram: every sequence in exactly one pack.
struct Packing {
  Algorithm algorithm = Algorithm::best;
  uint32_t max_length = 0;
  uint32_t max_per_pack = 0;  ///< as requested; 0: any
  std::vector<Strategy> strategies;
  uint64_t sequences = 0;
  uint64_t tokens = 0;
  Certificate certificate;  ///< proof of the lower bound
  bool cut_short = false;   ///< ended by the time limit or Options::poll, so not reproducible
  double seconds = 0;

  uint64_t packs() const;
  uint64_t lower_bound() const { return certificate.lower_bound; }
  uint64_t gap() const { return packs() - lower_bound(); }
  bool optimal() const { return gap() == 0; }
  uint64_t padding() const;       ///< tokens
  double efficiency() const;      ///< tokens / (packs · maximum), 0 to 1; 1 without packs
  double packing_factor() const;  ///< sequences / packs; 1 without packs
  /// depths()[d] packs hold d sequences.
  std::vector<uint64_t> depths() const;
};

/// Packs a histogram. The same histogram, options and seed give the same result, unless `cut_short` is set.
/// Throws UsageError for a histogram out of range or an unsuitable option: Algorithm::nnlshp packs up to
/// three sequences of up to 2,048 tokens, so it takes max_per_pack 0 and 3 only.
Packing plan(const Histogram& histogram, const Options& options = {});

/// Packs a subset of the sequences, such as one shard of a corpus, by a packing of all sequences: each
/// strategy is used in proportion, and left-over sequences are added longest-pack-first. Throws UsageError
/// for another maximum length, or for a histogram out of range.
Packing plan_shard(const Packing& whole, const Histogram& shard);

/// Throws Error, naming the wrong sequence or pack, unless the packing contains exactly the histogram's
/// sequences and no pack is too long or too deep.
void verify(const Packing& packing, const Histogram& histogram);

// Packs of a data set as index arrays: which sequences are in each pack, and where. The sequences themselves
// are neither read nor moved.

/// Lengths of sequences in input order, in place: in a caller's array or in a mapped file. Copies share a
/// mapping.
class Lengths {
 public:
  Lengths() = default;

  /// The lengths in an array, which must outlive this object.
  template <std::integral T>
  explicit Lengths(std::span<const T> lengths)
      : data_(lengths.data()), size_(lengths.size()), width_(sizeof(T)), signed_(std::signed_integral<T>) {}

  /// The lengths of concatenated documents: document i is [offsets[i], offsets[i + 1]).
  template <std::integral T>
  static Lengths of_offsets(std::span<const T> offsets) {
    Lengths lengths(offsets);
    lengths.differences_ = true;
    if (lengths.size_ > 0) --lengths.size_;
    return lengths;
  }

  uint64_t size() const { return size_; }

  /// Fills `out` with lengths `first`, first + 1, … Throws Error, naming the first wrong length, unless all
  /// are from 1 to 2^63 − 1.
  void read(uint64_t first, std::span<uint64_t> out) const;

  /// One length, unchecked.
  uint64_t operator[](uint64_t i) const;

  /// Throws Error "NAME: entry ENTRY: WHAT", or for a text file "NAME: line LINE: WHAT".
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
  bool swapped_ = false;      // not in the host's byte order
  bool differences_ = false;  // differences of neighbours
  bool lines_ = false;        // from a text file with one per line
  std::string name_ = "lengths";
  std::shared_ptr<const void> owner_;
};

/// Reads lengths: a one-dimensional `.npy` of any integer type, which stays mapped and must not shrink
/// meanwhile, or text with one length per line; "-" is text on standard input. Throws Error, naming the file
/// and line, if it cannot be read.
Lengths read_lengths(const std::string& path);

/// Reads offsets of n documents: a `.npy` of n + 1 non-decreasing integers.
Lengths read_offsets(const std::string& path);

/// Policies for sequences longer than the maximum.
enum class Overlong : uint8_t {
  error,     ///< reject the input
  drop,      ///< omit them
  truncate,  ///< keep the first tokens
  split,     ///< into pieces of the maximum length and a remainder
};

std::string_view name_of(Overlong policy);
/// Throws UsageError, listing the names, for any other name.
Overlong overlong_named(std::string_view name);

/// The sequences to pack. A sequence within the maximum is one piece.
struct Input {
  Histogram histogram;  ///< histogram of the pieces
  Overlong overlong = Overlong::error;
  uint64_t sequences = 0;           ///< sequences of the input, including overlong ones
  uint64_t tokens = 0;              ///< tokens of the input, including overlong sequences
  uint64_t overlong_sequences = 0;  ///< sequences longer than the maximum
  uint64_t lost_tokens = 0;         ///< dropped or truncated
};

/// Counts lengths. Throws Error, naming the first wrong length, if a length is out of range, or too long
/// under Overlong::error; UsageError for a maximum out of range.
Input count(const Lengths& lengths, uint32_t max_length, Overlong policy = Overlong::error);

/// Sequences of one length.
struct LengthCount {
  uint64_t length = 0;
  uint64_t count = 0;
};

/// Adds up counts of lengths, in any order; a length may occur more than once. Throws as count() of lengths
/// does.
Input count(std::span<const LengthCount> lengths, uint32_t max_length, Overlong policy = Overlong::error);

/// Reads a histogram: text with one `length,count` per line, in any order, with an optional header. Throws as
/// count() does, naming the line.
Input read_histogram(const std::string& path, uint32_t max_length, Overlong policy = Overlong::error);

/// The order of packs in the index.
struct OrderOptions {
  /// Seed of a random order; without it, packs with the same lengths follow one another.
  std::optional<uint64_t> shuffle = {};
  /// Above 1: orders packs so that ranks that take them round-robin (pack i to rank i mod ranks) have nearly
  /// the same attention cost, Σ length², in every step. Steps, not packs, are shuffled.
  uint32_t ranks = 0;
};

/// An array of unsigned integers, of 4 bytes each if that suffices, otherwise 8.
class IndexArray {
 public:
  IndexArray() = default;
  /// An array of `size` uninitialised elements, each of which can hold `largest`.
  IndexArray(uint64_t size, uint64_t largest);

  uint64_t size() const { return size_; }
  uint32_t width() const { return width_; }  ///< bytes per element: 4 or 8
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

/// Packs as arrays. Pack p has the entries offsets[p] to offsets[p + 1] − 1; an entry is a sequence of the
/// input, or a piece of one, and its position in the pack.
struct PackIndex {
  IndexArray offsets;   ///< one more than there are packs
  IndexArray sequence;  ///< per entry: position in the input
  IndexArray start;     ///< per entry: first token in its pack
  /// Per entry: the first of the sequence's tokens that is in the pack, and their number. Empty if no
  /// sequence was truncated or split: each entry is then a whole sequence.
  IndexArray begin;
  IndexArray length;
};

/// The index of a packing: `packing` is a plan of `input`'s histogram, and `input` the count of `lengths`.
/// Sequences of equal length are taken in input order. Temporarily takes memory for one more index per
/// sequence, and with OrderOptions for one index per pack. Throws UsageError if packing, input and lengths do
/// not belong together, Error if the lengths have changed or memory does not suffice.
PackIndex index_packs(const Packing& packing, const Input& input, const Lengths& lengths,
                      const OrderOptions& order = {});

/// The origin of the packs, for meta.json.
struct Provenance {
  std::string source;  ///< name of the lengths' source
  uint64_t seed = 0;   ///< seed of the plan
};

/// Time spent computing and writing.
struct WriteTimes {
  double computing = 0;  ///< seconds spent sorting and assembling
  double writing = 0;    ///< seconds spent writing to disk
};

/// Writes the index of a packing as a folder of `.npy` files and meta.json, completely or not at all; a
/// previous result is replaced (docs/packing.md describes the format). Arrays are written as they are
/// produced. `poll` is called from time to time with the fraction done. Throws as index_packs() does, and
/// Error if writing fails.
WriteTimes write_packs(const std::string& folder, const Packing& packing, const Input& input,
                       const Lengths& lengths, const OrderOptions& order, const Provenance& provenance,
                       const std::function<void(double)>& poll = {});

/// Writes the strategies of a histogram's packing as a folder with strategies.csv and meta.json.
void write_strategies(const std::string& folder, const Packing& packing, const Input& input,
                      const Provenance& provenance);

// Inputs of a training batch of packs: boundaries, positions and masks; and load balance over ranks.

/// Number of tokens of each entry of `packs` packs from `first_pack` on. `lengths` are the lengths that were
/// indexed. Throws UsageError for packs out of range.
std::vector<uint32_t> entry_lengths(const PackIndex& index, const Lengths& lengths, uint64_t first_pack,
                                    uint64_t packs = 1);

/// Prefix sums of lengths, starting with 0, as variable-length attention kernels take them. Throws Error if
/// the sum exceeds 2^31 − 1.
std::vector<int32_t> cu_seqlens(std::span<const uint32_t> lengths);

/// Positions of the tokens of a pack of out.size() tokens: they begin at `offset` in each sequence (RoBERTa:
/// 2), and are `padding` after the last sequence. Throws UsageError if the sequences are longer than the
/// pack, Error if a position exceeds 2^31 − 1.
void position_ids(std::span<const uint32_t> lengths, std::span<int32_t> out, int32_t offset = 0,
                  int32_t padding = 0);

/// For each token of a pack the number of its sequence in the pack, from 1 on; 0 for padding. Tokens with the
/// same non-zero number attend to each other: the block-diagonal mask. Throws as position_ids().
void sequence_ids(std::span<const uint32_t> lengths, std::span<int32_t> out);

/// Assigns packs to ranks such that the ranks' costs are balanced: packs by descending cost, one per rank in
/// each round, the most expensive to the rank with the lowest sum (Graham 1969, with equal numbers of packs).
/// `costs` may be Σ length². Throws UsageError for 0 ranks.
std::vector<uint32_t> assign_to_ranks(std::span<const uint64_t> costs, uint32_t ranks);

/// Load balance of attention, Σ length² of each pack, over ranks that take packs round-robin: pack i goes to
/// rank i mod ranks.
struct RankBalance {
  double spread = 0;  ///< (largest − smallest) / mean of the ranks' sums
  double idle = 0;    ///< fraction of the time that ranks wait for the slowest of their step, 0 to 1
};

/// Load balance of all packs in the given order. Throws UsageError for 0 ranks.
RankBalance rank_balance(const Packing& packing, const OrderOptions& order, uint32_t ranks);

// A stream of sequences, packed as they arrive, in bounded memory.

/// The tokens of a sequence, or of a piece of one, in a pack.
struct Entry {
  uint64_t sequence = 0;  ///< position of the sequence in the stream
  uint64_t begin = 0;     ///< first of the sequence's tokens in the pack; 0 unless the sequence is split
  uint32_t length = 0;    ///< tokens
  uint32_t start = 0;     ///< position of the tokens in the pack
  bool operator==(const Entry&) const = default;
};

struct StreamOptions {
  uint32_t max_length = 0;    ///< L, tokens per pack
  uint32_t window = 1000;     ///< W, maximum number of waiting pieces
  uint32_t max_per_pack = 0;  ///< D; 0: any number
  Overlong overlong = Overlong::error;
};

/// Holds a window of pieces. When it is full, packs close until a quarter of it is left: each begins with the
/// longest piece, then takes the pieces that fill it best, looking two pieces ahead (among pieces of equal
/// length the first to arrive). Every sequence is in exactly one pack; the same stream gives the same packs.
/// Memory: a few words for each piece of the window and each length up to the maximum.
class StreamPacker {
 public:
  /// Throws UsageError for a maximum of 0 or above 2^28, or a window of 0 or above 2^28.
  explicit StreamPacker(const StreamOptions& options);
  ~StreamPacker();
  StreamPacker(StreamPacker&&) noexcept;
  StreamPacker& operator=(StreamPacker&&) noexcept;

  /// Takes the next sequence, number 0, 1, … Packs that close as a result are available from next(). Throws
  /// Error for a length of 0, and for an overlong sequence under Overlong::error.
  void push(uint64_t length);

  /// The next closed pack, in descending order of lengths; empty if there is none. Valid until the next call.
  std::span<const Entry> next();

  /// Ends the stream: closes all packs.
  void finish();

  /// Counts of sequences and tokens pushed so far, and of overlong sequences; without a histogram.
  const Input& seen() const;

 private:
  class Window;
  std::unique_ptr<Window> window_;
};

}  // namespace tessera::pack
