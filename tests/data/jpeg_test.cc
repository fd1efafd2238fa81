// Images in JPEG files: regions of them, other sizes, folders.
#include "io/jpeg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/images.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/image_source.h"
#include "data/regions.h"
#include "io/files.h"
#include "support/error_of.h"
#include "support/jpeg_file.h"

namespace tessera::train {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;

TEST(Regions, FollowFromSeedEpochAndImage) {
  double area = 0, flipped = 0;
  constexpr uint32_t kCount = 2000, kHeight = 300, kWidth = 400;
  for (uint32_t image = 0; image < kCount; ++image) {
    const Region r = random_region(3, 2, image, kHeight, kWidth);
    EXPECT_EQ(r, random_region(3, 2, image, kHeight, kWidth));
    ASSERT_LE(r.top + r.height, kHeight);
    ASSERT_LE(r.left + r.width, kWidth);
    const double ratio = static_cast<double>(r.width) / r.height;
    EXPECT_GT(ratio, 0.73);
    EXPECT_LT(ratio, 1.36);
    area += static_cast<double>(r.width) * r.height / (kHeight * kWidth);
    flipped += r.is_flipped ? 1 : 0;
  }
  EXPECT_NEAR(area / kCount, 0.432, 0.02);  // large ones fit less often
  EXPECT_NEAR(flipped / kCount, 0.5, 5 * 0.5 / std::sqrt(kCount));
  EXPECT_NE(random_region(3, 2, 0, kHeight, kWidth), random_region(3, 3, 0, kHeight, kWidth));
  EXPECT_NE(random_region(3, 2, 0, kHeight, kWidth), random_region(4, 2, 0, kHeight, kWidth));
}

TEST(Regions, FitInImagesOfAnyShape) {
  for (const auto& [height, width] : {std::pair(1U, 1U), {1U, 500U}, {500U, 1U}, {7U, 3U}})
    for (uint32_t image = 0; image < 50; ++image) {
      const Region r = random_region(1, 0, image, height, width);
      ASSERT_GE(r.height, 1U);
      ASSERT_GE(r.width, 1U);
      ASSERT_LE(r.top + r.height, height);
      ASSERT_LE(r.left + r.width, width);
      const Region middle = middle_region(height, width);
      ASSERT_LE(middle.top + middle.height, height);
      ASSERT_LE(middle.left + middle.width, width);
    }
  EXPECT_EQ(middle_region(256, 300), (Region{16, 38, 224, 224, false}));
}

std::vector<uint8_t> resized(const io::Pixels& image, const Region& region, uint32_t size) {
  std::vector<uint8_t> pixels(size_t{size} * size * 3);
  resize(image, region, size, pixels);
  return pixels;
}

TEST(Regions, KeepPixelsInTheirOwnSize) {
  const io::Pixels image{2, 3, {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19}};
  EXPECT_THAT(resized(image, {0, 1, 2, 2, false}, 2), ElementsAre(4, 5, 6, 7, 8, 9, 14, 15, 16, 17, 18, 19));
  EXPECT_THAT(resized(image, {0, 1, 2, 2, true}, 2), ElementsAre(7, 8, 9, 4, 5, 6, 17, 18, 19, 14, 15, 16));
}

TEST(Regions, AreMeansOfWhatTheyCover) {
  io::Pixels image{8, 8, {}};
  for (uint32_t y = 0; y < 8; ++y)
    for (uint32_t x = 0; x < 8; ++x) image.rgb.insert(image.rgb.end(), {static_cast<uint8_t>(20 * x), 50, 7});
  const std::vector<uint8_t> small = resized(image, {0, 0, 8, 8, false}, 2);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(small[3 * i + 1], 50);
    EXPECT_EQ(small[3 * i + 2], 7);
  }
  EXPECT_NEAR(small[0] + small[3], 140, 1);
  EXPECT_LT(small[0], 60);
  const std::vector<uint8_t> large = resized(image, {0, 0, 8, 8, false}, 32);
  for (size_t x = 1; x < 32; ++x) EXPECT_GE(large[3 * x], large[3 * (x - 1)]);
}

