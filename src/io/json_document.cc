#include "io/json_document.h"

#include "io/fail.h"

namespace tessera::io {

nlohmann::json read_json_object(const Source& source) {
  constexpr uint64_t kLargest = uint64_t{64} << 20;
  constexpr int kDeepest = 32;
  if (source.size() > kLargest)
    fail(source.name(), "{} bytes of JSON; at most {} are read", source.size(), kLargest);
  const std::vector<char> text = source.read_all();
  const auto check_depth = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kDeepest) fail(source.name(), "its JSON nests deeper than {} levels", kDeepest);
    return true;
  };
  nlohmann::json document;
  try {
    document = nlohmann::json::parse(text.begin(), text.end(), check_depth);
  } catch (const nlohmann::json::parse_error& error) {
    fail(source.name(), "it is not valid JSON at byte {}", error.byte);
  } catch (const nlohmann::json::out_of_range&) {
    fail(source.name(), "it has a number that is too large");
  }
  if (!document.is_object()) fail(source.name(), "its JSON is not an object");
  return document;
}

}  // namespace tessera::io
