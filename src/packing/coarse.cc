#include "packing/coarse.h"

#include <algorithm>

#include "packing/slots.h"

namespace tessera::pack {

Histogram CoarseScale::rounded_up() const {
  Histogram coarse = Histogram::of_max_length(coarse_maximum());
  for (uint32_t l = 1; l <= histogram_.max_length(); ++l) {
    // Lengths beyond the last whole unit fill a pack by themselves in either case.
    const uint32_t length = std::min((l - 1) / unit_ + 1, coarse_maximum());
    coarse.counts[length] += histogram_.counts[l];
  }
  return coarse;
}

Histogram CoarseScale::rounded_down() const {
  Histogram coarse = Histogram::of_max_length(coarse_maximum());
  for (uint32_t l = unit_; l <= histogram_.max_length(); ++l)
    coarse.counts[l / unit_] += histogram_.counts[l];
  return coarse;
}

std::vector<Strategy> CoarseScale::packs_of(std::vector<Strategy> coarse) const {
  for (Strategy& strategy : coarse)
    for (Part& part : strategy.parts)
      part.length = part.length == coarse_maximum() ? histogram_.max_length() : part.length * unit_;
  Histogram left = histogram_;
  return fill_slots(coarse, left);
}

Certificate CoarseScale::certificate_of(const Certificate& coarse) const {
  Certificate certificate = coarse;
  certificate.histogram = histogram_;
  certificate.weights.assign(histogram_.counts.size(), 0);
  for (uint32_t l = unit_; l <= histogram_.max_length(); ++l)
    certificate.weights[l] = coarse.weights[l / unit_];
  return certificate;
}

}  // namespace tessera::pack
