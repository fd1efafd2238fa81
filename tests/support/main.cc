#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "support/number_of.h"
#include "support/own_environment.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "TESSERA_TEST_FOLDER";

/// Made before anything asks the environment.
class OwnEnvironment {
 public:
  OwnEnvironment() : process_(getpid()) {
    // A death test runs the program again, between the same files.
    if (const char* of_parent = getenv(kFolder); of_parent != nullptr) {
      folder = of_parent;
      process_ = 0;
      return;
    }
    std::string name = (fs::temp_directory_path() / "tessera-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) abort();
    folder = name;
    std::vector<std::string> names;
    for (char** variable = environ; *variable != nullptr; ++variable)
      names.push_back(std::string(*variable).substr(0, std::string_view(*variable).find('=')));
    for (const std::string& variable : names)
      if (sets_the_library(variable.c_str()) || variable.starts_with("XDG_")) unsetenv(variable.c_str());
    // Temporary files lie there too: other users, and other builds, have files of the same names.
    for (const char* variable : {"HOME", "TMPDIR", "TEST_TMPDIR"}) setenv(variable, folder.c_str(), 1);
    setenv("TESSERA_CACHE", (folder / "cache").c_str(), 1);
    // Tests run on all cores at once: threads of a test would wait for cores of other tests. Tests about
    // threads set their number.
    if (!test::is_full()) setenv("TESSERA_THREADS", "1", 1);
    setenv(kFolder, folder.c_str(), 1);
  }
  ~OwnEnvironment() {
    std::error_code ignored;
    if (getpid() == process_) fs::remove_all(folder, ignored);
  }

  fs::path folder;

 private:
  pid_t process_;  ///< not the process of a death test
};

__attribute__((init_priority(101))) OwnEnvironment own;

}  // namespace

const fs::path& own_folder() { return own.folder; }

bool sets_the_library(const char* variable) {
  const std::string_view name = variable;
  const bool is_for_tests =
      name.starts_with("TESSERA_TEST_") || name == "TESSERA_DATA" || name == "TESSERA_UPDATE_GOLDEN";
  return (name.starts_with("TESSERA_") && !is_for_tests) || name.starts_with("OMP_") ||
         name.starts_with("GOMP_");
}

}  // namespace tessera::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
