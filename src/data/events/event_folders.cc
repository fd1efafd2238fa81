#include "data/events/event_folders.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "data/events/binning.h"
#include "data/events/event_array.h"
#include "io/source.h"
#include "io/text_scanner.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostTextBytes = uint64_t{1} << 20;
constexpr const char* kArrays = ".npy";

struct LabelledFile {
  std::string path;
  uint32_t label = 0;
};

std::vector<std::string> classes_of(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  if (names.empty())
    throw Error(
        fmt::format("{}: no folders of classes here; expected are CLASS/….npy, or train/CLASS/….npy and "
                    "test/CLASS/….npy",
                    folder.string()));
  std::ranges::sort(names);
  return names;
}

std::vector<LabelledFile> labelled_files(const fs::path& folder, const std::vector<std::string>& classes) {
  std::vector<LabelledFile> files;
  for (const std::string& name : classes_of(folder)) {
    const auto found = std::ranges::find(classes, name);
    if (found == classes.end())
      throw Error(fmt::format("{}: a class that the training recordings lack", (folder / name).string()));
    for (std::string& path : files_of(folder / name, kArrays))
      files.push_back({std::move(path), static_cast<uint32_t>(found - classes.begin())});
  }
  return files;
}

/// The sensor size and the time that events need.
struct Extent {
  uint32_t width = 1;
  uint32_t height = 1;
  int64_t time = 1;

  void include(const std::vector<LabelledFile>& files) {
    for (const LabelledFile& file : files)
      for (const PixelEvent& event : read_event_array(io::Source::open(file.path))) {
        width = std::max(width, uint32_t{event.x} + 1);
        height = std::max(height, uint32_t{event.y} + 1);
        time = std::max(time, event.time + 1);
      }
  }
};

}  // namespace

std::vector<std::string> files_of(const fs::path& folder, const std::string& extension) {
  if (!fs::is_directory(folder)) throw Error(folder.string() + ": no such folder");
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() == extension)
      files.push_back(entry.path().string());
  if (files.empty()) throw Error(fmt::format("{}: no {} files in this folder", folder.string(), extension));
  std::ranges::sort(files);
  return files;
}

std::vector<std::string> lines_of(const std::string& file) {
  const io::Source source = io::Source::open(file);
  if (source.size() > kMostTextBytes)
    io::fail(file, "{} bytes are more than a list of files may have ({})", source.size(), kMostTextBytes);
  const std::vector<char> content = source.read_all();
  io::TextScanner scanner(file, {content.data(), content.size()});
  std::vector<std::string> lines;
  while (!scanner.at_end())
    if (const std::string_view line = scanner.line(); !line.empty()) lines.emplace_back(line);
  return lines;
}

RecordingSplit load_event_folders(const fs::path& folder, const RecordingSettings& settings) {
  const bool is_divided = fs::is_directory(folder / "train") && fs::is_directory(folder / "test");
  const fs::path first = is_divided ? folder / "train" : folder;
  const std::vector<std::string> classes = classes_of(first);
  const std::vector<LabelledFile> train_files = labelled_files(first, classes);
  const std::vector<LabelledFile> test_files =
      is_divided ? labelled_files(folder / "test", classes) : std::vector<LabelledFile>();
  Extent extent;
  extent.include(train_files);
  extent.include(test_files);
  const SensorView view(extent.width, extent.height, settings);
  check_sizes(settings.steps, view.units(), classes.size());
  constexpr double kMicroseconds = 1e6;
  const double window =
      settings.seconds > 0 ? settings.seconds * kMicroseconds : static_cast<double>(extent.time);
  RecordingSplit split{.name = folder.filename().string()};
  const auto read = [&](const std::vector<LabelledFile>& files) {
    Recordings to{
        .steps = settings.steps, .units = view.units(), .classes = static_cast<uint32_t>(classes.size())};
    Binning binning(to, window);
    for (const LabelledFile& file : files)
      binning.add(seen_through(view, read_event_array(io::Source::open(file.path)), 0, split.outside),
                  file.label);
    split.merged += binning.merged();
    split.outside += binning.outside();
    return to;
  };
  Recordings all = read(train_files);
  if (is_divided) {
    split.train = std::move(all);
    split.test = read(test_files);
  } else {
    divide_into(split, all, settings);
  }
  return split;
}

}  // namespace tessera::train
