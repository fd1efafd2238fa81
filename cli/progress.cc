#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace tessera::cli {
namespace {

constexpr int kWidth = 24;
constexpr std::chrono::milliseconds kPatience{500};

std::string time_text(double seconds) {
  const auto s = static_cast<int>(seconds + 0.5);
  return s < 60 ? fmt::format("{} s", s) : fmt::format("{}:{:02} min", s / 60, s % 60);
}

}  // namespace

Progress::Progress(size_t total) : total_(total), enabled_(total > 0 && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::show(size_t done, const std::string& next) {
  show(done, next, static_cast<double>(done) / static_cast<double>(total_));
}

void Progress::show(size_t done, const std::string& next, double share) {
  const auto elapsed = Clock::now() - start_;
  if (!enabled_ || (elapsed < kPatience && done > 0)) return;
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < share * kWidth ? "█" : "·";
  const double seconds = std::chrono::duration<double>(elapsed).count();
  const std::string left = share <= 0 ? "" : fmt::format(", {} left", time_text(seconds / share - seconds));
  std::fputs(fmt::format("\r\033[K{} {}/{}{}  {}", bar, done, total_, left, next).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace tessera::cli
