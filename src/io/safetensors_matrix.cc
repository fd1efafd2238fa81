// Matrices of `.safetensors`.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "io/dense_values.h"
#include "io/fail.h"
#include "io/safetensors.h"

namespace tessera::io {
namespace {

std::string names_text(const std::vector<TensorInfo>& tensors) {
  constexpr size_t kMost = 20;
  std::string text;
  for (size_t i = 0; i < std::min(kMost, tensors.size()); ++i) {
    text += fmt::format("{}{} ({} {})", i == 0 ? "" : ", ", excerpt(tensors[i].name), tensors[i].dtype,
                        shape_text(tensors[i].shape));
  }
  return text + (tensors.size() > kMost ? fmt::format(" and {} more", tensors.size() - kMost) : "");
}

const TensorInfo& find_tensor(const std::string& name, const std::vector<TensorInfo>& tensors,
                              const std::string& wanted) {
  const TensorInfo* found = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (wanted.empty() ? tensor.shape.size() != 2 : tensor.name != wanted) continue;
    if (found != nullptr) {
      throw UsageError(
          fmt::format("{}: several matrices; name one of the tensors {}", name, names_text(tensors)));
    }
    found = &tensor;
  }
  if (found != nullptr) return *found;
  throw UsageError(fmt::format("{}: no {}; the file has {}", name,
                               wanted.empty() ? "2-D tensor" : "tensor " + excerpt(wanted),
                               tensors.empty() ? "no tensors" : names_text(tensors)));
}

}  // namespace

SparseMatrix read_safetensors(const Source& source, const std::string& tensor) {
  const std::vector<TensorInfo> tensors = list_safetensors(source);
  const TensorInfo& info = find_tensor(source.name(), tensors, tensor);
  if (info.shape.size() != 2) {
    fail(source.name(), "tensor {} has the shape {}; a weight matrix has 2 dimensions", excerpt(info.name),
         shape_text(info.shape));
  }
  const std::optional<Element> element = element_of(info.dtype);
  if (!element) {
    fail(source.name(), "tensor {} has elements of type {}; use F64, F32, F16, BF16 or integers",
         excerpt(info.name), excerpt(info.dtype));
  }
  return read_dense(
      source, {.element = *element, .rows = info.shape[0], .cols = info.shape[1], .offset = info.begin});
}

}  // namespace tessera::io
