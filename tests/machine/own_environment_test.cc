// Tests neither read nor write files of the user.
#include "support/own_environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "machine/host/detect.h"
#include "machine/host/measure.h"
#include "support/number_of.h"

namespace tessera::machine {
namespace {

bool is_own(const std::filesystem::path& path) {
  return path.string().starts_with(testing::own_folder().string() + "/");
}

TEST(OwnEnvironment, HoldsCachesAndHome) {
  const HostFacts facts = detect_host();
  EXPECT_TRUE(is_own(measurement_file(facts))) << measurement_file(facts);
  EXPECT_FALSE(std::filesystem::exists(measurement_file(facts)));
  const std::string cache = std::getenv("TESSERA_CACHE");
  unsetenv("TESSERA_CACHE");
  EXPECT_TRUE(is_own(measurement_file(facts))) << measurement_file(facts);
  setenv("TESSERA_CACHE", cache.c_str(), 1);
}

TEST(OwnEnvironment, HoldsTemporaryFiles) {
  EXPECT_TRUE(is_own(std::filesystem::temp_directory_path() / "file"));
  EXPECT_TRUE(is_own(::testing::TempDir() + "file")) << ::testing::TempDir();
}

TEST(OwnEnvironment, LeavesTheLibraryAsItIs) {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string name = std::string(*variable).substr(0, std::string(*variable).find('='));
    const bool is_set_for_tests = name == "TESSERA_CACHE" || (name == "TESSERA_THREADS" && !test::is_full());
    EXPECT_TRUE(is_set_for_tests || !testing::sets_the_library(name.c_str())) << name;
  }
}

}  // namespace
}  // namespace tessera::machine
