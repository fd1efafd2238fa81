// Finished cells of a study, kept between runs.
#pragma once

#include <functional>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tessera::studies {

/// A file of JSON lines: the first states what the results depend on, each other line is a result. A result
/// is one write at the end of the file, so an interrupted run loses no finished one; an incomplete last line
/// is dropped.
class ResultFile {
 public:
  /// Takes the result of a line. Throws whatever it likes if the line is none.
  using Take = std::function<void(const nlohmann::ordered_json&)>;

  /// Opens or creates `file` and passes every result to `take`. `made_on` is what the results depend on.
  /// Throws UsageError if the file states something else or is open in another run; Error if it cannot be
  /// read or written, or one of its lines is damaged.
  ResultFile(std::string file, const nlohmann::ordered_json& made_on, const Take& take);
  ~ResultFile();
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  /// Appends a result; thread-safe. Throws Error on failure.
  void append(const nlohmann::ordered_json& result);

  const std::string& name() const { return name_; }

 private:
  void read(const nlohmann::ordered_json& made_on, const Take& take);
  void read_line(std::string_view line, size_t number, const nlohmann::ordered_json& made_on,
                 const Take& take) const;
  void write(const std::string& line);

  std::string name_;
  int descriptor_ = -1;
  std::mutex mutex_;
};

}  // namespace tessera::studies
