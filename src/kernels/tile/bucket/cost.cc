#include "kernels/tile/bucket/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/tile/bucket/codelet.h"
#include "kernels/tile/bucket/metadata.h"
#include "kernels/tile/tile_product/cost.h"

// The formulas are those of PopLibs' performance estimators (SDK 3.4), unless stated otherwise. Quantities
// that they average (how many subgroups are searched until the tile's own is found) stay averaged.
namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::PhaseTimes;
using program::Vertex;

/// Cycles of the supervisor: per bucket, per subgroup of another partition, per own subgroup and per subgroup
/// searched before it.
struct Supervisor {
  double start;
  double foreign;
  double own;
  double searched;

  double cycles(const BucketWork& work) const {
    const double before = std::max(0.0, (work.subgroups - 1) / 2);
    return start + foreign * (work.subgroups - work.own) + work.own * (searched * (before + 1) + own);
  }
};
constexpr Supervisor kBlockSupervisor = {40, 33, 56, 46};
constexpr Supervisor kElementSupervisor = {30, 32, 46, 47};

/// For blocks, with n the columns of one worker: a subgroup takes each worker `start`, a row `row`, and each
/// of a block's `passes` `inner` + `column` (n − 1). PopLibs has no fixed cycles of a row: the cycles of
/// static products are assumed.
struct BlockWorker {
  double start = 0;
  double row = 0;
  double inner = 0;
  double column = 0;
  double passes = 1;
};

/// The multipliers hold 16 sums of FP16, or 8 of FP32, which take two passes for 16 rows of W.
BlockWorker block_worker(const machine::Machine& m, Type type, Type partials, uint32_t size) {
  const auto column = [&](double cycles) { return multiplier_cycles(m, type, cycles); };
  if (type == Type::f32)
    return size == 4 ? BlockWorker{26, 1, 15, column(4)} : BlockWorker{23, 4, 28, column(8)};
  const bool wide = partials == Type::f32;
  if (size == 4) return {26, 1, wide ? 18.0 : 16.0, column(2)};
  if (size == 8) return {wide ? 20.0 : 23.0, 1, wide ? 24.0 : 21.0, column(4)};
  return wide ? BlockWorker{23, 1, 25, column(4), 2} : BlockWorker{22, 1, 23, column(4)};
}

double block_bytes(Type type, uint32_t size) {
  return static_cast<double>(size) * size * static_cast<double>(size_of(type));
}

// Derived: a block that is read as its transpose is written to memory first: 8 bytes loaded and 8 stored for
// every 8.
double block_cycles(const machine::Machine& m, Type type, Type partials, uint32_t block_size, uint32_t n,
                    const BucketWork& work, bool transposed) {
  const uint32_t size = bucket_kernel_size(type, block_size);
  const double side = std::ceil(static_cast<double>(block_size) / size);  // in kernels
  const double columns = std::max(1.0, worker_slice(m, n));
  const BlockWorker worker = block_worker(m, type, partials, size);
  const double workers = m.workers_per_tile;
  const double load =
      3 + 12 * worker.passes + (transposed ? 3 : 1) * block_bytes(type, size) / m.load_bytes_per_cycle;
  const double per_block = load + workers * worker.passes * (worker.inner + worker.column * (columns - 1));
  return kBlockSupervisor.cycles(work) + work.own * workers * worker.start +
         work.rows * side * (workers * worker.row + 17) + work.blocks * side * side * per_block;
}

// Derived like those of tile_sddmm (kernels/tile/tile_product/cost.cc): n in pieces of as many columns as the
// kernel has; the piece of a block row of dY is loaded once for all its blocks.
double sddmm_block_cycles(const machine::Machine& m, Type type, uint32_t block_size, uint32_t n,
                          const BucketWork& work) {
  const uint32_t size = bucket_kernel_size(type, block_size);
  const double side = std::ceil(static_cast<double>(block_size) / size);
  const double pieces = std::ceil(static_cast<double>(n) / size);
  const double columns = std::max(1.0, worker_slice(m, size));
  const BlockWorker worker = block_worker(m, type, type, size);
  const double workers = m.workers_per_tile;
  const double load = 15 + block_bytes(type, size) / m.load_bytes_per_cycle;
  return kBlockSupervisor.cycles(work) + work.own * workers * worker.start +
         work.rows * side * (workers * worker.row + 17 + pieces * load) +
         work.blocks * side * side * pieces * workers * (worker.inner + worker.column * (columns - 1));
}

