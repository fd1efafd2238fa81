#include "bound/weight.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/machine.h>

#include <algorithm>
#include <string_view>

#include "bound/views.h"
#include "engine/pool.h"
#include "sparse/moves.h"
#include "sparse/packed_format.h"
#include "sparse/parts.h"
#include "sparse/pattern.h"

namespace tessera {
namespace {

using sparse::PackedBlocks;
using sparse::PackedElements;
using sparse::PackedPanels;

std::shared_ptr<Weight::Storage> store(ops::PackedWeight packed) {
  return std::make_shared<Weight::Storage>(
      Weight::Storage{std::make_shared<ops::PackedWeight>(std::move(packed))});
}

void require_count(size_t have, uint64_t want) {
  if (have != want)
    throw UsageError(
        fmt::format("{} values for a weight of {}: pass one for each stored value, in the order "
                    "of SparseMatrix::values",
                    have, want));
}

void require_packed(std::string_view what, size_t have, uint64_t want) {
  if (have != want)
    throw UsageError(fmt::format("{} of {} elements; in packed order this weight has {}", what, have, want));
}

void require_values(const Weight& weight) {
  if (!weight.has_values())
    throw UsageError(
        "this weight has no values of its own: the caller keeps them in packed order, and changes the "
        "pattern by "
        "set_pattern()");
}

template <class... Visits>
struct ByForm : Visits... {
  using Visits::operator()...;
};
template <class... Visits>
ByForm(Visits...) -> ByForm<Visits...>;

/// Calls the function for the form of a weight: blocks, single elements or panels.
template <class... Visits>
decltype(auto) by_form(const Weight& weight, const Visits&... visits) {
  return std::visit(ByForm{visits...}, weight.storage()->packed->form);
}

uint64_t stored_values(const PackedBlocks& blocks) { return blocks.blocks() * blocks.order().block_values(); }

/// Number of values; for a dense weight, those of its matrix.
uint64_t value_count(const Weight& weight) {
  return by_form(
      weight, [](const PackedBlocks& w) { return stored_values(w); },
      [](const PackedElements& w) { return w.nonzeros(); },
      [](const PackedPanels& w) { return w.elements(); });
}

[[noreturn]] void refuse_pattern() {
  throw UsageError("a dense weight: its pattern is full; make it a dynamic one");
}

Relocation relocation(const PackedBlocks& blocks, std::vector<uint32_t> cleared) {
  const uint32_t slot_values = blocks.order().block_values();
  return Relocation(std::make_shared<const Relocation::Moves>(
      Relocation::Moves{blocks.capacity() * slot_values, slot_values, std::move(cleared)}));
}

Relocation compact(PackedBlocks& blocks) {
  const uint32_t slot_values = blocks.order().block_values();
  Relocation::Moves moves{blocks.capacity() * slot_values, slot_values};
  SparseMatrix matrix{blocks.pattern(), std::vector<float>(stored_values(blocks))};
  blocks.get_values(matrix.values);
  moves.former_slots.emplace(blocks.index().slots.begin(),
                             blocks.index().slots.begin() + static_cast<ptrdiff_t>(blocks.blocks()));
  blocks.set_matrix(matrix, parallel());
  return Relocation(std::make_shared<const Relocation::Moves>(std::move(moves)));
}

/// Renumbered slots take the values of their former slots; all others, including new blocks, become 0.
void renumber(std::span<const uint32_t> former_slots, uint64_t slot_values, std::span<float> state) {
  const std::vector<float> former(state.begin(), state.end());
  const auto slots = static_cast<uint32_t>(former_slots.size());
  sparse::for_each_part(slots, sparse::parts_for(state.size_bytes()), parallel(),
                        [&](uint32_t, uint32_t begin, uint32_t end) {
                          for (uint32_t slot = begin; slot < end; ++slot) {
                            float* to = state.data() + slot * slot_values;
                            if (former_slots[slot] == PackedBlocks::kNoSlot)
                              std::fill_n(to, slot_values, 0.0F);
                            else
                              std::copy_n(former.data() + former_slots[slot] * slot_values, slot_values, to);
                          }
                        });
  std::fill(state.begin() + static_cast<ptrdiff_t>(slots * slot_values), state.end(), 0.0F);
}

Relocation set_pattern(PackedBlocks& blocks, const Pattern& pattern) {
  if (blocks.has_values()) return relocation(blocks, blocks.set_pattern(pattern, parallel()));
  const uint32_t slot_values = blocks.order().block_values();
  Relocation::Moves moves{blocks.capacity() * slot_values, slot_values};
  moves.former_slots = blocks.arrange(pattern, parallel());
  return Relocation(std::make_shared<const Relocation::Moves>(std::move(moves)));
}

Relocation relocation(const PackedElements& elements, std::shared_ptr<const sparse::Moves> moves) {
  return Relocation(std::make_shared<const Relocation::Moves>(
      Relocation::Moves{elements.places(), 1, {}, {}, std::move(moves)}));
}

}  // namespace

const base::ParallelFor& parallel() {
  static const base::ParallelFor parallel = [](uint32_t count, const std::function<void(uint32_t)>& job) {
    engine::on_pool(default_threads())(count, job);
  };
  return parallel;
}

void Relocation::apply(std::span<float> state) const {
  require_packed("a state", state.size(), moves_->packed_size);
  if (moves_->of_elements != nullptr) return sparse::follow(*moves_->of_elements, state, parallel());
  if (moves_->former_slots) return renumber(*moves_->former_slots, moves_->slot_values, state);
  for (const uint32_t slot : moves_->cleared)
    std::fill_n(state.begin() + static_cast<ptrdiff_t>(uint64_t{slot} * moves_->slot_values),
                moves_->slot_values, 0.0F);
}

Weight::Weight(const SparseMatrix& matrix, Type type) : storage_(store(ops::prepack_weight(matrix, type))) {}

Weight Weight::dense(MatrixView<const float> values, uint32_t m, uint32_t k, Type type) {
  require_array(values.data, "W", m, k);
  PackedPanels panels(m, k, type);
  panels.set_values(values);
  return Weight(store({std::move(panels)}));
}

Weight Weight::dynamic(const SparseMatrix& matrix, uint64_t capacity_blocks, Type type) {
  if (matrix.pattern.block_size == 1) {
    auto elements = PackedElements::dynamic(matrix.pattern.rows, matrix.pattern.cols, capacity_blocks, type);
    elements.set_matrix(matrix, parallel());
    return Weight(store({std::move(elements)}));
  }
  PackedBlocks blocks(matrix.pattern, type, capacity_blocks);
  require_count(matrix.values.size(), stored_values(blocks));
  blocks.set_values(matrix.values, parallel());
  return Weight(store({std::move(blocks)}));
}

Weight Weight::without_values(const Pattern& pattern, Type type) {
  return Weight(store(ops::prepack_index(pattern, type, {}, parallel())));
}

Weight Weight::without_values(const Pattern& pattern, uint64_t capacity_blocks, Type type) {
  return Weight(store(ops::prepack_index(pattern, type, capacity_blocks, parallel())));
}

uint32_t Weight::rows() const { return storage_->packed->rows(); }
uint32_t Weight::cols() const { return storage_->packed->cols(); }
Type Weight::type() const { return storage_->packed->type(); }
bool Weight::is_dense() const { return storage_->packed->is_dense(); }
bool Weight::is_dynamic() const { return storage_->packed->is_dynamic(); }

bool Weight::has_values() const {
  return by_form(*this, [](const auto& w) { return w.has_values(); });
}

uint32_t Weight::block_size() const {
  return by_form(
      *this, [](const PackedBlocks& w) { return w.block_size(); }, [](const PackedElements&) { return 1U; },
      [](const PackedPanels&) { return sparse::kDenseBlockSize; });
}

uint64_t Weight::capacity() const {
  return by_form(*this, [](const auto& w) { return w.capacity(); });
}

Pattern Weight::pattern() const {
  return by_form(
      *this, [](const PackedElements& w) { return w.pattern(parallel()); },
      [](const auto& w) { return w.pattern(); });
}

uint64_t Weight::non_zeros() const {
  return by_form(
      *this, [](const PackedBlocks& w) { return w.non_zeros(); },
      [](const PackedElements& w) { return w.nonzeros(); },
      [](const PackedPanels& w) { return w.elements(); });
}

uint64_t Weight::bytes() const {
  return by_form(
      *this, [](const PackedElements& w) { return uint64_t{w.value_bytes() + w.index_bytes()}; },
      [](const auto& w) { return w.bytes(); });
}

void Weight::set_values(std::span<const float> values) {
  require_values(*this);
  require_count(values.size(), value_count(*this));
  by_form(
      *this, [&](PackedBlocks& w) { w.set_values(values, parallel()); },
      [&](PackedElements& w) { w.set_values(values.data(), parallel()); },
      [&](PackedPanels& w) { w.set_values(row_major(values.data(), cols())); });
}

void Weight::get_values(std::span<float> values) const {
  require_values(*this);
  require_count(values.size(), value_count(*this));
  by_form(
      *this, [&](const PackedElements& w) { w.get_values(values.data(), parallel()); },
      [&](const auto& w) { w.get_values(values); });
}

uint64_t Weight::packed_size() const { return packed_shape(*storage_->packed).elements(); }

PackedFormat Weight::packed_format() const {
  return by_form(*this, [](const auto& w) { return sparse::format_of(w); });
}

std::span<float> Weight::packed_values() {
  require_values(*this);
  if (type() != Type::f32)
    throw UsageError(
        fmt::format("the packed values of this weight are {}; only FP32 values can be accessed. "
                    "Keep an FP32 master copy, and set_values()",
                    name_of(type())));
  return by_form(
      *this,
      [&](PackedElements& w) { return std::span(reinterpret_cast<float*>(w.values()), packed_size()); },
      [&](auto& w) { return std::span(reinterpret_cast<float*>(w.values().data()), packed_size()); });
}

std::span<const float> Weight::packed_values() const { return Weight(*this).packed_values(); }

void Weight::pack(std::span<const float> values, std::span<float> packed) const {
  require_packed("room", packed.size(), packed_size());
  require_count(values.size(), value_count(*this));
  by_form(
      *this, [&](const PackedElements& w) { w.pack(values, packed, parallel()); },
      [&](const auto& w) { w.pack(values, packed); });
}

void Weight::unpack(std::span<const float> packed, std::span<float> values) const {
  require_packed("an array", packed.size(), packed_size());
  require_count(values.size(), value_count(*this));
  by_form(
      *this, [&](const PackedElements& w) { w.unpack(packed, values, parallel()); },
      [&](const auto& w) { w.unpack(packed, values); });
}

void Weight::set_matrix(const SparseMatrix& matrix) {
  require_values(*this);
  by_form(
      *this, [](PackedPanels&) { refuse_pattern(); }, [&](auto& w) { w.set_matrix(matrix, parallel()); });
}

Relocation Weight::set_pattern(const Pattern& pattern) {
  return by_form(
      *this, [&](PackedBlocks& w) { return tessera::set_pattern(w, pattern); },
      [&](PackedElements& w) { return relocation(w, w.set_pattern(pattern, parallel())); },
      [](PackedPanels&) -> Relocation { refuse_pattern(); });
}

Relocation Weight::replace(std::span<const BlockPosition> drop, std::span<const BlockPosition> grow) {
  require_values(*this);
  return by_form(
      *this, [](PackedPanels&) -> Relocation { refuse_pattern(); },
      [&](auto& w) { return relocation(w, w.replace(drop, grow, parallel())); });
}

Relocation Weight::compact() {
  require_values(*this);
  if (!is_dynamic())
    throw UsageError("a static weight: its values are in order; only dynamic weights can be compacted");
  return by_form(
      *this, [](PackedBlocks& w) { return tessera::compact(w); },
      [](PackedElements& w) { return relocation(w, std::make_shared<const sparse::Moves>()); },
      [](PackedPanels&) -> Relocation { refuse_pattern(); });
}

}  // namespace tessera
