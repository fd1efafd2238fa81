#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

using Family = std::span<const CodeletSamples> (*)();

constexpr Family kFamilies[] = {
#define TESSERA_FAMILY(family) family##_samples,
    TESSERA_CODELET_FAMILIES(TESSERA_FAMILY)
#undef TESSERA_FAMILY
};

}  // namespace

std::vector<CodeletSamples> all_samples() {
  std::vector<CodeletSamples> all;
  for (Family family : kFamilies) all.insert(all.end(), family().begin(), family().end());
  return all;
}

std::span<const NamedSample> samples_of(const program::Codelet& codelet) {
  for (const CodeletSamples& listed : all_samples())
    if (listed.codelet == &codelet) return listed.samples;
  return {};
}

}  // namespace tessera::kernels
