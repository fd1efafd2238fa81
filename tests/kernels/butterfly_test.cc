// Butterflies whose strides sweep over several chunks: larger than the samples of the test of all codelets.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/isa.h"
#include "kernels/host/butterfly/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

void expect_reference(const NamedSample& named, const program::Codelet& codelet, uint32_t scale) {
  const Sample sample = named.make(scale, scale);
  const SampleVertex plain(sample);
  codelet.reference(plain.vertex());
  for (Isa isa : available_isas()) {
    if (isa == Isa::generic) continue;
    restrict_isa(isa);
    SCOPED_TRACE(fmt::format("{}/{}, {}, scale {}", codelet.name, named.name, name_of(isa), scale));
    const SampleVertex fast(sample);
    codelet.simd(fast.vertex());
    for (size_t f = 0; f < sample.fields().size(); ++f)
      for (uint32_t r = 0; !codelet.fields[f].scratch && r < sample.fields()[f].rows; ++r)
        for (uint32_t c = 0; c < sample.fields()[f].cols; ++c)
          ASSERT_NEAR(fast.at(f, r, c), plain.at(f, r, c),
                      sample.tolerance().absolute + sample.tolerance().relative * std::abs(plain.at(f, r, c)))
              << codelet.fields[f].name << " (" << r << ", " << c << ")";
    ASSERT_TRUE(fast.surroundings_untouched());
  }
  restrict_isa(available_isas().back());
}

TEST(ButterflyTest, SweepsOverChunksAgreeWithTheReference) {
  for (const program::Codelet* codelet : {&butterfly_forward_codelet, &butterfly_gradients_codelet})
    for (const NamedSample& named : samples_of(*codelet))
      for (uint32_t scale : {64U, 128U}) expect_reference(named, *codelet, scale);
}

TEST(ButterflyTest, SeveralSweepsAgreeWithTheReference) {
  for (const program::Codelet* codelet : {&butterfly_forward_codelet, &butterfly_gradients_codelet})
    for (const NamedSample& named : samples_of(*codelet))
      if (named.name.starts_with("n19")) expect_reference(named, *codelet, 1024);
}

}  // namespace
}  // namespace tessera::kernels