/// For single elements: a worker's start, and per row of Y elements `row` + `element` Y.
struct ElementWorker {
  double start;
  double row;
  double element;
};

/// For numbers of columns other than 4 and 8 (FP16), 2 and 4 (FP32), a row is processed in pieces of these.
ElementWorker element_worker(Type type, uint32_t n) {
  const uint32_t width = type == Type::f16 ? 8 : 4;
  if (type == Type::f16 && n == 8) return {28, 15, 3};
  if (type == Type::f16 && n == 4) return {30, 11, 2};
  if (type == Type::f32 && n == 4) return {25, 13, 3};
  if (type == Type::f32 && n == 2) return {27, 11, 2};
  const double whole = std::floor(n / static_cast<double>(width));
  const double rest = n % width != 0 ? 1 : 0;
  return {type == Type::f16 ? 33.0 : 27.0, 12 + 16 * (whole + rest), 3 * whole + 2 * rest};
}

// Derived: elements read as their transposes each add to a row of Y, which takes the vector's two stores
// more; since two workers must not add to one row, they split the columns.
ElementWorker transposed_element_worker(const machine::Machine& m, Type type, uint32_t n) {
  const uint32_t width = type == Type::f16 ? 8 : 4;
  const double columns = std::max(1.0, worker_slice(m, n));
  const double whole = std::floor(columns / width);
  const double rest = std::fmod(columns, width) != 0 ? 1 : 0;
  return {type == Type::f16 ? 33.0 : 27.0, 12 + 16 * (whole + rest), 5 * whole + 4 * rest};
}

// Derived: an element costs what a row costs forward for one vector of columns, with the vectors of the n
// columns as its terms.
ElementWorker sddmm_element_worker(Type type, uint32_t n) {
  const uint32_t width = type == Type::f16 ? 8 : 4;
  const double whole = std::max(1.0, std::floor(static_cast<double>(n) / width));
  const double rest = n > width && n % width != 0 ? 2 : 0;
  return {type == Type::f16 ? 33.0 : 27.0, 12, 16 + 3 * (whole - 1) + rest};
}

double element_cycles(const machine::Machine& m, const ElementWorker& worker, const BucketWork& work) {
  return kElementSupervisor.cycles(work) +
         m.workers_per_tile *
             (work.own * worker.start + work.rows * worker.row + work.blocks * worker.element);
}

/// Adds the rows of a subgroup's slowest worker.
void add_slowest(const Subgroup& subgroup, const ElementWorker& cost, BucketWork& work) {
  BucketWork slowest;
  double most = -1;
  for (uint32_t w = 0; w < subgroup.workers(); ++w) {
    const Subgroup::WorkerRows rows = subgroup.worker(w);
    const uint32_t end = w + 1 < subgroup.workers() ? subgroup.worker(w + 1).first_value : subgroup.blocks();
    const double elements = end - rows.first_value;
    const double cycles = cost.row * rows.rows + cost.element * elements;
    if (cycles > most) slowest = {0, 0, double{1} * rows.rows, elements}, most = cycles;
  }
  work.rows += slowest.rows;
  work.blocks += slowest.blocks;
}

/// The work of a vertex in a bucket of `blocks` blocks; without metadata, a bucket full of its tile's own
/// blocks, in as many of `rows` block rows as possible. Single elements are dealt to workers, whose costs are
/// `cost`.
BucketWork work_of(const FieldView& metadata, const Vertex& v, const machine::Machine& m, double blocks,
                   double rows, const ElementWorker* cost) {
  if (metadata.data == nullptr) {
    const double slice = cost != nullptr ? m.workers_per_tile : 1;
    return {1, 1, std::ceil(std::min(rows, blocks) / slice), std::ceil(blocks / slice)};
  }
  const BucketView bucket(metadata.as<const uint16_t>());
  BucketWork work;
  work.subgroups = bucket.subgroups();
  bucket.each_subgroup([&](const Subgroup& subgroup, uint32_t) {
    if (subgroup.partition() != static_cast<uint32_t>(v.params[bucket_product_param::partition])) return;
    work.own += 1;
    if (cost != nullptr) return add_slowest(subgroup, *cost, work);
    work.rows += subgroup.rows();
    work.blocks += subgroup.blocks();
  });
  return work;
}

