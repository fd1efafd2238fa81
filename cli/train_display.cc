#include "cli/train_display.h"

#include <fmt/format.h>

#include <cstdio>

#include "report/training_report.h"

namespace tessera::cli {

void TrainDisplay::show(const TrainingProgress& now) {
  if (now.finished != nullptr && rows_) {
    bar_.clear();
    fmt::print("{}", report::text_of(*now.finished));
    std::fflush(stdout);
  }
  constexpr std::chrono::milliseconds kPause{100};
  if (std::chrono::steady_clock::now() - shown_ < kPause) return;
  shown_ = std::chrono::steady_clock::now();
  bar_.show(now.step - first_,
            fmt::format("{}epoch {}, loss {:.4f}{}", name_, now.epoch, now.loss,
                        now.accuracy ? fmt::format(", accuracy {:.1f} %", 100 * *now.accuracy) : ""));
}

}  // namespace tessera::cli
