#include <algorithm>
#include <cmath>

#include "kernels/tile/tile_product/cost.h"
#include "ops/sparse/static/sddmm.h"
#include "ops/sparse/static/static_estimate.h"
#include "program/sizes.h"

namespace tessera::ops {
namespace {

using machine::Machine;
using program::Phase;

class SddmmEstimate : public PartitionEstimate {
 public:
  SddmmEstimate(const StaticSddmmShape& s, const PatternCounts& counts, const BandCounts& bands,
                const StaticPartition& partition, const Machine& m)
      : PartitionEstimate(s.pattern, s.n, s.numbers, counts, bands, partition, m),
        stays_(s.stays(partition)),
        home_(s.values.partition) {}

  Expected<StaticPartition> all() const {
    program::PhaseTimes cycles;
    program::TileTraffic t;
    receive_x(t);
    t.gathered_in += row_bytes(size_);
    program::TileTraffic owner;
    owner.gathered_out = gathered_from_owner() + dy_from_owner();
    add_exchange(m_, std::max(program::traffic_cycles(m_, t), program::traffic_cycles(m_, owner)), cycles);
    cycles[Phase::compute] = multiply_cycles();
    cycles[Phase::control] = program::superstep_cycles(m_, partition_.tiles());
    if (!stays_) send(cycles);
    return {partition_, cycles, bytes()};
  }

 private:
  double dy_from_owner() const {
    return largest_fraction(parts_of_rows(), pattern_.rows, m_.tiles) * owned_cols(pattern_.rows) * size_;
  }

  double multiply_cycles() const {
    const Type type = numbers_.operands;
    const auto n = static_cast<uint32_t>(cols_);
    if (b_ == 1) return element_cycles(kernels::sddmm_element_rates(type, n));
    const kernels::BlockRates rates = kernels::sddmm_block_rates(m_, type, b_, n);
    return rates.start + rows_ * rates.per_row + blocks_ * rates.per_block;
  }

  double sent_bytes() const { return blocks_ * b_ * b_ * (partition_.col_parts > 1 ? partial_size_ : size_); }

  /// Blocks of the tile that owns most.
  double owned_blocks() const {
    return std::ceil(counts_.blocks / (home_.col_parts > 1 ? m_.tiles : home_.parts()));
  }

  void send(program::PhaseTimes& cycles) const {
    const double received = owned_blocks() * partition_.col_parts * sent_bytes() / std::max(1.0, blocks_);
    program::TileTraffic t;
    t.gathered_in = received;
    t.gathered_out = sent_bytes();
    add_exchange(m_, program::traffic_cycles(m_, t), cycles);
    if (partition_.col_parts == 1) return;
    cycles[Phase::reduce] = reduce_cycles(m_, numbers_, partition_.col_parts, owned_blocks() * b_ * b_);
    cycles[Phase::control] += program::superstep_cycles(m_, partition_.tiles());
  }

  double bytes() const {
    const double sent = stays_ ? 0 : sent_bytes();
    const double received =
        partition_.col_parts > 1 ? owned_blocks() * partition_.col_parts * b_ * b_ * partial_size_ : 0;
    const double transfers =
        x_transfers() + rows_ * b_ + (stays_ ? 0 : blocks_ + owned_blocks() * partition_.col_parts);
    const double lists = 2.0 * (rows_ + blocks_);
    return resident_bytes(pattern_.cols) + resident_bytes(pattern_.rows) + lists +
           owned_blocks() * b_ * b_ * size_ + sent + std::max(x_bytes() + row_bytes(size_), received) +
           transfers * program::kTransferCodeBytes + program::kStackBytes;
  }

  bool stays_;
  const StaticPartition& home_;  ///< of W
};

}  // namespace

std::vector<Expected<StaticPartition>> sddmm_partitions(const StaticSddmmShape& shape, const Machine& machine,
                                                        const StaticPartition& forced) {
  return search_partitions<SddmmEstimate>(shape, machine, forced);
}

}  // namespace tessera::ops
