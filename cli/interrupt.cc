#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

namespace tessera::cli {
namespace {

using Handler = void (*)(int);

volatile std::sig_atomic_t noted = 0;
const char* finished_last = "";
Handler interrupt_before = SIG_DFL;
Handler termination_before = SIG_DFL;

void say(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void note(int signal) {
  if (noted == 0) {
    noted = signal;
    if (isatty(STDERR_FILENO) == 1) say("\r\033[K");  // erases a progress bar
    say("stopping after this ");
    say(finished_last);
    say("; once more to stop at once\n");
    return;
  }
  const Handler before = signal == SIGINT ? interrupt_before : termination_before;
  if (before == SIG_IGN) return;
  if (before != SIG_DFL) return before(signal);
  _exit(128 + signal);
}

}  // namespace

Interruption::Interruption(const char* last) {
  noted = 0;
  finished_last = last;
  interrupt_before = std::signal(SIGINT, note);
  termination_before = std::signal(SIGTERM, note);
}

Interruption::~Interruption() {
  std::signal(SIGINT, interrupt_before);
  std::signal(SIGTERM, termination_before);
}

int Interruption::pending() { return noted; }

}  // namespace tessera::cli