#ifdef TESSERA_JPEG

std::span<const std::byte> bytes_in(const std::string& content) { return std::as_bytes(std::span(content)); }

TEST(Jpeg, HasThePixelsOfTheImage) {
  const io::Pixels image = io::read_jpeg("a.jpg", bytes_in(test::jpeg_of(9, 17, 200, 100, 50)));
  EXPECT_EQ(image.height, 9U);
  EXPECT_EQ(image.width, 17U);
  ASSERT_EQ(image.rgb.size(), 9U * 17 * 3);
  for (size_t i = 0; i < image.rgb.size(); ++i)
    EXPECT_NEAR(image.rgb[i], i % 3 == 0 ? 200 : i % 3 == 1 ? 100 : 50, 4);
}

/// As some files of ImageNet are. In files of Adobe's programs, 255 stands for no ink.
TEST(Jpeg, MayBeGreyOrOfPrintersColours) {
  std::vector<uint8_t> inks;
  for (uint32_t i = 0; i < 9 * 17; ++i) inks.insert(inks.end(), {200, 100, 50, 255});
  const std::string grey = test::jpeg_of(9, 17, std::vector<uint8_t>(9 * 17, 120), false, JCS_GRAYSCALE),
                    printed = test::jpeg_of(9, 17, inks, false, JCS_CMYK);
  const io::Pixels of_grey = io::read_jpeg("grey.jpg", bytes_in(grey)),
                   of_printed = io::read_jpeg("printed.jpg", bytes_in(printed));
  ASSERT_EQ(of_grey.rgb.size(), 9U * 17 * 3);
  ASSERT_EQ(of_printed.rgb.size(), 9U * 17 * 3);
  for (size_t i = 0; i < of_grey.rgb.size(); ++i) {
    EXPECT_NEAR(of_grey.rgb[i], 120, 4);
    EXPECT_NEAR(of_printed.rgb[i], i % 3 == 0 ? 200 : i % 3 == 1 ? 100 : 50, 4);
  }
}

TEST(Jpeg, DamagedFilesAreRefused) {
  EXPECT_ERROR("a.jpg: no JPEG image: the file is empty", io::read_jpeg("a.jpg", {}));
  EXPECT_ERROR("a.jpg: no JPEG image: Not a JPEG file", io::read_jpeg("a.jpg", bytes_in("not at all")));
  EXPECT_ERROR("convert it to JPEG, or remove it", io::read_jpeg("a.jpg", bytes_in("\x89PNG\r\n\x1A\n")));
  // Wherever it is cut, also in the pixels.
  const std::string content = test::jpeg_of(20, 20, 1, 2, 3);
  for (size_t size = 0; size < content.size(); ++size) {
    SCOPED_TRACE(size);
    EXPECT_ERROR("a.jpg: ", io::read_jpeg("a.jpg", bytes_in(content.substr(0, size))));
  }
  EXPECT_ERROR("a damaged JPEG image: Premature end",
               io::read_jpeg("a.jpg", bytes_in(content.substr(0, content.size() - 10))));
}

TEST(Jpeg, MayHaveSoManyScans) {
  std::string content = test::jpeg_of(20, 20, std::vector<uint8_t>(20 * 20 * 3, 90), true);
  const io::Pixels image = io::read_jpeg("a.jpg", bytes_in(content));
  ASSERT_EQ(image.rgb.size(), 20U * 20 * 3);
  for (const uint8_t pixel : image.rgb) EXPECT_NEAR(pixel, 90, 4);
  // Before the end of the image, refinements of one component, whose bits are missing.
  const std::string scan("\xFF\xDA\x00\x08\x01\x01\x00\x00\x00\x10", 10);
  for (int i = 0; i < 200; ++i) content.insert(content.size() - 2, scan);
  EXPECT_ERROR("it has more than 100 scans", io::read_jpeg("a.jpg", bytes_in(content)));
}

