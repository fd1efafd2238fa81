#include "cli/study_run.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <system_error>

#include "cli/output.h"

namespace tessera::cli {

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(fmt::format("cannot create {}: {}", folder.string(), error.message()));
}

void tell_finished(const std::string& file, size_t finished, size_t cells) {
  fmt::print(stderr, "{}: {} of {} cells are finished; an interrupted run resumes here\n", file, finished,
             cells);
}

void Bar::progress(size_t done, const std::string& next, double fraction) {
  progress_.show(done, next, fraction);
}

void Bar::complain(const std::string& message) {
  progress_.clear();
  cli::complain(message);
}

}  // namespace tessera::cli
