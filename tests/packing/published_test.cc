// The published pack counts of BERT's pre-training and of SQuAD, if $TESSERA_DATA has the lengths.
#include <gtest/gtest.h>
#include <tessera/packing.h>

#include "packing/histograms.h"
#include "support/number_of.h"

namespace tessera::pack {
namespace {

struct Reference {
  uint32_t max_per_pack;
  uint64_t spfhp;
  uint64_t lpfhp;
  uint64_t fewest;  // proven
};

void expect_reference(const Histogram& histogram, const Reference& reference) {
  SCOPED_TRACE(reference.max_per_pack);
  const auto packed = [&](Algorithm algorithm) {
    return plan(histogram, {.algorithm = algorithm, .max_per_pack = reference.max_per_pack});
  };
  EXPECT_EQ(packed(Algorithm::spfhp).packs(), reference.spfhp);
  EXPECT_EQ(packed(Algorithm::lpfhp).packs(), reference.lpfhp);
  const Packing best = packed(Algorithm::best);
  EXPECT_NO_THROW(verify(best, histogram));
  EXPECT_NO_THROW(verify(best.certificate));
  EXPECT_EQ(best.lower_bound(), reference.fewest);
  EXPECT_EQ(best.packs(), reference.fewest);
}

double nnlshp_efficiency(const Histogram& histogram) {
  return plan(histogram, {.algorithm = Algorithm::nnlshp, .max_per_pack = 3}).efficiency();
}

TEST(Published, Wikipedia) {
#ifdef TESSERA_SANITIZED
  if (!test::is_full()) GTEST_SKIP() << "SQuAD takes the same ways, in a tenth of the time";
#endif
  const std::optional<Histogram> histogram = test::published("wikipedia-512", 512);
  if (!histogram) GTEST_SKIP() << "set TESSERA_DATA to a folder with lengths/wikipedia-512.csv";
  const Reference references[] = {{1, 16279552, 16279552, 16279552}, {2, 10101683, 10099081, 10099081},
                                  {3, 9094695, 9090154, 8143829},    {4, 8658996, 8657119, 8135727},
                                  {8, 8224673, 8207569, 8135727},    {12, 8166708, 8149619, 8135727},
                                  {16, 8166708, 8140006, 8135727},   {0, 8166708, 8138483, 8135727}};
  for (const Reference& reference : references) expect_reference(*histogram, reference);
  EXPECT_GT(nnlshp_efficiency(*histogram), 0.9975);
}

TEST(Published, Squad) {
  const std::optional<Histogram> histogram = test::published("squad1.1-384", 384);
  if (!histogram) GTEST_SKIP() << "set TESSERA_DATA to a folder with lengths/squad1.1-384.csv";
  const Reference references[] = {{1, 88641, 88641, 88641},
                                  {2, 45335, 45335, 45335},
                                  {3, 40711, 40631, 40195},
                                  {4, 40711, 40631, 40195},
                                  {0, 40711, 40631, 40195}};
  for (const Reference& reference : references) expect_reference(*histogram, reference);
  EXPECT_GT(nnlshp_efficiency(*histogram), 0.9731);
}

}  // namespace
}  // namespace tessera::pack
