#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/tile/tile_product/cost.h"
#include "ops/sparse/static/static.h"
#include "ops/sparse/static/static_estimate.h"
#include "program/sizes.h"

namespace tessera::ops {
namespace {

using machine::Machine;
using program::Phase;

class ProductEstimate : public PartitionEstimate {
 public:
  ProductEstimate(const StaticShape& s, const PatternCounts& counts, const BandCounts& bands,
                  const StaticPartition& partition, const Machine& m)
      : PartitionEstimate(s.pattern, s.n, s.numbers, counts, bands, partition, m), aliased_(s.aliased) {}

  Expected<StaticPartition> all() const {
    program::PhaseTimes cycles;
    if (aliased_ != nullptr && partition_.col_parts > 1) add_exchange(m_, take_cycles(), cycles);
    program::TileTraffic t;
    receive_x(t);
    receive_values(t);
    program::TileTraffic owner;
    owner.gathered_out = gathered_from_owner();
    add_exchange(m_, std::max(program::traffic_cycles(m_, t), program::traffic_cycles(m_, owner)), cycles);
    cycles[Phase::compute] = multiply_cycles();
    add_reduction(cycles);
    cycles[Phase::control] = 2 * program::superstep_cycles(m_, partition_.tiles());
    return {partition_, cycles, bytes()};
  }

 private:
  void receive_values(program::TileTraffic& t) const {
    if (partition_.col_parts > 1)
      t.in += value_bytes();
    else if (aliased_ != nullptr)
      t.gathered_in += value_bytes();
  }

  /// Values with another product's layout are redistributed before they are copied.
  double take_cycles() const {
    program::TileTraffic t;
    t.gathered_in = t.gathered_out = all_value_bytes() / m_.tiles;
    return program::traffic_cycles(m_, t);
  }

  double multiply_cycles() const {
    const Type type = numbers_.operands;
    const auto n = static_cast<uint32_t>(cols_);
    if (b_ > 1) {
      const kernels::BlockRates rates = kernels::block_rates(m_, type, b_, n, aliased_ != nullptr);
      return rates.start + rows_ * rates.per_row + blocks_ * rates.per_block;
    }
    return element_cycles(kernels::element_rates(type, n));
  }

  void add_reduction(program::PhaseTimes& cycles) const {
    const double cols = owned_cols(pattern_.rows);
    const double rows = largest_fraction(parts_of_rows(), pattern_.rows, m_.tiles);
    const double own_rows = std::ceil(double{1} * pattern_.rows / m_.tiles);
    program::TileTraffic t;
    t.gathered_in = rows * cols * partial_size_;
    t.gathered_out = row_bytes(partial_size_);
    add_exchange(m_, program::traffic_cycles(m_, t), cycles);
    cycles[Phase::reduce] = reduce_cycles(m_, numbers_, rows / std::max(1.0, own_rows), own_rows * cols);
  }

  double bytes() const {
    const double spread = all_value_bytes() / m_.tiles;
    const double values = partition_.col_parts > 1 ? spread + value_bytes() : value_bytes();
    const double taken = aliased_ != nullptr ? spread : 0;
    const double transfers =
        x_transfers() +
        (aliased_ != nullptr
             ? (spread + (partition_.col_parts > 1 ? spread : value_bytes())) / (b_ * b_ * size_)
             : 0);
    const double lists = 2.0 * (rows_ + blocks_);
    return resident_bytes(pattern_.cols) + resident_bytes(pattern_.rows) + lists + values + taken +
           x_bytes() + row_bytes(partial_size_) + transfers * program::kTransferCodeBytes +
           program::kStackBytes;
  }

  const AliasedValues* aliased_;
};

}  // namespace

std::string to_string(const StaticPartition& partition) {
  const std::string tiles = partition.is_vendors() ? fmt::format("shared_tiles={}", partition.shared_tiles)
                                                   : fmt::format("band_tiles={}", partition.band_tiles);
  return fmt::format("col_parts={} bands={} {}{}{}", partition.col_parts, partition.bands, tiles,
                     partition.whole_bands ? " whole_bands" : "", partition.mirrored ? " mirrored" : "");
}

std::vector<Expected<StaticPartition>> static_partitions(const StaticShape& shape, const Machine& machine,
                                                         const StaticPartition& forced) {
  return search_partitions<ProductEstimate>(shape, machine, forced);
}

}  // namespace tessera::ops
