// The rooms of src/ stand in one order, and each includes only itself and those above it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRooms[] = {"base", "sparse",   "io",     "machine", "program", "kernels",
                                       "ops",  "compiler", "engine", "report",  "api"};
constexpr size_t kMostLines = 800;

const fs::path kSource = fs::path(TESSERA_SOURCE_DIR) / "src";

/// Position of a room; that of no room for "tessera" (the public headers) and other libraries.
size_t rank_of(std::string_view room) {
  return static_cast<size_t>(std::find(std::begin(kRooms), std::end(kRooms), room) - std::begin(kRooms));
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// "program" of: #include "program/box.h"; nothing where the line includes no room's header.
std::string included_room(const std::string& line) {
  constexpr std::string_view kInclude = "#include \"";
  if (!line.starts_with(kInclude)) return {};
  const std::string path = line.substr(kInclude.size());
  return path.substr(0, path.find('/'));
}

template <class Visit>
void each_source(const Visit& visit) {
  for (const std::string_view room : kRooms)
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kSource / room))
      if (entry.path().extension() == ".h" || entry.path().extension() == ".cc") visit(room, entry.path());
}

TEST(RoomsTest, EveryFolderIsARoom) {
  std::set<std::string> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource))
    if (entry.is_directory()) folders.insert(entry.path().filename());
  EXPECT_EQ(folders, std::set<std::string>(std::begin(kRooms), std::end(kRooms)));
}

TEST(RoomsTest, IncludesGoUpwards) {
  size_t checked = 0;
  each_source([&](std::string_view room, const fs::path& file) {
    for (const std::string& line : lines_of(file)) {
      const size_t included = rank_of(included_room(line));
      if (included == std::size(kRooms)) continue;
      ++checked;
      EXPECT_LE(included, rank_of(room)) << file << ": " << line;
    }
  });
  EXPECT_GT(checked, 100U);
}

TEST(RoomsTest, FilesStayShort) {
  each_source([](std::string_view, const fs::path& file) { EXPECT_LT(lines_of(file).size(), kMostLines) << file; });
}

}  // namespace
}  // namespace tessera
