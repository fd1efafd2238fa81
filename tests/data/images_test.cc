// Labelled images: official formats, damaged ones, synthetic ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/images.h>

#include <cstdlib>
#include <numeric>

#include "io/files.h"
#include "support/error_of.h"
#include "support/gzipped.h"

namespace tessera {
namespace {

using test::gzipped;
using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

std::string idx(const std::vector<uint32_t>& sides, const std::string& elements) {
  std::string file{'\0', '\0', '\x08', static_cast<char>(sides.size())};
  for (uint32_t side : sides) file += big_endian(side);
  return file + elements;
}

/// Pixels 0, 1, 2, …
std::string pixels(size_t count) {
  std::string bytes(count, '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  return bytes;
}

std::string labels(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i % 10);
  return bytes;
}

void write_mnist(const TemporaryFolder& folder, const std::string& prefix, uint32_t count) {
  folder.write(prefix + "-images-idx3-ubyte.gz", gzipped(idx({count, 2, 3}, pixels(size_t{count} * 6))));
  folder.write(prefix + "-labels-idx1-ubyte", idx({count}, labels(count)));
}

TEST(Images, IdxFilesAreReadAsTheyAreAndCompressed) {
  const TemporaryFolder folder;
  const std::string images = idx({3, 2, 4}, pixels(24));
  const std::string classes = folder.write("l", gzipped(idx({3}, std::string("\x09\x00\x04", 3))));
  for (const std::string& content : {images, gzipped(images)}) {
    const ImageSet set = read_idx_images(folder.write("i", content), classes);
    EXPECT_EQ(set.count(), 3u);
    EXPECT_EQ(set.height, 2u);
    EXPECT_EQ(set.width, 4u);
    EXPECT_THAT(set.labels, ElementsAre(9, 0, 4));
    EXPECT_THAT(set.image(1), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  }
}

std::string idx_error(const std::string& images, const std::string& classes) {
  const TemporaryFolder folder;
  const std::string i = folder.write("images", images), l = folder.write("labels", classes);
  return test::error_of([&] { read_idx_images(i, l); });
}

TEST(Images, DamagedIdxFilesAreRefused) {
  const std::string images = idx({2, 2, 2}, pixels(8)), classes = idx({2}, labels(2));
  EXPECT_THAT(idx_error("\x1f" + images, classes), HasSubstr("images: not an IDX file"));
  EXPECT_THAT(idx_error(images.substr(0, 10), classes), HasSubstr("10 bytes; the header alone has 16"));
  EXPECT_THAT(idx_error(images.substr(0, 20), classes),
              HasSubstr("4 bytes of elements; its header promises 8"));
  EXPECT_THAT(idx_error(images + "x", classes), HasSubstr("9 bytes of elements"));
  EXPECT_THAT(idx_error(classes, classes), HasSubstr("in 1 dimensions; expected bytes (type 8) in 3"));
  EXPECT_THAT(idx_error(images, idx({3}, labels(3))), HasSubstr("labels: 3 labels for the 2 images"));
  EXPECT_THAT(idx_error(images, idx({2}, "\x01\x0A")), HasSubstr("label 10 of image 1; classes are 0 to 9"));
  EXPECT_THAT(idx_error(idx({2, 0, 2}, ""), classes), HasSubstr("a side of 0"));
  EXPECT_THAT(idx_error(idx({1u << 31, 1u << 31, 4}, ""), classes), HasSubstr("a side of 2147483648"));
  const std::string compressed = gzipped(images);
  EXPECT_THAT(idx_error(compressed.substr(0, compressed.size() / 2), classes), HasSubstr("truncated"));
  std::string damaged = compressed;
  damaged[compressed.size() - 6] ^= 1;  // the checksum
  EXPECT_THAT(idx_error(damaged, classes), HasSubstr("damaged"));
}

TEST(Images, SidesHave4096PixelsAtMost) {
  EXPECT_EQ(idx_error(idx({1, 1, 4096}, pixels(4096)), idx({1}, labels(1))), "(no error)");
  EXPECT_EQ(idx_error(idx({1, 4096, 1}, pixels(4096)), idx({1}, labels(1))), "(no error)");
  EXPECT_THAT(idx_error(idx({1, 1, 4097}, pixels(4097)), idx({1}, labels(1))), HasSubstr("a side of 4097"));
  EXPECT_THAT(idx_error(idx({1, 4097, 1}, pixels(4097)), idx({1}, labels(1))), HasSubstr("a side of 4097"));
}

TEST(Images, CifarBatchesAreRecords) {
  const TemporaryFolder folder;
  const std::string record = std::string(1, 3) + pixels(3072);
  const ImageSet set = read_cifar10(folder.write("b.bin", record + record));
  EXPECT_EQ(set.count(), 2u);
  EXPECT_EQ(set.image_size(), 3072u);
  EXPECT_EQ(set.image(1)[1], 1u);
  EXPECT_THAT(set.labels, ElementsAre(3, 3));
  const std::string bad = folder.write("bad.bin", record + "x");
  EXPECT_ERROR("records of 3073", read_cifar10(bad));
  const std::string none = folder.write("none.bin", "");
  EXPECT_ERROR("0 bytes", read_cifar10(none));
}

TEST(Images, AFolderWithTestFilesOnlyIsSplit) {
  const TemporaryFolder folder;
  write_mnist(folder, "t10k", 50);
  const ImageSplit split = load_images(folder.path().string());
  EXPECT_EQ(split.train.count(), 40u);
  EXPECT_EQ(split.test.count(), 10u);
  EXPECT_EQ(split.test.image(0)[0], 240 % 256);
  EXPECT_EQ(split.test.labels[3], 3u);
  write_mnist(folder, "train", 20);
  const ImageSplit whole = load_images(folder.path().string(), "mnist");
  EXPECT_EQ(whole.train.count(), 20u);
  EXPECT_EQ(whole.test.count(), 50u);
}

TEST(Images, AFolderWithoutImagesSaysWhatIsExpected) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  EXPECT_ERROR("t10k-images-idx3-ubyte", load_images(path));
  EXPECT_ERROR("choose from mnist, cifar-10", load_images(path, "svhn"));
  folder.write("test_batch.bin", std::string(1, 1) + pixels(3072));
  EXPECT_ERROR("data_batch_1.bin is missing", load_images(path));
}

TEST(Images, OfficialFilesAreRead) {
  const char* data = std::getenv("TESSERA_DATA");
  if (data == nullptr) GTEST_SKIP() << "TESSERA_DATA names no folder with mnist/ and cifar-10-batches-bin/";
  const ImageSplit mnist = load_images(data, "mnist");
  EXPECT_EQ(mnist.test.height, 28u);
  EXPECT_GE(mnist.train.count() + mnist.test.count(), 10'000u);
  const ImageSplit cifar = load_images(data, "cifar-10");
  EXPECT_EQ(cifar.train.count(), 50'000u);
  EXPECT_EQ(cifar.test.count(), 10'000u);
}

TEST(Images, MadeUpOnesFollowFromTheSeed) {
  const ImageSplit a = synthetic_images(300, 60, 5), b = synthetic_images(300, 60, 5),
                   c = synthetic_images(300, 60, 6);
  EXPECT_EQ(a.train.pixels, b.train.pixels);
  EXPECT_EQ(a.test.labels, b.test.labels);
  EXPECT_NE(a.train.pixels, c.train.pixels);
  std::vector<int> of_class(10);
  for (uint8_t label : a.train.labels) ++of_class.at(label);
  for (int count : of_class) EXPECT_GT(count, 10);
}

TEST(Images, MadeUpOnesFitInMemory) {
  EXPECT_ERROR("synthetic images of 16777216 pixels needs 18.0 PB of memory",
               synthetic_images(1 << 30, 1, 0, {4096, 4096, 2}));
}

}  // namespace
}  // namespace tessera
