// Runs the tool as a user does.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "io/files.h"
#include "support/error_of.h"
#include "support/number_of.h"

namespace tessera::test {

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

/// The --json output of a run that ends with this status.
inline nlohmann::json json_of(const Outcome& outcome, int status = 0) {
  EXPECT_EQ(outcome.status, status) << outcome.err;
  return nlohmann::json::parse(outcome.out);
}
/// The results, by value: a loop over part of a temporary object would outlive it.
inline nlohmann::json results_of(const Outcome& outcome, int status = 0) {
  return json_of(outcome, status)["results"];
}

/// The section of that name.
inline nlohmann::json section_of(const Outcome& outcome, const std::string& name) {
  const nlohmann::json all = json_of(outcome);
  for (const nlohmann::json& section : all["sections"])
    if (section["section"] == name) return section;
  return {};
}

inline void expect_failure(int status, const Outcome& o, const std::string& message) {
  EXPECT_EQ(o.status, status) << o.err;
  EXPECT_TRUE(says(o.err, message));
}

/// Expects wrong usage: status 2, a single message that contains `message`, and no results.
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
  /// `around`: {} stands for the tool and its arguments; redirections there win.
  Outcome run(const std::string& arguments, const std::string& around = "{}") const {
    return run_command(fmt::format(fmt::runtime(around), fmt::format("'{}' {}", TESSERA_TOOL, arguments)));
  }
  /// Runs a command of the shell.
  Outcome run_command(const std::string& text) const {
    const std::string command =
        fmt::format("export TESSERA_CACHE='{0}'; {{ {1} ; }} >'{0}/out' 2>'{0}/err'", folder_.string(), text);
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content_of(folder_ / "out"),
            content_of(folder_ / "err")};
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return path(name);
  }

  /// A machine by its own name with that many tiles, or with ./test --full the whole machine.
  std::string tiles_of(const std::string& machine, uint32_t tiles) const {
    if (is_full()) return machine;
    return file(machine + ".toml", fmt::format("like = \"{}\"\ntiles = {}\n", machine, tiles));
  }

  /// Files in the folder other than those written by run().
  size_t left_behind() const {
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      files += entry.path().filename() != "out" && entry.path().filename() != "err";
    return files;
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

}  // namespace tessera::test
