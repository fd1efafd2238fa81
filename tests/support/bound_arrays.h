// The caller's side of a run: arrays for a program's external variables.
#pragma once

#include <cstring>
#include <vector>

#include "engine/engine.h"
#include "support/reference_interpreter.h"

namespace tessera::testing {

/// Arrays of the external variables of a program, alternately row-major and column-major, with gaps between
/// rows (columns).
class BoundArrays {
 public:
  /// Arrays filled from flat contents.
  BoundArrays(const program::Program& program, const FlatVariables& contents) : program_(program) {
    for (program::VariableId v = 0; v < program.variables().size(); ++v) {
      const program::Variable& variable = program.variable(v);
      Array& array = arrays_.emplace_back();
      if (!variable.is_external()) continue;
      const bool by_rows = v % 2 == 0;
      array.row_stride = by_rows ? variable.cols + 2 : 1;
      array.col_stride = by_rows ? 1 : variable.rows + 3;
      array.bytes.resize((variable.rows + 3) * (variable.cols + 3) * size_of(variable.type));
      each_element(v, [&](std::byte* element, uint64_t index, size_t size) {
        std::memcpy(element, &contents[v][index * size], size);
      });
    }
  }

  std::vector<engine::Binding> bindings() {
    std::vector<engine::Binding> bindings;
    for (program::VariableId v = 0; v < arrays_.size(); ++v)
      if (program_.variable(v).is_external())
        bindings.push_back({v, arrays_[v].bytes.data(), arrays_[v].row_stride, arrays_[v].col_stride});
    return bindings;
  }

  /// Contents of every external variable, flat and row-major; empty for other variables.
  FlatVariables flat() {
    FlatVariables out(arrays_.size());
    for (program::VariableId v = 0; v < arrays_.size(); ++v) {
      if (!program_.variable(v).is_external()) continue;
      out[v].resize(program_.variable(v).bytes());
      each_element(v, [&](const std::byte* element, uint64_t index, size_t size) {
        std::memcpy(&out[v][index * size], element, size);
      });
    }
    return out;
  }

 private:
  struct Array {
    std::vector<std::byte> bytes;
    int64_t row_stride = 0;
    int64_t col_stride = 1;
  };

  template <class Visit>
  void each_element(program::VariableId v, const Visit& visit) {
    const program::Variable& variable = program_.variable(v);
    Array& array = arrays_[v];
    const size_t size = size_of(variable.type);
    for (uint32_t i = 0; i < variable.rows; ++i)
      for (uint32_t j = 0; j < variable.cols; ++j) {
        const int64_t element = i * array.row_stride + j * array.col_stride;
        visit(&array.bytes[static_cast<size_t>(element) * size], uint64_t{i} * variable.cols + j, size);
      }
  }

  const program::Program& program_;
  std::vector<Array> arrays_;
};

}  // namespace tessera::testing
