// Tests on every instruction set of the processor.
#pragma once

#include <gtest/gtest.h>

#include "base/isa.h"

namespace tessera::test {

/// Calls body() on each instruction set; afterwards kernels use the best one again.
template <class Body>
void on_every_isa(const Body& body) {
  const struct BestAgain {
    ~BestAgain() { restrict_isa(available_isas().back()); }
  } best_again;
  for (const Isa isa : available_isas()) {
    restrict_isa(isa);
    SCOPED_TRACE(name_of(isa));
    body();
  }
}

/// A fixture of tests that run separately for each instruction set.
class EveryIsa : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { restrict_isa(GetParam()); }
  void TearDown() override { restrict_isa(available_isas().back()); }
};

#define TESSERA_ON_EVERY_ISA(Fixture)                                            \
  INSTANTIATE_TEST_SUITE_P(Isas, Fixture, ::testing::ValuesIn(available_isas()), \
                           [](const auto& isa) { return std::string(name_of(isa.param)); })

}  // namespace tessera::test
