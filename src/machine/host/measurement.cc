// The cache file of a measurement.
#include <fmt/format.h>
#include <tessera/error.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/json_text.h"
#include "machine/host/measure.h"

namespace tessera::machine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kSchema = 2;
/// Above any rate of a computer, in 10^9 per second.
constexpr double kMaxRate = 1e9;

json to_json(const Rate& rate) { return {{"one", rate.one}, {"all", rate.all}}; }

/// A measured number: finite, positive, and possible.
double number(const json& object, const char* key) {
  const double value = object.at(key).get<double>();
  if (!(value > 0 && value < kMaxRate))
    throw Error(fmt::format("{} is {}, which is not a possible rate", key, value));
  return value;
}

Rate rate(const json& object, const char* key) {
  const json& both = object.at(key);
  return {number(both, "one"), number(both, "all")};
}

HostMeasurement parse(std::string_view text) {
  const json object = io::parse_json(text);
  if (object.at("schema").get<int>() != kSchema) throw Error("its schema has another version");
  HostMeasurement result;
  result.cpu = object.at("cpu").get<std::string>();
  result.threads = object.at("threads").get<unsigned>();
  if (result.threads < 1 || result.threads > kMostThreads) throw Error("threads are out of range");
  for (const json& peak : object.at("peaks"))
    result.peaks.push_back(
        {isa_of(peak.at("isa").get<std::string>()), rate(peak, "gflops"), number(peak, "ghz")});
  for (const json& level : object.at("levels"))
    result.levels.push_back({level.at("level").get<std::string>(), level.at("thread_bytes").get<uint64_t>(),
                             rate(level, "read_gbps")});
  if (result.peaks.empty() || result.levels.empty()) throw Error("peaks or levels are empty");
  result.memory_write = rate(object, "memory_write_gbps");
  result.memory_copy = rate(object, "memory_copy_gbps");
  result.superstep_seconds = object.at("superstep_seconds").get<double>();
  if (!(result.superstep_seconds >= 0 && result.superstep_seconds < 1))
    throw Error("superstep_seconds is out of range");
  return result;
}

/// The processor's name as part of a file name.
std::string slug(const std::string& cpu) {
  std::string text;
  for (const char c : cpu)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!text.empty() && text.back() != '-')
      text += '-';
  return text.substr(0, 100);
}

fs::path folder_in(const char* variable, const char* below) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? fs::path(value) / below : fs::path();
}

fs::path cache_folder() {
  if (fs::path folder = folder_in("TESSERA_CACHE", ""); !folder.empty()) return folder;
  if (fs::path folder = folder_in("XDG_CACHE_HOME", "tessera"); !folder.empty()) return folder;
  return folder_in("HOME", ".cache/tessera");
}

fs::path file_in(const fs::path& folder, const HostFacts& facts) {
  // The name alone may denote several processors: virtual machines hide the model.
  return folder /
         fmt::format("host-{}-{}-{}k.json", slug(facts.cpu), name_of(facts.isa), facts.l2_bytes >> 10);
}

std::string read_text(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

std::string to_json(const HostMeasurement& measurement) {
  json object = {{"schema", kSchema},
                 {"cpu", measurement.cpu},
                 {"threads", measurement.threads},
                 {"peaks", json::array()},
                 {"levels", json::array()},
                 {"memory_write_gbps", to_json(measurement.memory_write)},
                 {"memory_copy_gbps", to_json(measurement.memory_copy)},
                 {"superstep_seconds", measurement.superstep_seconds}};
  for (const PeakRate& peak : measurement.peaks)
    object["peaks"].push_back(
        {{"isa", std::string(name_of(peak.isa))}, {"gflops", to_json(peak.gflops)}, {"ghz", peak.ghz}});
  for (const LevelRate& level : measurement.levels)
    object["levels"].push_back(
        {{"level", level.level}, {"thread_bytes", level.thread_bytes}, {"read_gbps", to_json(level.read)}});
  return io::json_text(object, 2) + "\n";
}

HostMeasurement measurement_from_json(std::string_view text, const std::string& source) {
  try {
    return parse(text);
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: not a measurement of a host ({}): measure again, or remove the file", source,
                            error.what()));
  }
}

fs::path measurement_file(const HostFacts& facts) {
  const fs::path folder = cache_folder();
  if (folder.empty())
    throw Error("no folder to keep the measurement in: set TESSERA_CACHE, XDG_CACHE_HOME or HOME");
  return file_in(folder, facts);
}

void require_writable(const fs::path& file) {
  std::error_code ignored;  // failure to create it shows below as failure to write
  fs::create_directories(file.parent_path(), ignored);
  io::require_writable(file.string());
}

void save_measurement(const HostMeasurement& measurement, const fs::path& file) {
  require_writable(file);
  io::write_text(file.string(), to_json(measurement));
}

std::optional<HostMeasurement> load_measurement(const HostFacts& facts) {
  const fs::path folder = cache_folder();
  if (folder.empty()) return std::nullopt;
  const fs::path file = file_in(folder, facts);
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  HostMeasurement measurement = measurement_from_json(read_text(file), file.string());
  if (measurement.cpu != facts.cpu) return std::nullopt;
  return measurement;
}

}  // namespace tessera::machine
