// Runs the tool as a user does.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "support/error_of.h"

namespace tessera::test {

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

/// By value: a loop over part of a temporary object would outlive it.
inline nlohmann::json results_of(const Outcome& outcome) {
  return nlohmann::json::parse(outcome.out)["results"];
}

inline std::string contents_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void expect_failure(int status, const Outcome& o, const std::string& message) {
  EXPECT_EQ(o.status, status) << o.err;
  EXPECT_TRUE(says(o.err, message));
}

/// Wrong usage has status 2, one message, which contains this, and no results.
inline void expect_refused(const Outcome& o, const std::string& message) {
  expect_failure(2, o, message);
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  EXPECT_EQ(o.out, "");
}

inline size_t lines_of(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// Tests with their own folder, which is removed with its contents.
class ToolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto& test = *::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        std::filesystem::temp_directory_path() / fmt::format("tessera_cli_{}_{}", getpid(), test.name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// `around`: {} stands for the tool and its arguments; redirections there win.
  Outcome run(const std::string& arguments, const std::string& around = "{}") const {
    const std::string command =
        fmt::format("export TESSERA_CACHE='{0}'; {{ {1} ; }} >'{0}/out' 2>'{0}/err'", folder_.string(),
                    fmt::format(fmt::runtime(around), fmt::format("'{}' {}", TESSERA_TOOL, arguments)));
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents_of(folder_ / "out"),
            contents_of(folder_ / "err")};
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return path(name);
  }

  /// Files in the folder other than those written by run().
  size_t left_behind() const {
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      files += entry.path().filename() != "out" && entry.path().filename() != "err";
    return files;
  }

  std::filesystem::path folder_;
};

}  // namespace tessera::test
