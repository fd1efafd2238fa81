// Sequence packing: joining sequences into packs of a maximum length, so that little is padding.
#pragma once

#include <cstdint>
#include <functional>
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

}  // namespace tessera::pack
