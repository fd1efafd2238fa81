#include "base/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

namespace tessera::base {
namespace {

TEST(Checksum, OfPiecesIsThatOfTheWhole) {
  std::vector<std::byte> bytes(101);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(7 * i);
  const std::span<const std::byte> all(bytes);
  for (const size_t piece : {8U, 24U, 104U}) {
    Checksum sum;
    for (size_t at = 0; at < all.size(); at += piece)
      sum.add(all.subspan(at, std::min(piece, all.size() - at)));
    EXPECT_EQ(sum.value(), checksum(all)) << piece;
  }
  EXPECT_NE(checksum(all), checksum(all.first(100)));
}

}  // namespace
}  // namespace tessera::base
