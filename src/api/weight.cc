#include "api/weight.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <vector>

#include "machine/detect.h"

namespace tessera {
namespace {

std::shared_ptr<Weight::Storage> store(ops::PackedWeight packed) {
  return std::make_shared<Weight::Storage>(
      Weight::Storage{std::make_shared<ops::PackedWeight>(std::move(packed))});
}

void require_count(size_t have, uint64_t want) {
  if (have != want)
    throw UsageError(fmt::format("{} values for a weight of {}: pass one for each stored value, in the order "
                                 "of SparseMatrix::values", have, want));
}

/// A full pattern's blocks, back in a row-major matrix.
void get_dense(const sparse::PackedBlocks& packed, std::span<float> values) {
  const uint32_t b = packed.block_size();
  std::vector<float> blocks(packed.blocks() * packed.order().block_values());
  packed.get_values(blocks);
  for (uint32_t i = 0; i < packed.rows(); ++i)
    for (uint32_t j = 0; j < packed.cols(); ++j) {
      const uint64_t block = uint64_t{i / b} * packed.block_cols() + j / b;
      values[uint64_t{i} * packed.cols() + j] = blocks[(block * b + i % b) * b + j % b];
    }
}

}  // namespace

Weight::Weight(const SparseMatrix& matrix, Type type)
    : storage_(store(ops::pack_weight(matrix, type, machine::default_threads(machine::detect_host())))) {}

Weight Weight::dense(MatrixView<const float> values, uint32_t m, uint32_t k, Type type) {
  sparse::PackedBlocks blocks(sparse::full_pattern(m, k, sparse::kDenseBlockSize), type);
  blocks.set_values_from(values);
  return Weight(store({std::move(blocks), true}));
}

uint32_t Weight::rows() const {
  return std::visit([](const auto& w) { return w.rows(); }, storage_->packed->form);
}

uint32_t Weight::cols() const {
  return std::visit([](const auto& w) { return w.cols(); }, storage_->packed->form);
}

Type Weight::type() const {
  return std::visit([](const auto& w) { return w.type(); }, storage_->packed->form);
}

bool Weight::is_dense() const { return storage_->packed->is_dense; }

uint32_t Weight::block_size() const {
  const auto* blocks = std::get_if<sparse::PackedBlocks>(&storage_->packed->form);
  return blocks == nullptr ? 1 : blocks->block_size();
}

uint64_t Weight::non_zeros() const {
  const auto* blocks = std::get_if<sparse::PackedBlocks>(&storage_->packed->form);
  return blocks != nullptr ? blocks->non_zeros()
                           : std::get<sparse::PackedElements>(storage_->packed->form).nonzeros();
}

uint64_t Weight::bytes() const {
  const auto* blocks = std::get_if<sparse::PackedBlocks>(&storage_->packed->form);
  if (blocks != nullptr) return blocks->bytes();
  const auto& elements = std::get<sparse::PackedElements>(storage_->packed->form);
  return elements.value_bytes() + elements.index_bytes();
}

void Weight::set_values(std::span<const float> values) {
  if (auto* blocks = std::get_if<sparse::PackedBlocks>(&storage_->packed->form)) {
    if (is_dense()) {
      require_count(values.size(), uint64_t{rows()} * cols());
      blocks->set_values_from({values.data(), cols(), 1});
      return;
    }
    require_count(values.size(), blocks->blocks() * blocks->order().block_values());
    blocks->set_values(values);
    return;
  }
  auto& elements = std::get<sparse::PackedElements>(storage_->packed->form);
  require_count(values.size(), elements.nonzeros());
  elements.set_values(values.data());
}

void Weight::get_values(std::span<float> values) const {
  if (const auto* blocks = std::get_if<sparse::PackedBlocks>(&storage_->packed->form)) {
    if (is_dense()) {
      require_count(values.size(), uint64_t{rows()} * cols());
      get_dense(*blocks, values);
      return;
    }
    require_count(values.size(), blocks->blocks() * blocks->order().block_values());
    blocks->get_values(values);
    return;
  }
  const auto& elements = std::get<sparse::PackedElements>(storage_->packed->form);
  require_count(values.size(), elements.nonzeros());
  elements.get_values(values.data());
}

}  // namespace tessera
