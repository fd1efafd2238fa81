#include "io/model_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/fail.h"
#include "io/json_document.h"
#include "io/weights.h"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfig = "config.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::string_view kSparsityFormats[] = {"dense", "sparse-bitmask", "sparse-24-bitmask"};

// Unlike the functions of std::filesystem, these do not throw: what cannot be read is reported when opened.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}
bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// A string in an object; "" if there is none.
std::string text_in(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// An object in an object; null if there is none. Throws Error if something else has its name.
const json* object_in(const Source& source, const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return nullptr;
  if (!found->is_object()) fail(source.name(), "{} is not an object", key);
  return &*found;
}

[[noreturn]] void refuse_quantised(const Source& config, const std::string& how) {
  fail(
      config.name(),
      "its weights are quantised ({}), and such weights are not read: take the model before it was quantised",
      excerpt(how));
}

bool is_known_format(const std::string& format) {
  return format.empty() || std::ranges::find(kSparsityFormats, format) != std::end(kSparsityFormats);
}

void check_sparsity(const Source& config, const json& sparsity) {
  const std::string format = text_in(sparsity, "format");
  if (!is_known_format(format))
    fail(config.name(),
         "its weights have the sparsity format {}, which is not read; dense, sparse-bitmask and "
         "sparse-24-bitmask are",
         excerpt(format));
}

void check_compression(const Source& config, const json& compression) {
  const std::string method = text_in(compression, "quant_method");
  if (!method.empty() && method != "compressed-tensors" && method != "sparseml")
    refuse_quantised(config, method);
  const std::string format = text_in(compression, "format");
  if (!is_known_format(format)) refuse_quantised(config, format);
  const json* groups = object_in(config, compression, "config_groups");
  if (groups != nullptr && !groups->empty()) refuse_quantised(config, "config_groups");
  const json* sparsity = object_in(config, compression, "sparsity_config");
  if (sparsity != nullptr) check_sparsity(config, *sparsity);
}

/// Checks that a file of the index is beside it. Links are followed, as caches of downloads consist of them.
void check_file_name(const Source& index, const std::string& file) {
  const bool is_plain = !file.empty() && file != "." && file != ".." &&
                        file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
  if (!is_plain) fail(index.name(), "it names {}, which is not a file of the same folder", excerpt(file));
}

ModelFiles indexed_files(const fs::path& folder) {
  const std::string path = (folder / kIndex).string();
  ModelFiles files;
  std::map<std::string, size_t> numbers;
  for (const auto& [tensor, file] : read_model_index(Source::open(path))) {
    const auto [number, is_new] = numbers.emplace(file, files.paths.size());
    if (is_new) files.paths.push_back((folder / file).string());
    files.file_of.emplace(tensor, number->second);
  }
  for (const std::string& shard : files.paths)
    if (!is_there(shard)) fail(path, "it names {}, which is missing", fs::path(shard).filename().string());
  return files;
}

}  // namespace

void check_model_config(const Source& config) {
  const json document = read_json_object(config);
  for (const char* key : {"quantization_config", "compression_config"})
    if (const json* compression = object_in(config, document, key)) check_compression(config, *compression);
  const json* sparsity = object_in(config, document, "sparsity_config");
  if (sparsity != nullptr) check_sparsity(config, *sparsity);
}

std::map<std::string, std::string> read_model_index(const Source& index) {
  const json document = read_json_object(index);
  const json* tensors = object_in(index, document, "weight_map");
  if (tensors == nullptr)
    fail(index.name(), "it has no weight_map, which says which file holds which tensor");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : tensors->items()) {
    if (!file.is_string()) fail(index.name(), "the file of tensor {} is not a text", excerpt(tensor));
    check_file_name(index, file.get<std::string>());
    files.emplace(tensor, file.get<std::string>());
  }
  return files;
}

bool is_model(const std::string& path) { return is_folder(path) || extension_of(path) == ".safetensors"; }

ModelFiles find_model_files(const std::string& path) {
  if (!is_folder(path)) return {{path}};
  const fs::path folder = path;
  if (is_there(folder / kConfig)) check_model_config(Source::open((folder / kConfig).string()));
  if (is_there(folder / kWeights)) return {{(folder / kWeights).string()}};
  if (is_there(folder / kIndex)) return indexed_files(folder);
  fail(path, "the folder has neither {} nor {}; other files, such as pickled ones, are not read", kWeights,
       kIndex);
}

}  // namespace tessera::io
