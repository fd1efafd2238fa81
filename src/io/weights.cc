#include "io/weights.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/io.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <new>
#include <utility>

#include "io/matrix_market.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "io/smtx.h"
#include "io/source.h"
#include "sparse/generate.h"

namespace tessera::io {
namespace {

Weights read_smtx_weights(const Source& source, const std::string&) {
  return {{read_smtx(source), {}}, false};
}

Weights read_matrix_market_weights(const Source& source, const std::string&) {
  MatrixMarket market = read_matrix_market(source);
  return {std::move(market.matrix), market.has_values};
}

Weights read_npy_weights(const Source& source, const std::string&) { return {read_npy(source), true}; }

Weights read_safetensors_weights(const Source& source, const std::string& tensor) {
  return {read_safetensors(source, tensor), true};
}

struct Format {
  const char* extension;
  Weights (*read)(const Source& source, const std::string& tensor);
  bool has_names;
};

constexpr Format kFormats[] = {
    {".smtx", read_smtx_weights, false},
    {".mtx", read_matrix_market_weights, false},
    {".npy", read_npy_weights, false},
    {".safetensors", read_safetensors_weights, true},
};

const Format& format_of(const std::string& path) {
  const std::string extension = extension_of(path);
  for (const Format& format : kFormats) {
    if (extension == format.extension) return format;
  }
  throw UsageError(
      fmt::format("{}: the extension {} is not known; weights are read from .smtx, .mtx, .npy and "
                  ".safetensors files",
                  path, extension.empty() ? "(none)" : extension));
}

}  // namespace

std::string extension_of(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

Weights read_weights(const std::string& path, const std::string& tensor) try {
  const Format& format = format_of(path);
  if (!tensor.empty() && !format.has_names) {
    throw UsageError(
        fmt::format("{}: tensor \"{}\" was asked for; a {} file holds one matrix "
                    "without a name",
                    path, tensor, format.extension));
  }
  return format.read(Source::open(path), tensor);
} catch (const std::bad_alloc&) {
  throw Error(path + ": there is not enough memory to read it");
}

}  // namespace tessera::io

namespace tessera {

SparseMatrix read_matrix(const std::string& path, const std::string& tensor, uint64_t seed) {
  io::Weights weights = io::read_weights(path, tensor);
  if (!weights.has_values) {
    weights.matrix.values = sparse::random_values(weights.matrix.pattern, seed);
  }
  return std::move(weights.matrix);
}

}  // namespace tessera