TEST(ImageFolders, HaveAClassForEachSubfolder) {
  const TemporaryFolder folder;
  const auto add = [&](const std::string& name, uint8_t red) {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    folder.write(name, test::jpeg_of(40, 50, red, 90, 90));
  };
  for (int i = 0; i < 11; ++i) {
    add("cats/" + std::to_string(10 + i) + ".jpg", 250);
    add("dogs/" + std::to_string(10 + i) + ".JPEG", 10);
  }
  folder.write("cats/notes.txt", "no image");
  const ImageFolder found = find_image_folder(folder.path().string());
  EXPECT_THAT(found.classes, ElementsAre("cats", "dogs"));
  EXPECT_EQ(found.train.count(), 18U);
  EXPECT_EQ(found.test.count(), 4U);
  EXPECT_TRUE(found.test.paths[1].ends_with("cats/20.jpg"));
  const ImageSources sources = images_of_files(found, 16, 1, true);
  EXPECT_EQ(sources.format.classes, 2U);
  std::vector<uint8_t> pixels(16 * 16 * 3);
  for (size_t i = 0; i < sources.training->count(); ++i) {
    sources.training->read(i, 0, pixels);
    EXPECT_NEAR(pixels[3 * 100], sources.training->label(i) == 0 ? 250 : 10, 5);
  }
}

TEST(ImageFolders, MayHavePartsForTrainingAndTesting) {
  const TemporaryFolder folder;
  const auto add = [&](const std::string& name) {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    folder.write(name, test::jpeg_of(8, 8, 1, 2, 3));
  };
  add("train/a/1.jpg");
  add("train/b/1.jpg");
  const std::string path = folder.path().string();
  EXPECT_ERROR("val or test is missing", find_image_folder(path));
  add("val/a/1.jpg");
  EXPECT_ERROR("its classes are not the classes", find_image_folder(path));
  add("val/b/7.jpg");
  const ImageFolder found = find_image_folder(path);
  EXPECT_THAT(found.train.labels, ElementsAre(0, 1));
  EXPECT_THAT(found.test.labels, ElementsAre(0, 1));
  std::filesystem::rename(folder.path() / "train/b/1.jpg", folder.path() / "train/b/1.txt");
  EXPECT_ERROR("no JPEG file of class 'b' for training beside those for testing", find_image_folder(path));
  std::filesystem::rename(folder.path() / "train/b/1.txt", folder.path() / "train/b/1.jpg");
  for (const char* part : {"train", "val"}) std::filesystem::create_directory(folder.path() / part / "c");
  EXPECT_ERROR("no JPEG file of class 'c' for training", find_image_folder(path));
}

TEST(ImageFolders, HaveImagesOfEachClassForTrainingAndTesting) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string(), image = test::jpeg_of(8, 8, 1, 2, 3);
  std::filesystem::create_directory(folder.path() / "a");
  folder.write("a/1.jpg", image);
  EXPECT_ERROR("'a' is the only class", find_image_folder(path));
  std::filesystem::create_directory(folder.path() / "b");
  folder.write("b/1.jpg", image);
  EXPECT_ERROR("no JPEG file of class 'a' for training beside those for testing", find_image_folder(path));
  for (const char* name : {"a/2.jpg", "b/2.jpg"}) folder.write(name, image);
  const ImageFolder found = find_image_folder(path);
  EXPECT_THAT(found.train.labels, ElementsAre(0, 1));
  EXPECT_THAT(found.test.labels, ElementsAre(0, 1));
}

#else

TEST(Jpeg, IsReadByALibraryThatIsBuiltWithIt) {
  EXPECT_ERROR("a.jpg: the library was built without libjpeg", io::read_jpeg("a.jpg", {}));
}

#endif

TEST(ImageFolders, SayWhatIsExpected) {
  const TemporaryFolder folder;
  EXPECT_ERROR("expected are CLASS/*.jpg", find_image_folder(folder.path().string()));
  EXPECT_ERROR("there is no such folder", find_image_folder((folder.path() / "none").string()));
}

}  // namespace
}  // namespace tessera::train
