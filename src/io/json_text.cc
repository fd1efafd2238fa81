#include "io/json_text.h"

namespace tessera::io {

std::string json_text(const nlohmann::json& document, int indent, JsonErrors errors) {
  return document.dump(indent, ' ', false, errors);
}

std::string json_text(const nlohmann::ordered_json& document, int indent, JsonErrors errors) {
  return document.dump(indent, ' ', false, errors);
}

nlohmann::json parse_json(std::string_view text, const nlohmann::json::parser_callback_t& callback,
                          bool may_throw) {
  return nlohmann::json::parse(text, callback, may_throw);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text,
                                          const nlohmann::ordered_json::parser_callback_t& callback,
                                          bool may_throw) {
  return nlohmann::ordered_json::parse(text, callback, may_throw);
}

}  // namespace tessera::io
