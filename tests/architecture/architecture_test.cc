// The structure of the tree: which module may include which, and how long a file may be.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// A module may include itself and the modules before it.
const std::vector<std::string> kModules = {"base",    "sparse",     "io",     "machine", "ranks",  "program",
                                           "kernels", "compiler",   "ops",    "graph",   "engine", "bound",
                                           "lower",   "operations", "nets",   "packing", "data",   "train",
                                           "onnx",    "check",      "report", "studies"};
constexpr size_t kMostLines = 800;

const fs::path kRoot = TESSERA_SOURCE_DIR;

std::vector<fs::path> sources_under(const std::string& folder) {
  std::vector<fs::path> files;
  if (!fs::exists(kRoot / folder)) return files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    const std::string extension = entry.path().extension();
    if (entry.is_regular_file() && (extension == ".h" || extension == ".cc")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The includes of a file, as written: "base/isa.h", <tessera/types.h>.
std::vector<std::string> includes_of(const fs::path& file) {
  static const std::regex kInclude(R"(^\s*#\s*include\s*([<"][^>"]+)[>"].*)");
  std::vector<std::string> includes;
  std::ifstream in(file);
  std::smatch match;
  for (std::string line; std::getline(in, line);)
    if (std::regex_match(line, match, kInclude)) includes.push_back(match[1]);
  return includes;
}

/// The first part of a path.
std::string module_of(const std::string& path) { return path.substr(0, path.find('/')); }

size_t position_of(const std::string& module) {
  return static_cast<size_t>(std::find(kModules.begin(), kModules.end(), module) - kModules.begin());
}

TEST(Architecture, EveryFolderOfTheSourceIsAModule) {
  for (const fs::directory_entry& entry : fs::directory_iterator(kRoot / "src")) {
    if (!entry.is_directory()) continue;
    EXPECT_LT(position_of(entry.path().filename()), kModules.size())
        << entry.path() << " is not a module of the design";
  }
}

TEST(Architecture, ModulesIncludeOnlyModulesAboveThem) {
  size_t arrows = 0;
  for (const fs::path& file : sources_under("src")) {
    const std::string module = module_of(fs::relative(file, kRoot / "src"));
    for (const std::string& include : includes_of(file)) {
      if (include[0] != '"') continue;
      const std::string to = module_of(include.substr(1));
      if (to == "hwy") continue;  // a library that wants quotes
      ++arrows;
      EXPECT_LE(position_of(to), position_of(module)) << file << " includes " << include.substr(1);
    }
  }
  EXPECT_GT(arrows, 50u);
}

TEST(Architecture, WhatKernelsShareIncludesNoFamily) {
  for (const fs::path& file : sources_under("src/kernels/common"))
    for (const std::string& include : includes_of(file))
      EXPECT_TRUE(!include.starts_with("\"kernels/") || include.starts_with("\"kernels/common/"))
          << file << " includes " << include.substr(1);
}

/// A family that the list lacks has no tests, and its codelets are not found in saved executables.
TEST(Architecture, AllFamiliesOfCodeletsAreListed) {
  static const std::regex kFamily(R"(^TESSERA_DEFINE_FAMILY\((\w+),.*)");
  std::ifstream in(kRoot / "src/kernels/list.h");
  const std::string list(std::istreambuf_iterator<char>(in), {});
  size_t families = 0;
  for (const fs::path& file : sources_under("src/kernels")) {
    std::ifstream source(file);
    std::smatch match;
    for (std::string line; std::getline(source, line);) {
      if (!std::regex_match(line, match, kFamily)) continue;
      ++families;
      EXPECT_NE(list.find("X(" + match[1].str() + ")"), std::string::npos) << file;
    }
  }
  EXPECT_GT(families, 20U);
}

TEST(Architecture, PublicHeadersIncludeOnlyPublicOnes) {
  const std::vector<fs::path> headers = sources_under("include");
  EXPECT_FALSE(headers.empty());
  for (const fs::path& file : headers)
    for (const std::string& include : includes_of(file)) {
      const bool is_public =
          include.starts_with("<tessera/") && fs::exists(kRoot / "include" / include.substr(1));
      const bool is_standard = include[0] == '<' && include.find('/') == std::string::npos &&
                               include.find('.') == std::string::npos;
      EXPECT_TRUE(is_public || is_standard) << file << " includes " << include.substr(1);
    }
}

TEST(Architecture, FilesStayShort) {
  for (const char* folder : {"include", "src", "cli", "tests", "bench", "examples"})
    for (const fs::path& file : sources_under(folder)) {
      std::ifstream in(file);
      const auto lines = std::count(std::istreambuf_iterator<char>(in), {}, '\n');
      EXPECT_LE(static_cast<size_t>(lines), kMostLines) << file << " is better split";
    }
}

TEST(Architecture, HeadersAreIncludedOnce) {
  for (const char* folder : {"include", "src", "tests", "cli", "bench"})
    for (const fs::path& file : sources_under(folder)) {
      if (file.extension() != ".h" || file.filename().string().ends_with("-inl.h")) continue;
      std::ifstream in(file);
      const std::string text(std::istreambuf_iterator<char>(in), {});
      EXPECT_NE(text.find("#pragma once"), std::string::npos) << file;
    }
}

TEST(Architecture, PythonIncludesNothingOfTheTool) {
  const std::vector<fs::path> files = sources_under("python/src");
  EXPECT_FALSE(files.empty());
  for (const fs::path& file : files)
    for (const std::string& include : includes_of(file))
      EXPECT_EQ(include.find("cli/"), std::string::npos) << file << " includes " << include.substr(1);
}

/// Whether a line depends on the name of an operation.
bool compares_name(const std::string& line) {
  static const std::regex kComparison(
      R"((operation(->|\.)name\s*[=!]=))"
      R"(|(=\s*[\w.>\-]*\boperation(->|\.)name))"
      R"(|(operation(->|\.)name\.(starts_with|ends_with|contains|find|compare)\b))"
      R"(|([=!]=\s*&?\s*[\w:]*find_operation\())"
      R"(|(find_operation\([^()]*\)(\.name)?\s*[=!]=))");
  return std::regex_search(line, kComparison);
}

/// Traits say what an operation is; its name is for people.
TEST(Architecture, OnlyOperationsCompareNamesOfOperations) {
  for (const char* line :
       {R"(node.operation->name == "sum")", R"("sum" == node.operation->name)",
        R"(operation.name.starts_with("sum"))", R"(node.operation->name.ends_with("_norm"))",
        R"(node.operation == &find_operation("sum"))", R"(&graph::find_operation("sum") != operation)"})
    EXPECT_TRUE(compares_name(line)) << line;
  EXPECT_FALSE(compares_name(R"(Node call{.operation = &find_operation("call")})"));
  for (const std::string folder : {"src", "cli", "python"})
    for (const fs::path& file : sources_under(folder)) {
      if (file.parent_path().filename() == "operations") continue;
      std::ifstream in(file);
      for (std::string line; std::getline(in, line);)
        EXPECT_FALSE(compares_name(line)) << file << ": " << line;
    }
}

}  // namespace
}  // namespace tessera
