#include "studies/paper/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <tessera/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "io/fail.h"
#include "io/json_text.h"
#include "studies/common/json.h"

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
    return fmt::format("was written with {} = {}, not {}", key, io::json_text(there[key]),
                       io::json_text(value));
  }
  return there.size() == here.size() ? "" : "has properties unknown to this version";
}

/// The name of a cell, where an earlier version called the forms of structured maps otherwise: "butterfly,
/// best".
std::string present_name(std::string cell) {
  for (const auto& [before, now] : {std::pair(", best", ", fused"), std::pair(", published", ", unfused")}) {
    const std::string_view form(before);
    const size_t at = cell.find(", "), end = at + form.size();
    if (at != std::string::npos && cell.compare(at, form.size(), form) == 0 &&
        (end == cell.size() || cell[end] == ','))
      return cell.replace(at, form.size(), now);
  }
  return cell;
}

Result store_result_of(const ordered_json& json) {
  Result r;
  r.fits = json.at("fits");
  r.reason = json.at("reason");
  r.values = json.at("values").get<std::map<std::string, double>>();
  r.verified = optional_of<bool>(json.at("verified"));
  r.max_rel_error = optional_of<double>(json.at("max_rel_error"));
  r.tolerance = optional_of<double>(json.at("tolerance"));
  return r;
}

}  // namespace

ordered_json json_of(const std::string& section, const std::string& cell, const Result& r) {
  return {{"section", section},
          {"cell", cell},
          {"fits", r.fits},
          {"reason", r.reason},
          {"values", r.values},
          {"verified", or_null(r.verified)},
          {"max_rel_error", or_null(r.max_rel_error)},
          {"tolerance", or_null(r.tolerance)}};
}

Store::Store(std::string file, const ordered_json& made_on) : file_(std::move(file)) {
  descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) io::fail(file_, "cannot be opened: {}", std::strerror(errno));
  try {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0)
      throw UsageError(
          fmt::format("{}: another run is writing it; wait for it, or pass another --out", file_));
    read(made_on);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

Store::~Store() { ::close(descriptor_); }

void Store::read(const ordered_json& made_on) {
  const std::string content = content_of(descriptor_, file_);
  const std::string head = io::json_text(made_on) + "\n";
  const size_t whole = content.rfind('\n') + 1;  // 0 if there is no line
  if (whole == 0 && !head.starts_with(content))
    throw UsageError(fmt::format("{} is not a result file: pass another --out", file_));
  size_t number = 1;
  for (size_t begin = 0; begin < whole; ++number) {
    const size_t end = content.find('\n', begin);
    read_line(std::string_view(content).substr(begin, end - begin), number, made_on);
    begin = end + 1;
  }
  if (whole != content.size() && ::ftruncate(descriptor_, static_cast<off_t>(whole)) != 0)
    io::fail(file_, "its incomplete last line cannot be removed: {}", std::strerror(errno));
  if (whole == 0) write(head);
}

void Store::read_line(std::string_view line, size_t number, const ordered_json& made_on) {
  const ordered_json json = io::parse_ordered_json(line, nullptr, /*may_throw=*/false);
  if (number == 1) {
    const std::string what = json.is_object() ? difference(json, made_on) : "is not a result file";
    if (!what.empty()) throw UsageError(fmt::format("{} {}: pass another --out, or remove it", file_, what));
    return;
  }
  try {
    results_[{json.at("section"), present_name(json.at("cell"))}] = store_result_of(json);
  } catch (const std::exception&) {
    io::fail(file_, "line {} is damaged; remove it to run its cell again", number);
  }
}

const Result* Store::find(std::string_view section, std::string_view cell) const {
  const std::lock_guard lock(mutex_);
  const auto found = results_.find({std::string(section), std::string(cell)});
  return found == results_.end() ? nullptr : &found->second;
}

void Store::add(const std::string& section, const std::string& cell, const Result& result) {
  const std::string line = io::json_text(json_of(section, cell, result)) + "\n";
  const std::lock_guard lock(mutex_);
  write(line);
  results_[{section, cell}] = result;
}

void Store::write(const std::string& line) {
  for (size_t written = 0; written < line.size();) {
    const ssize_t count = ::write(descriptor_, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) io::fail(file_, "cannot be written: {}; its contents are kept", std::strerror(errno));
    written += static_cast<size_t>(count);
  }
}

}  // namespace tessera::studies
