// The search over the chips of a machine that a product or a graph takes.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

namespace tessera::bound {

/// The most chips that are tried for speed, if fewer suffice.
inline constexpr uint32_t kMostForSpeed = 4;

/// What is known of a candidate.
struct ChipCost {
  bool fits = false;
  double seconds = 0;
  double bytes = 0;  ///< what its tiles need, or lack, if it does not fit
};

/// The best candidate: the fastest that fits, or if none does, the one with the fewest bytes; the first among
/// equals.
template <class Candidate>
class BestOnChips {
 public:
  /// Returns whether the candidate is the best so far.
  bool consider(const ChipCost& cost, Candidate candidate) {
    const bool is_better =
        !best_ || (cost.fits && !cost_.fits) ||
        (cost.fits == cost_.fits && (cost.fits ? cost.seconds < cost_.seconds : cost.bytes < cost_.bytes));
    if (!is_better) return false;
    cost_ = cost;
    best_ = std::move(candidate);
    return true;
  }

  bool fits() const { return best_ && cost_.fits; }
  Candidate& best() { return *best_; }

 private:
  ChipCost cost_;
  std::optional<Candidate> best_;
};

}  // namespace tessera::bound
