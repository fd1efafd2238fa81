#include "cli/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <tessera/error.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>

namespace tessera::cli {
namespace {

[[noreturn]] void fail_to_run(const std::string& program, int error) {
  throw Error(fmt::format("cannot run {}: {}", program, std::strerror(error)));
}

class Pipe {
 public:
  explicit Pipe(const std::string& program) {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) fail_to_run(program, errno);
  }
  ~Pipe() {
    close(ends_[0]);
    close_writing();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int reading() const { return ends_[0]; }
  int writing() const { return ends_[1]; }
  void close_writing() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

pid_t start(std::vector<std::string>& command, int output) {
  std::vector<char*> arguments;
  for (std::string& each : command) arguments.push_back(each.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (error != 0) fail_to_run(command[0], error);
  error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t child = 0;
  if (error == 0) error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail_to_run(command[0], error);
  return child;
}

volatile std::sig_atomic_t running_child = 0, ending_signal = 0;

void end_child(int signal) {
  const int error = errno;
  ending_signal = signal;
  if (running_child != 0) kill(running_child, SIGTERM);
  errno = error;
}

/// While an object of this class exists, signals that end the tool end its child first.
class EndingOfChild {
 public:
  EndingOfChild() {
    ending_signal = 0;
    for (size_t i = 0; i < kSignals.size(); ++i) {
      before_[i] = std::signal(kSignals[i], end_child);
      if (before_[i] == SIG_IGN) std::signal(kSignals[i], SIG_IGN);
    }
  }
  ~EndingOfChild() {
    running_child = 0;
    for (size_t i = 0; i < kSignals.size(); ++i) std::signal(kSignals[i], before_[i]);
    if (ending_signal != 0) std::raise(ending_signal);
  }
  EndingOfChild(const EndingOfChild&) = delete;
  EndingOfChild& operator=(const EndingOfChild&) = delete;

  void begin(pid_t child) {
    running_child = child;
    if (ending_signal != 0) kill(child, SIGTERM);  // a signal arrived before
  }
  void end() { running_child = 0; }

 private:
  static constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};
  std::array<void (*)(int), 2> before_ = {};
};

/// Reads until the end of the file, or an error.
std::string read_from(int descriptor) {
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t count = ::read(descriptor, part.data(), part.size());
    if (count > 0) text.append(part.data(), static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) return text;
  }
}

}  // namespace

std::string output_of(std::vector<std::string> command) {
  const std::string program = command.at(0);
  Pipe pipe(program);
  EndingOfChild ending;
  const pid_t child = start(command, pipe.writing());
  ending.begin(child);
  pipe.close_writing();
  std::string text = read_from(pipe.reading());
  siginfo_t ended{};
  while (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) < 0)
    if (errno != EINTR) fail_to_run(program, errno);
  ending.end();  // after the next call, another process may have its number
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail_to_run(program, errno);
  if (WIFSIGNALED(status)) throw Error(fmt::format("{} was ended by signal {}", program, WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    throw Error(fmt::format("{} ended with status {}", program, WEXITSTATUS(status)));
  return text;
}

}  // namespace tessera::cli