double block_rows(const FieldView& field, uint32_t block_size) {
  return std::ceil(static_cast<double>(field.rows) / block_size);
}

/// For single elements read as their transposes, all count for each worker.
double product_cycles(const machine::Machine& m, Type type, Type partials, uint32_t block_size, uint32_t n,
                      const BucketWork& work, bool transposed) {
  if (block_size > 1) return block_cycles(m, type, partials, block_size, n, work, transposed);
  return element_cycles(m, transposed ? transposed_element_worker(m, type, n) : element_worker(type, n),
                        work);
}

}  // namespace

uint32_t bucket_kernel_size(Type type, uint32_t block_size) {
  return std::min(kernel_size(block_size), type == Type::f32 ? 8U : 16U);
}

double bucket_cycles(const machine::Machine& m, Type type, Type partials, uint32_t block_size, uint32_t n,
                     const BucketWork& work) {
  return product_cycles(m, type, partials, block_size, n, work, false);
}

// About 25, and a store per 8 bytes.
double fill_cycles(const machine::Machine& m, double bytes) {
  return 25 + std::ceil(bytes / m.load_bytes_per_cycle);
}

PhaseTimes bucket_product_cost(const Vertex& v, const machine::Machine& m) {
  using namespace bucket_product_field;
  const auto b = static_cast<uint32_t>(v.params[bucket_product_param::block_size]);
  const bool transposed = v.params[bucket_product_param::transposed] != 0;
  const FieldView& out = v.fields[y];
  const Type type = v.fields[values].type;
  const ElementWorker cost = element_worker(type, out.cols);
  const BucketWork work =
      work_of(v.fields[metadata], v, m, v.fields[values].rows, block_rows(transposed ? v.fields[x] : out, b),
              b == 1 && !transposed ? &cost : nullptr);
  const double zeroing = v.params[bucket_product_param::is_first] != 0 ? fill_cycles(m, bytes_of(out)) : 0;
  return in_phase(Phase::compute, zeroing + product_cycles(m, type, out.type, b, out.cols, work, transposed));
}

PhaseTimes bucket_sddmm_cost(const Vertex& v, const machine::Machine& m) {
  using namespace bucket_sddmm_field;
  const auto b = static_cast<uint32_t>(v.params[bucket_sddmm_param::block_size]);
  const FieldView& left = v.fields[dy];
  const ElementWorker cost = sddmm_element_worker(left.type, left.cols);
  const BucketWork work =
      work_of(v.fields[metadata], v, m, v.fields[dw].rows, block_rows(left, b), b == 1 ? &cost : nullptr);
  const double zeroing =
      v.params[bucket_sddmm_param::is_first] != 0 ? fill_cycles(m, bytes_of(v.fields[dw])) : 0;
  return in_phase(Phase::compute, zeroing + (b > 1 ? sddmm_block_cycles(m, left.type, b, left.cols, work)
                                                   : element_cycles(m, cost, work)));
}

// Derived: the same search for subgroups as in the product.
PhaseTimes bucket_pending_cost(const Vertex& v, const machine::Machine& m) {
  (void)m;
  const FieldView& metadata = v.fields[bucket_pending_field::metadata];
  const double subgroups =
      metadata.data == nullptr ? 1 : BucketView(metadata.as<const uint16_t>()).subgroups();
  return in_phase(Phase::control, kBlockSupervisor.start + kBlockSupervisor.foreign * subgroups);
}

// Derived: a load and a branch of the supervisor per flag, 6 cycles each.
PhaseTimes any_flag_cost(const Vertex& v, const machine::Machine& m) {
  (void)m;
  return in_phase(Phase::control, 40 + 12.0 * v.fields[any_flag_field::flags].rows);
}

// The same with a load, an addition and a store per count.
PhaseTimes count_cost(const Vertex& v, const machine::Machine& m) {
  (void)m;
  return in_phase(Phase::control, 40 + 18.0 * v.fields[count_field::counts].rows);
}

}  // namespace tessera::kernels
