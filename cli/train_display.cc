#include "cli/train_display.h"

#include <fmt/format.h>

#include <cstdio>

#include "report/pretraining_report.h"

namespace tessera::cli {

void TrainDisplay::show_row(const std::string& row) {
  if (!rows_) return;
  bar_.clear();
  fmt::print("{}", row);
  std::fflush(stdout);
}

void TrainDisplay::show_bar(uint64_t step, const std::string& text) {
  constexpr std::chrono::milliseconds kPause{100};
  if (std::chrono::steady_clock::now() - shown_ < kPause) return;
  shown_ = std::chrono::steady_clock::now();
  bar_.show(step - first_, name_ + text);
}

void TrainDisplay::show(const TrainingProgress& now) {
  if (now.finished != nullptr) show_row(report::text_of(*now.finished));
  show_bar(now.step,
           fmt::format("epoch {}, loss {:.4f}{}", now.epoch, now.loss,
                       now.accuracy ? fmt::format(", accuracy {:.1f} %", 100 * *now.accuracy) : ""));
}

void TrainDisplay::show(const PretrainingProgress& now) {
  if (now.evaluated != nullptr) show_row(report::text_of(*now.evaluated));
  show_bar(now.step, fmt::format("epoch {}, loss {:.4f}", now.epoch, now.loss));
}

}  // namespace tessera::cli
