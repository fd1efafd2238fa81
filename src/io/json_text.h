// Text of JSON documents, without compiling nlohmann's parser and printer in each file that reads or writes
// some.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera::io {

/// What becomes of text that is not UTF-8 when it is printed.
using JsonErrors = nlohmann::json::error_handler_t;

/// A document on one line, or with `indent` spaces a level. Throws nlohmann::json::type_error as `errors`
/// says.
std::string json_text(const nlohmann::json& document, int indent = -1,
                      JsonErrors errors = JsonErrors::strict);
std::string json_text(const nlohmann::ordered_json& document, int indent = -1,
                      JsonErrors errors = JsonErrors::strict);

/// As parse() of nlohmann::json.
nlohmann::json parse_json(std::string_view text, const nlohmann::json::parser_callback_t& callback = nullptr,
                          bool may_throw = true);
nlohmann::ordered_json parse_ordered_json(std::string_view text,
                                          const nlohmann::ordered_json::parser_callback_t& callback = nullptr,
                                          bool may_throw = true);

}  // namespace tessera::io
