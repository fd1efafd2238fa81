// Certificates as JSON files.
#include <tessera/packing.h>

#include <nlohmann/json.hpp>
#include <span>

#include "base/memory.h"
#include "io/atomic_file.h"
#include "io/fail.h"
#include "io/json_document.h"
#include "io/json_text.h"
#include "io/source.h"
#include "packing/certificate.h"

namespace tessera::pack {
namespace {

using nlohmann::json;

constexpr uint64_t kSchema = 1;

/// Reads values of a certificate file; errors name the file.
class Reader {
 public:
  Reader(const std::string& path, const json& content) : path_(path), content_(content) {
    if (!content.is_object()) io::fail(path, "a certificate is a JSON object");
  }

  uint64_t number(const char* key, uint64_t largest) const {
    const auto at = content_.find(key);
    if (at == content_.end()) io::fail(path_, "\"{}\" is missing", key);
    return number(*at, key, largest);
  }

  uint64_t number(const json& value, const char* what, uint64_t largest) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > largest)
      io::fail(path_, "\"{}\" is {}, not a whole number up to {}", what, io::excerpt(io::json_text(value)),
               largest);
    return value.get<uint64_t>();
  }

  const json& rows() const {
    const auto at = content_.find("lengths");
    if (at == content_.end() || !at->is_array()) io::fail(path_, "\"lengths\" is not a list");
    for (const json& row : *at)
      if (!row.is_array() || row.size() != 3)
        io::fail(path_, "\"lengths\" has {}, not [length, count, weight]", io::excerpt(io::json_text(row)));
    return *at;
  }

 private:
  const std::string& path_;
  const json& content_;
};

json parsed(const std::string& path) {
  const std::vector<char> text = io::Source::open(path).read_all();
  const json content =
      io::parse_json({text.data(), text.size()}, io::refuse_depth<json>(path), /*may_throw=*/false);
  if (content.is_discarded()) io::fail(path, "this is not JSON");
  return content;
}

}  // namespace

void save_certificate(const std::string& path, const Certificate& certificate) {
  json lengths = json::array();
  for (size_t l = 1; l < certificate.weights.size(); ++l)
    if (certificate.histogram.counts[l] > 0)
      lengths.push_back({l, certificate.histogram.counts[l], certificate.weights[l]});
  const json content = {{"schema", kSchema},
                        {"max_length", certificate.histogram.max_length()},
                        {"max_per_pack", certificate.max_per_pack},
                        {"heaviest", certificate.heaviest},
                        {"lower_bound", certificate.lower_bound},
                        {"lengths", lengths}};
  const std::string text = io::json_text(content) + "\n";
  io::AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

Certificate load_certificate(const std::string& path) {
  const json content = parsed(path);
  const Reader reader(path, content);
  if (const uint64_t schema = reader.number("schema", UINT64_MAX); schema != kSchema)
    io::fail(path, "the certificate has schema {}, this version reads {}", schema, kSchema);
  const json& rows = reader.rows();
  const uint32_t max_length = static_cast<uint32_t>(reader.number("max_length", kLongestMaximum));
  base::require_memory((uint64_t{max_length} + 1) * 2 * sizeof(uint64_t), path + ": the certificate");
  Certificate certificate{.histogram = Histogram::of_max_length(max_length),
                          .max_per_pack = static_cast<uint32_t>(reader.number("max_per_pack", UINT32_MAX)),
                          .weights = std::vector<uint64_t>(size_t{max_length} + 1),
                          .heaviest = reader.number("heaviest", UINT64_MAX),
                          .lower_bound = reader.number("lower_bound", UINT64_MAX)};
  uint64_t previous = 0;
  for (const json& row : rows) {
    const uint64_t length = reader.number(row[0], "length", max_length);
    if (length <= previous) io::fail(path, "length {} comes after length {}", length, previous);
    previous = length;
    certificate.histogram.counts[length] = reader.number(row[1], "count", UINT64_MAX);
    certificate.weights[length] = reader.number(row[2], "weight", UINT64_MAX);
  }
  return certificate;
}

}  // namespace tessera::pack
