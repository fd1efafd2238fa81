// Histograms on a coarser scale, for maxima too long for exact tables.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <vector>

namespace tessera::pack {

/// A histogram in units of `unit` tokens. A packing of lengths rounded up is one of the true lengths. Lengths
/// rounded down need no more packs than the true lengths, so their bound is valid for these.
class CoarseScale {
 public:
  /// A scale on which the maximum is about `coarse_maximum`.
  CoarseScale(const Histogram& histogram, uint32_t coarse_maximum)
      : histogram_(histogram), unit_((histogram.max_length() + coarse_maximum - 1) / coarse_maximum) {}

  Histogram rounded_up() const;
  Histogram rounded_down() const;  ///< lengths below one unit are omitted

  /// Converts packs of rounded_up() to packs of the true sequences.
  std::vector<Strategy> packs_of(std::vector<Strategy> coarse) const;
  /// Converts the certificate of rounded_down() to one of the true histogram.
  Certificate certificate_of(const Certificate& coarse) const;

 private:
  uint32_t coarse_maximum() const { return histogram_.max_length() / unit_; }

  const Histogram& histogram_;
  uint32_t unit_;
};

}  // namespace tessera::pack
