// Elements that are chosen, counted or made by their positions.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "onnx/run.h"
#include "support/error_of.h"

namespace tessera::onnx {
namespace {

using test::Numbers;
using test::OnnxFile;
using test::run;

/// An operator with an input x [2, 3] of 1, 2, …, 6, and constants: integers "c", and "holds", where they are
/// not 0.
Numbers result(const char* operation, const std::vector<std::string>& inputs,
               const std::vector<OnnxFile::Attribute>& attributes = {}, const std::vector<int64_t>& c = {}) {
  OnnxFile file;
  file.input("x", {2, 3}).output("y").integers("c", {static_cast<int64_t>(c.size())}, c);
  file.node("Cast", {"c"}, {"holds"}, {{"to", int64_t{test::kBool}}});
  file.node(operation, inputs, {"y"}, attributes);
  return run(file, {{"x", {1, 2, 3, 4, 5, 6}}}).at("y");
}

TEST(OnnxSelection, ElementsAreTakenByTruthValues) {
  const OnnxFile::Attribute columns("axis", int64_t{1});
  EXPECT_EQ(result("Compress", {"x", "holds"}, {columns}, {0, 1, 1}), (Numbers{2, 3, 5, 6}));
  EXPECT_EQ(result("Compress", {"x", "holds"}, {}, {0, 1, 0, 0, 1}), (Numbers{2, 5}));
  EXPECT_ERROR("nothing is left", result("Compress", {"x", "holds"}, {columns}, {0, 0, 0}));
  EXPECT_ERROR("the index 3 is beyond the size 3",
               result("Compress", {"x", "holds"}, {columns}, {0, 0, 0, 1}));
}

/// As exporters write patches of images: by two tables of indices, and six dimensions between them.
TEST(OnnxSelection, PatchesPassThroughSixDimensions) {
  OnnxFile file;
  file.input("x", {1, 2, 2, 3}).output("y").integers("rows", {2, 1}, {0, 1});
  file.integers("columns", {2, 2}, {0, 1, 1, 2}).integers("shape", {3}, {1, 8, 2});
  file.node("Gather", {"x", "rows"}, {"r"}, {{"axis", int64_t{2}}})
      .node("Gather", {"r", "columns"}, {"c"}, {{"axis", int64_t{4}}})
      .node("Transpose", {"c"}, {"t"}, {{"perm", std::vector<int64_t>{0, 1, 2, 4, 3, 5}}})
      .node("Reshape", {"t", "shape"}, {"y"});
  EXPECT_EQ(run(file, {{"x", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}}).at("y"),
            (Numbers{1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11, 12}));
}

TEST(OnnxSelection, MiddlesAreCroppedOrPadded) {
  EXPECT_EQ(result("CenterCropPad", {"x", "c"}, {}, {1, 5}), (Numbers{0, 1, 2, 3, 0}));
  EXPECT_EQ(result("CenterCropPad", {"x", "c"}, {{"axes", std::vector<int64_t>{-1}}}, {1}), (Numbers{2, 5}));
  EXPECT_ERROR("1 sizes for 2 dimensions", result("CenterCropPad", {"x", "c"}, {}, {1}));
}

TEST(OnnxSelection, EndsArePaddedWithWhatIsLeft) {
  const auto padded = [](const char* mode, const std::vector<int64_t>& pads) {
    return result("Pad", {"x", "c"}, {{"mode", mode}}, pads);
  };
  EXPECT_EQ(padded("wrap", {0, -1, 0, 1}), (Numbers{2, 3, 2, 5, 6, 5}));
  EXPECT_EQ(padded("wrap", {0, 3, 0, -1}), (Numbers{2, 1, 2, 1, 2, 5, 4, 5, 4, 5}));
  EXPECT_EQ(padded("edge", {0, -2, 1, 1}), (Numbers{3, 3, 6, 6, 6, 6}));
  EXPECT_EQ(padded("reflect", {0, 1, 0, -1}), (Numbers{2, 1, 2, 5, 4, 5}));
  EXPECT_ERROR("padding of 0 and 3 by 'reflect' takes more elements than the 3 that there are",
               padded("reflect", {0, 0, 0, 3}));
  EXPECT_ERROR("padding by 'odd' is not possible", padded("odd", {0, 0, 0, 3}));
}

TEST(OnnxSelection, ProductsAreCumulated) {
  EXPECT_EQ(result("CumProd", {"x", "c"}, {}, {1}), (Numbers{1, 2, 6, 4, 20, 120}));
  EXPECT_EQ(result("CumProd", {"x", "c"}, {{"reverse", int64_t{1}}, {"exclusive", int64_t{1}}}, {1}),
            (Numbers{6, 3, 1, 30, 6, 1}));
}

TEST(OnnxSelection, LargestElementsAndDiagonalsAreOne) {
  EXPECT_EQ(result("Hardmax", {"x"}), (Numbers{0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(result("Hardmax", {"x"}, {{"axis", int64_t{0}}}), (Numbers{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(result("EyeLike", {"x"}, {{"k", int64_t{1}}}), (Numbers{0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(result("EyeLike", {"x"}, {{"k", int64_t{-1}}}), (Numbers{0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(result("EyeLike", {"x"}, {{"k", INT64_MIN}}), (Numbers{0, 0, 0, 0, 0, 0}));
}

TEST(OnnxSelection, IndicesMayBeOfBatches) {
  OnnxFile file;
  file.input("x", {2, 3, 2}).input("i", {2, 2, 1}, test::kInt64).output("y");
  file.node("GatherND", {"x", "i"}, {"y"}, {{"batch_dims", int64_t{1}}});
  Numbers x(12);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  EXPECT_EQ(run(file, {{"x", x}, {"i", {0, 2, -1, 1}}}).at("y"), (Numbers{0, 1, 4, 5, 10, 11, 8, 9}));
  OnnxFile other;
  other.input("x", {3, 2}).input("i", {2, 1}, test::kInt64).output("y");
  other.node("GatherND", {"x", "i"}, {"y"}, {{"batch_dims", int64_t{1}}});
  EXPECT_ERROR("indices of [2, 1] are not possible for [3, 2]", run(other, {}));
}

TEST(OnnxSelection, PartsMayHaveNoElements) {
  OnnxFile file;
  file.input("x", {2, 3}).output("y").integers("sizes", {2}, {3, 0});
  file.node("Split", {"x", "sizes"}, {"a", "b"}, {{"axis", int64_t{1}}});
  file.node("Concat", {"b", "a"}, {"y"}, {{"axis", int64_t{1}}});
  EXPECT_EQ(run(file, {{"x", {1, 2, 3, 4, 5, 6}}}).at("y"), (Numbers{1, 2, 3, 4, 5, 6}));
}

TEST(OnnxSelection, BitsAreThoseOfTheType) {
  constexpr int32_t kUint8 = 2, kInt8 = 3, kUint64 = 13;
  OnnxFile file;
  file.input("n", {3}, kUint8).output("i").output("s").output("b").output("r").output("l");
  file.initializer("c", {2}, kUint8).set_raw_data("\x81\x03", 2);
  file.node("BitwiseNot", {"n"}, {"i"}).node("BitShift", {"c", "d"}, {"s"}, {{"direction", "LEFT"}});
  file.initializer("d", {}, kUint8).set_raw_data("\x01", 1);
  file.node("BitwiseXor", {"c", "d"}, {"b"});
  file.initializer("m", {4}, kInt8).set_raw_data("\xF8\xF8\xF8\x08", 4);
  file.initializer("by", {4}, kInt8).set_raw_data("\x01\x40\xFF\x01", 4);
  file.node("BitShift", {"m", "by"}, {"r"}, {{"direction", "RIGHT"}});
  file.integers("long", {2}, {-8, 8}).integers("one", {}, {1});
  file.node("BitShift", {"long", "one"}, {"l"}, {{"direction", "RIGHT"}});
  const auto results = run(file, {{"n", {0, 1, 255}}});
  EXPECT_EQ(results.at("i"), (Numbers{255, 254, 0}));
  EXPECT_EQ(results.at("s"), (Numbers{2, 6}));
  EXPECT_EQ(results.at("b"), (Numbers{0x80, 2}));
  EXPECT_EQ(results.at("r"), (Numbers{-4, -1, -1, 4}));
  EXPECT_EQ(results.at("l"), (Numbers{-4, 4}));
  OnnxFile wide;
  wide.input("n", {1}, kUint64).output("y").node("BitwiseNot", {"n"}, {"y"});
  EXPECT_ERROR("the bits that it sets are beyond 32", run(wide, {}));
}

}  // namespace
}  // namespace tessera::onnx
