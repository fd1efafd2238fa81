#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace tessera::cli {
namespace {

using Handler = void (*)(int);

volatile std::sig_atomic_t noted = 0;
Handler interrupt_before = SIG_DFL;
Handler termination_before = SIG_DFL;

void note(int signal) {
  if (noted == 0) {
    noted = signal;
    constexpr char message[] = "\r\033[Kstopping after this step; once more to stop at once\n";
    constexpr size_t kErase = 4;  // of a progress bar
    const size_t skip = isatty(STDERR_FILENO) == 1 ? 0 : kErase;
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message + skip, sizeof(message) - 1 - skip);
    return;
  }
  const Handler before = signal == SIGINT ? interrupt_before : termination_before;
  if (before == SIG_IGN) return;
  if (before != SIG_DFL) return before(signal);
  _exit(128 + signal);
}

}  // namespace

Interruption::Interruption() {
  noted = 0;
  interrupt_before = std::signal(SIGINT, note);
  termination_before = std::signal(SIGTERM, note);
}

Interruption::~Interruption() {
  std::signal(SIGINT, interrupt_before);
  std::signal(SIGTERM, termination_before);
}

int Interruption::pending() { return noted; }

}  // namespace tessera::cli
