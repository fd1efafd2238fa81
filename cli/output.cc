#include "cli/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <tessera/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "io/json_text.h"

namespace tessera::cli {

void reserve_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    // Opened in the wrong direction, so that writing results to a closed stdout is an error.
    const int mode = stream == STDOUT_FILENO ? O_RDONLY : O_RDWR;
    if (fcntl(stream, F_GETFD) == -1 && errno == EBADF && open("/dev/null", mode) != stream) return;
  }
}

void complain(std::string_view message) {
  while (message.ends_with('\n')) message.remove_suffix(1);
  const std::string line = fmt::format("tessera: {}\n", message);
  std::fputs(line.c_str(), stderr);
}

nlohmann::ordered_json host_io_json(const graph::HostIoCost& transfers) {
  return {
      {"bytes_in", transfers.bytes_in}, {"bytes_out", transfers.bytes_out}, {"seconds", transfers.seconds}};
}

std::string json_text(const nlohmann::ordered_json& results, int indent) {
  return io::json_text(results, indent, io::JsonErrors::replace);
}

bool write_or_complain(const std::function<void()>& write) {
  try {
    write();
    return true;
  } catch (const Error& e) {
    complain(e.what());
    return false;
  }
}

int finish(int status) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  complain(fmt::format("cannot write the results to stdout{}{}; redirect stdout to a place with free space",
                       errno != 0 ? ": " : "", errno != 0 ? std::strerror(errno) : ""));
  return 1;
}

}  // namespace tessera::cli
