// Histograms on a coarser scale, for maxima that are too long for exact tables.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <vector>

namespace tessera::pack {

/// A histogram whose unit is `unit` tokens. Rounded up, what packs its lengths packs the true ones.
/// Rounded down, it needs no more packs than the true one, so that its bound holds for that.
class CoarseScale {
 public:
  /// With a maximum of about `coarse_maximum`.
  CoarseScale(const Histogram& histogram, uint32_t coarse_maximum)
      : histogram_(histogram), unit_((histogram.max_length() + coarse_maximum - 1) / coarse_maximum) {}

  Histogram rounded_up() const;
  Histogram rounded_down() const;  ///< lengths below a unit are left out

  /// Packs of the true sequences out of those of rounded_up().
  std::vector<Strategy> packs_of(std::vector<Strategy> coarse) const;
  /// The certificate of rounded_down(), for the true histogram.
  Certificate certificate_of(const Certificate& coarse) const;

 private:
  uint32_t coarse_maximum() const { return histogram_.max_length() / unit_; }

  const Histogram& histogram_;
  uint32_t unit_;
};

}  // namespace tessera::pack
