// Weights in the form that products on a host read, and their index arrays in programs.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/parallel.h"
#include "ops/builder.h"
#include "ops/product_problem.h"
#include "program/program.h"
#include "sparse/blocks/packed_blocks.h"
#include "sparse/elements/packed_elements.h"
#include "sparse/panels/packed_panels.h"

namespace tessera::ops {

/// A prepacked weight: sparse in blocks or single elements, or dense in panels.
struct PackedWeight {
  std::variant<sparse::PackedBlocks, sparse::PackedElements, sparse::PackedPanels> form;

  /// The packed values, an input of programs.
  const std::byte* values() const;
  uint32_t rows() const;
  uint32_t cols() const;
  Type type() const;
  Pattern pattern() const;
  bool is_dynamic() const;
  std::optional<uint64_t> capacity() const;  ///< of a dynamic weight
  bool has_blocks() const { return std::holds_alternative<sparse::PackedBlocks>(form); }
  bool is_dense() const { return std::holds_alternative<sparse::PackedPanels>(form); }
};

/// Prepacks a matrix, in an order that depends only on the matrix and, for a full pattern, the type; or in
/// panels, with zeros where it has no element.
PackedWeight prepack_weight(const SparseMatrix& matrix, Type type);
PackedWeight prepack_dense(const SparseMatrix& matrix, Type type);

/// The index of a pattern, whose values the caller keeps; with a capacity the pattern may change. Throws as
/// prepacking does.
PackedWeight prepack_index(const Pattern& pattern, Type type, std::optional<uint64_t> capacity,
                           const base::ParallelFor& parallel = base::serial_for);

/// Changes the pattern of a dynamic weight whose values the caller keeps. Arrays do not move. Throws
/// UsageError for a pattern that is malformed, of another shape or beyond the capacity, and then changes
/// nothing.
void set_pattern(PackedWeight& weight, const Pattern& pattern);

/// Shape of an array in packed order as a matrix: W's values, dW, or an optimizer's state.
struct PackedShape {
  uint32_t rows = 0;
  uint32_t cols = 0;  ///< values of a block, lanes of a row group, or values of a panel

  uint64_t elements() const { return uint64_t{rows} * cols; }
};
PackedShape packed_shape(const PackedWeight& weight);

/// Convert values in the order of SparseMatrix::values, or row-major for a dense weight, to packed order, and
/// back.
std::vector<float> pack(const PackedWeight& weight, std::span<const float> values);
std::vector<float> unpack(const PackedWeight& weight, std::span<const float> packed);

/// Clears the elements of dW that no vertex of an SDDMM writes: the free slots of a dynamic weight.
void clear_free_places(const PackedWeight& weight, float* packed);

/// Updates the index that a product reads besides a weight's values. Must be called before each run; free if
/// nothing has changed.
void update_index(const PackedWeight& weight, ProductKind product,
                  const base::ParallelFor& parallel = base::serial_for);

/// Gathers values on at most `tiles` tiles: `to` gets the values of `from` at `places`, which has its shape.
program::StepId add_gather(const Builder& builder, const Operand& from, const Operand& places,
                           const Operand& to, uint32_t tiles);

/// The index arrays of a weight in a program, each added when the first product needs it. They do not move:
/// constants for a static weight, which keep it alive, and inputs for a dynamic one, to be bound again in
/// each run, so that the program serves every pattern.
class WeightIndex {
 public:
  /// `name` is the weight's name: the arrays of "W" are named "W.columns", ….
  explicit WeightIndex(std::shared_ptr<const PackedWeight> weight, std::string name = "W");

  const PackedWeight& weight() const { return *weight_; }

  /// Adds an array of the weight; `changes` says whether it depends on the pattern of a dynamic weight.
  program::VariableId array(const Builder& builder, const char* name, Type type, const void* data,
                            uint64_t rows, uint32_t cols, bool changes);

  /// A binding of each run, to be taken after update_index().
  struct Binding {
    program::VariableId variable = 0;
    const void* data = nullptr;
    int64_t row_stride = 0;
  };
  const std::vector<Binding>& bindings() const { return bindings_; }

 private:
  std::shared_ptr<const PackedWeight> weight_;
  std::string name_;
  std::map<std::pair<std::string, const void*>, program::VariableId> added_;
  std::vector<Binding> bindings_;
};

}  // namespace tessera::ops
