#include "studies/common/result_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <tessera/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "io/fail.h"

namespace tessera::studies {
namespace {

using nlohmann::ordered_json;

std::string content_of(int descriptor, const std::string& file) {
  std::string content;
  char piece[1 << 16];
  for (;;) {
    const ssize_t count = ::read(descriptor, piece, sizeof(piece));
    if (count < 0) io::fail(file, "cannot be read: {}", std::strerror(errno));
    if (count == 0) return content;
    content.append(piece, static_cast<size_t>(count));
  }
}

/// The first property in which the file's origin differs from the present one.
std::string difference(const ordered_json& there, const ordered_json& here) {
  for (const auto& [key, value] : here.items()) {
    if (!there.contains(key)) return fmt::format("lacks its {}", key);
    if (there[key] == value) continue;
    if (value.is_object() && there[key].is_object())
      if (std::string inner = difference(there[key], value); !inner.empty()) return inner;
    return fmt::format("was written with {} = {}, not {}", key, there[key].dump(), value.dump());
  }
  return there.size() == here.size() ? "" : "has properties unknown to this version";
}

}  // namespace

ResultFile::ResultFile(std::string file, const ordered_json& made_on, const Take& take)
    : name_(std::move(file)) {
  descriptor_ = ::open(name_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) io::fail(name_, "cannot be opened: {}", std::strerror(errno));
  try {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0)
      throw UsageError(
          fmt::format("{}: another run is writing it; wait for it, or pass another --out", name_));
    read(made_on, take);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

ResultFile::~ResultFile() { ::close(descriptor_); }

void ResultFile::read(const ordered_json& made_on, const Take& take) {
  const std::string content = content_of(descriptor_, name_);
  const std::string head = made_on.dump() + "\n";
  const size_t whole = content.rfind('\n') + 1;  // 0 if there is no line
  if (whole == 0 && !head.starts_with(content))
    throw UsageError(fmt::format("{} is not a result file: pass another --out", name_));
  size_t number = 1;
  for (size_t begin = 0; begin < whole; ++number) {
    const size_t end = content.find('\n', begin);
    read_line(std::string_view(content).substr(begin, end - begin), number, made_on, take);
    begin = end + 1;
  }
  if (whole != content.size() && ::ftruncate(descriptor_, static_cast<off_t>(whole)) != 0)
    io::fail(name_, "its incomplete last line cannot be removed: {}", std::strerror(errno));
  if (whole == 0) write(head);
}

void ResultFile::read_line(std::string_view line, size_t number, const ordered_json& made_on,
                           const Take& take) const {
  const ordered_json json = ordered_json::parse(line, nullptr, false);
  if (number == 1) {
    const std::string what = json.is_object() ? difference(json, made_on) : "is not a result file";
    if (!what.empty()) throw UsageError(fmt::format("{} {}: pass another --out, or remove it", name_, what));
    return;
  }
  try {
    take(json);
  } catch (const std::exception&) {
    io::fail(name_, "line {} is damaged; remove it to run its cell again", number);
  }
}

void ResultFile::append(const ordered_json& result) {
  const std::string line = result.dump() + "\n";
  const std::lock_guard lock(mutex_);
  write(line);
}

void ResultFile::write(const std::string& line) {
  for (size_t written = 0; written < line.size();) {
    const ssize_t count = ::write(descriptor_, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) io::fail(name_, "cannot be written: {}; its contents are kept", std::strerror(errno));
    written += static_cast<size_t>(count);
  }
}

}  // namespace tessera::studies
