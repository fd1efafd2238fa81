// Arrays of ONNX files, and what is computed of them while models are read.
#include <gtest/gtest.h>

#include <cstdint>

#include "onnx/run.h"

namespace tessera::onnx {
namespace {

using graph::WideArrays;
using test::Numbers;
using test::OnnxFile;
using test::run;

TEST(OnnxConstants, RangesAndStepsMayBeLarge) {
  constexpr int64_t kLarge = int64_t{1} << 62;
  OnnxFile file;
  file.output("y").output("z").output("s");
  file.integers("least", {}, {kLarge}).integers("end", {}, {kLarge + 3}).integers("by", {}, {1});
  file.node("Range", {"least", "end", "by"}, {"r"}).node("Sub", {"r", "least"}, {"y"});
  file.integers("lowest", {}, {INT64_MIN}).integers("highest", {}, {INT64_MAX});
  file.node("Range", {"lowest", "highest", "least"}, {"w"}).node("Div", {"w", "least"}, {"z"});
  file.integers("x", {2}, {5, 6}).integers("zero", {1}, {0}).integers("steps", {1}, {INT64_MAX});
  file.integers("ends", {1}, {2}).node("Slice", {"x", "zero", "ends", "zero", "steps"}, {"s"});
  const WideArrays results = run(file, {});
  EXPECT_EQ(results.at("y"), (Numbers{0, 1, 2}));
  EXPECT_EQ(results.at("z"), (Numbers{-2, -1, 0, 1}));
  EXPECT_EQ(results.at("s"), (Numbers{5}));
}

}  // namespace
}  // namespace tessera::onnx
