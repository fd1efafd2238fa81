// What the commands of studies have in common: their folder, and their progress.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "cli/progress.h"
#include "studies/common/run.h"

namespace tessera::cli {

/// Throws Error if the folder cannot be created.
void make_folder(const std::filesystem::path& folder);

/// Says on stderr how many cells of a result file are finished.
void tell_finished(const std::string& file, size_t finished, size_t cells);

/// Shows a bar of progress on a terminal.
class Bar : public studies::Watcher {
 public:
  explicit Bar(size_t cells) : progress_(cells) {}
  void progress(size_t done, const std::string& next, double fraction) override;
  void complain(const std::string& message) override;

 private:
  Progress progress_;
};

}  // namespace tessera::cli
