// Small JSON documents, such as a model's configuration.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "io/fail.h"
#include "io/source.h"

namespace tessera::io {

/// A callback of the parser, which throws Error, naming the file, for JSON that nests deeper than any of ours
/// does: copying or printing it recurses, and would overflow the stack. The name must outlive it.
template <class Json>
typename Json::parser_callback_t refuse_depth(const std::string& name) {
  return [&name](int depth, typename Json::parse_event_t, Json&) {
    constexpr int kDeepest = 32;
    if (depth > kDeepest) fail(name, "its JSON nests deeper than {} levels", kDeepest);
    return true;
  };
}

/// Parses a whole file. Throws Error if it is not a JSON object, nests deeper than configurations do, or is
/// larger than 64 MiB.
nlohmann::json read_json_object(const Source& source);

}  // namespace tessera::io
