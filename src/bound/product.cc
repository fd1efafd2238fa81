#include "bound/product.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>

#include "bound/chips.h"
#include "bound/views.h"
#include "bound/weight.h"
#include "kernels/common/numbers.h"
#include "sparse/pattern.h"

namespace tessera::bound {
namespace {

using machine::Kind;
using machine::Machine;
using ops::ProductProblem;

constexpr const char* kStatic =
    "the weight of this product is static; plan for a capacity to change its pattern";

void require_capacity(const Pattern& pattern, const ProductProblem& problem) {
  if (problem.capacity && *problem.capacity < pattern.blocks())
    throw UsageError(fmt::format("a dynamic weight of at most {} blocks cannot hold {}", *problem.capacity,
                                 pattern.blocks()));
}

void require_shape(const Pattern& pattern, const Pattern& former) {
  if (pattern.rows != former.rows || pattern.cols != former.cols || pattern.block_size != former.block_size)
    throw UsageError(fmt::format(
        "a pattern of {} × {} in blocks of {} for a weight of {} × {} in blocks of {}", pattern.rows,
        pattern.cols, pattern.block_size, former.rows, former.cols, former.block_size));
}

/// Some columns of a matrix, and a contiguous copy of them, row by row.
MatrixView<float> columns_of(const MatrixView<float>& whole, uint32_t first) {
  return {whole.data + int64_t{first} * whole.col_stride, whole.row_stride, whole.col_stride};
}
std::vector<float> row_by_row(const MatrixView<float>& matrix, uint32_t rows, uint32_t cols) {
  std::vector<float> elements(size_t{rows} * cols);
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t c = 0; c < cols; ++c) elements[size_t{r} * cols + c] = matrix(r, c);
  return elements;
}
void spread(std::span<const float> row_by_row, const MatrixView<float>& matrix, uint32_t rows,
            uint32_t cols) {
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t c = 0; c < cols; ++c) matrix(r, c) = row_by_row[size_t{r} * cols + c];
}

MatrixView<float> transpose_of(const MatrixView<float>& matrix) {
  return {matrix.data, matrix.col_stride, matrix.row_stride};
}

/// A matrix whose rows or columns have no gaps, as kernels take them: itself or a copy.
class Lines {
 public:
  Lines(const MatrixView<float>& matrix, uint32_t rows, uint32_t cols)
      : matrix_(matrix), rows_(rows), cols_(cols) {
    if (matrix.row_stride == 1 || matrix.col_stride == 1) return;
    copy_.resize(size_t{rows} * cols);
    for (uint32_t r = 0; r < rows; ++r)
      for (uint32_t c = 0; c < cols; ++c) view()(r, c) = matrix(r, c);
  }

  MatrixView<float> view() const {
    return copy_.empty() ? matrix_ : MatrixView<float>{const_cast<float*>(copy_.data()), cols_, 1};
  }
  void copy_back() const {
    if (copy_.empty()) return;
    for (uint32_t r = 0; r < rows_; ++r)
      for (uint32_t c = 0; c < cols_; ++c) matrix_(r, c) = view()(r, c);
  }

 private:
  MatrixView<float> matrix_;
  uint32_t rows_, cols_;
  std::vector<float> copy_;
};

}  // namespace

void require_bias(const ProductProblem& problem, const float* bias) {
  if (problem.bias != (bias != nullptr))
    throw UsageError(problem.bias ? "the product was planned with a bias; pass one"
                                  : "the product was planned without a bias; set its option `bias`");
}

void check(const ProductProblem& problem, uint32_t block_size, const Machine& machine,
           const ops::ForcedKnobs& force, const ops::HostLayouts& layouts) {
  if (machine.kind == Kind::tiled) {
    if (layouts.x != Layout::row_major || layouts.y != Layout::row_major)
      throw UsageError(fmt::format("layouts are for hosts: {} spreads X and Y over its tiles", machine.name));
    return ops::check_tile_product(problem, machine, force);
  }
  if (problem.partials != Type::f32 && problem.partials != problem.type)
    throw UsageError(
        fmt::format("a host sums in FP32 with every type, not in {}", name_of(problem.partials)));
  ops::check_epilogue(problem);
  ops::check_host_product(problem, block_size, force);
}

std::shared_ptr<ops::PackedWeight> pack(const SparseMatrix& matrix, const ProductProblem& problem) {
  require_capacity(matrix.pattern, problem);
  if (!problem.capacity)
    return std::make_shared<ops::PackedWeight>(problem.dense ? ops::prepack_dense(matrix, problem.type)
                                                             : ops::prepack_weight(matrix, problem.type));
  return Weight::dynamic(matrix, *problem.capacity, problem.type).storage()->packed;
}

BoundProduct::BoundProduct(std::shared_ptr<const ops::PackedWeight> weight, const ProductProblem& problem,
                           const Machine& host, const ops::ForcedKnobs& force,
                           const ops::HostLayouts& layouts)
    : problem_(problem) {
  side_.emplace<OnHost>().weight = std::move(weight);
  compile_for(host, force, layouts);
}

BoundProduct::BoundProduct(const SparseMatrix& matrix, const ProductProblem& problem, const Machine& machine,
                           const ops::ForcedKnobs& force, const ops::TileProductPlan* forward,
                           const Layouts& layouts)
    : problem_(problem), pattern_(matrix.pattern) {
  if (machine.kind == Kind::host) {
    OnHost& host = side_.emplace<OnHost>();
    host.own = pack(matrix, problem);
    host.weight = host.own;
    compile_for(machine, force, layouts.host);
    return;
  }
  sparse::validate(matrix);
  require_capacity(matrix.pattern, problem);
  OnTiles& tiles = side_.emplace<OnTiles>();
  const bool is_free = forward == nullptr && layouts.tiles.values.empty() && layouts.tiles.x.empty() &&
                       layouts.tiles.y.empty();
  ChipPlan chips =
      machine.chip_count() > 1 && is_free
          ? plan_on_chips(pattern_, problem, machine, force)
          : ChipPlan{1, 1,
                     ops::plan_closed_product(pattern_, problem, machine, force, forward, layouts.tiles),
                     machine};
  tiles.plan = std::move(chips.planned.plan);
  tiles.built = std::move(chips.planned.program);
  tiles.replicas = chips.replicas;
  program_.emplace(std::move(tiles.built.program), chips.machine);
  bind_pattern(tiles);
  tiles.w = matrix.values;
}

void BoundProduct::compile_for(const Machine& machine, const ops::ForcedKnobs& force,
                               const ops::HostLayouts& layouts) {
  OnHost& host = std::get<OnHost>(side_);
  ops::update_index(*host.weight, problem_.product, parallel());
  host.plan = ops::plan_host_product(*host.weight, problem_, machine, force, layouts);
  ops::HostProgram built = ops::build_host_program(host.weight, problem_, host.plan, machine);
  program_.emplace(std::move(built.program), machine);
  for (const ops::WeightIndex::Binding& array : built.index)
    program_->bind(program_->position_of(array.variable), array.data);
}

const ops::PlanCandidate& BoundProduct::chosen() const {
  return std::visit([](const auto& side) -> const ops::PlanCandidate& { return side.plan.chosen; }, side_);
}

const std::vector<ops::PlanCandidate>& BoundProduct::candidates() const {
  return std::visit([](const auto& side) -> const auto& { return side.plan.candidates; }, side_);
}

uint32_t BoundProduct::tiles_used() const {
  const uint32_t used = std::visit([](const auto& side) { return side.plan.tiles_used(); }, side_);
  return is_on_host() ? used : used * std::get<OnTiles>(side_).replicas;
}

std::string BoundProduct::plan() const {
  return std::visit([](const auto& side) { return to_string(side.plan); }, side_);
}

void BoundProduct::bind_pattern(const OnTiles& tiles) {
  if (!tiles.built.dynamic) return;
  program_->bind(program_->position_of(tiles.built.operands.metadata->variable),
                 tiles.built.dynamic->encoding.metadata.data());
}

MatrixView<float> BoundProduct::view_of_x(const float* data, std::string_view name, int64_t leading) const {
  const OnHost& host = std::get<OnHost>(side_);
  return view_of(data, name, host.weight->cols(), problem_.n, host.plan.layouts.x, leading);
}

MatrixView<float> BoundProduct::view_of_y(const float* data, std::string_view name, int64_t leading) const {
  const OnHost& host = std::get<OnHost>(side_);
  return view_of(data, name, host.weight->rows(), problem_.n, host.plan.layouts.y, leading);
}

engine::Profile BoundProduct::call(const HostCall& call, const engine::RunOptions& options) const {
  const ops::PackedWeight& weight = *std::get<OnHost>(side_).weight;
  ops::update_index(weight, problem_.product, parallel());
  const void* of_w = call.values != nullptr ? call.values : weight.values();
  const std::array<float, 2> scalars = {call.alpha, call.beta};
  Arrays arrays(*program_);
  arrays.add(problem_.product == ProductKind::sddmm ? call.dw : of_w);
  if (weight.is_dense())
    arrays.add(transpose_of(call.x)).add(transpose_of(call.y)).add(scalars.data());
  else
    arrays.add(call.x).add(call.y).add(scalars.data());
  if (problem_.bias) arrays.add(call.bias);
  return program_->run(arrays, options);
}

engine::Profile BoundProduct::run(const MatrixView<float>& x, const MatrixView<float>& y,
                                  const engine::RunOptions& options, const float* bias) {
  require_bias(problem_, bias);
  const auto* host = std::get_if<OnHost>(&side_);
  require_matrix(x, "X", host != nullptr ? host->weight->cols() : pattern_.cols, problem_.n);
  require_matrix(y, "Y", host != nullptr ? host->weight->rows() : pattern_.rows, problem_.n);
  program_->require_fit();
  has_run_ = true;
  if (host == nullptr) return run_on_tiles(std::get<OnTiles>(side_), x, y, options, bias);
  const bool is_sddmm = problem_.product == ProductKind::sddmm;
  if (is_sddmm) dw_.resize(ops::packed_shape(*host->weight).elements());
  const Lines of_x(x, host->weight->cols(), problem_.n), of_y(y, host->weight->rows(), problem_.n);
  engine::Profile profile = call({of_x.view(), of_y.view(), dw_.data(), bias}, options);
  if (!is_sddmm) of_y.copy_back();
  return profile;
}

engine::Profile BoundProduct::run_on_tiles(OnTiles& tiles, const MatrixView<float>& x,
                                           const MatrixView<float>& y, const engine::RunOptions& options,
                                           const float* bias) const {
  const Type type = problem_.type;
  const ops::TileProductProgram& built = tiles.built;
  if (tiles.values.empty()) tiles.values = kernels::as_type(built.stored_weight({pattern_, tiles.w}), type);
  // Each replica has columns of its own.
  const uint32_t m = pattern_.rows, k = pattern_.cols, n = problem_.n / tiles.replicas;
  const auto stored = [&](const ops::OperandLayout& layout, const MatrixView<float>& matrix, uint32_t rows) {
    std::vector<float> all;
    for (uint32_t r = 0; r < tiles.replicas; ++r)
      std::ranges::copy(layout.store(row_by_row(columns_of(matrix, r * n), rows, n)),
                        std::back_inserter(all));
    return kernels::as_type(all, type);
  };
  std::vector<std::byte> x_bytes = stored(built.layouts.x, x, k), y_bytes = stored(built.layouts.y, y, m);

  Arrays arrays(*program_);
  const auto bind = [&](const ops::Operand& operand, std::vector<std::byte>& bytes, uint32_t replicas) {
    const auto stride = static_cast<int64_t>(bytes.size() / size_of(type) / replicas);
    arrays.set(program_->position_of(operand.variable), bytes.data(), operand.cols(), 1,
               replicas == 1 ? 0 : stride);
  };
  bind(built.operands.values, tiles.values, 1);
  bind(built.operands.x, x_bytes, tiles.replicas);
  bind(built.operands.y, y_bytes, tiles.replicas);
  if (bias != nullptr) arrays.set(program_->position_of(built.operands.bias->variable), bias);
  engine::Profile profile = program_->run(arrays, options);

  if (problem_.product == ProductKind::sddmm) return profile;
  const bool is_forward = problem_.product == ProductKind::forward;
  const std::vector<float> result = kernels::as_floats(is_forward ? y_bytes : x_bytes, type);
  const ops::OperandLayout& layout = is_forward ? built.layouts.y : built.layouts.x;
  const size_t of_replica = result.size() / tiles.replicas;
  const uint32_t rows = is_forward ? m : k;
  std::vector<float> row_major(uint64_t{rows} * n);
  for (uint32_t r = 0; r < tiles.replicas; ++r) {
    layout.load(std::span(result).subspan(r * of_replica, of_replica), row_major);
    spread(row_major, columns_of(is_forward ? y : x, r * n), rows, n);
  }
  return profile;
}

std::vector<float> BoundProduct::gradient() const {
  if (problem_.product != ProductKind::sddmm)
    throw UsageError("only an SDDMM has a gradient of W as its result; plan one");
  if (!has_run_) throw UsageError("there is no gradient yet; run the product first");
  if (const auto* tiles = std::get_if<OnTiles>(&side_)) {
    SparseMatrix dw{pattern_, {}};
    tiles->built.load_weight(kernels::as_floats(tiles->values, problem_.type), dw);
    return std::move(dw.values);
  }
  const OnHost& host = std::get<OnHost>(side_);
  std::vector<float> values = ops::unpack(*host.weight, dw_);
  if (!host.weight->is_dense()) return values;
  return sparse::values_at(host.own != nullptr ? pattern_ : host.weight->pattern(), values);
}

void BoundProduct::set_pattern(const Pattern& pattern) {
  sparse::validate(pattern);
  set_matrix({pattern, std::vector<float>(sparse::stored_values(pattern))});
}

void BoundProduct::set_matrix(const SparseMatrix& matrix) {
  if (!problem_.capacity) throw UsageError(kStatic);
  sparse::validate(matrix);
  require_capacity(matrix.pattern, problem_);
  if (auto* tiles = std::get_if<OnTiles>(&side_)) {
    require_shape(matrix.pattern, pattern_);
    tiles->built.set_pattern(matrix.pattern);
    bind_pattern(*tiles);
    pattern_ = matrix.pattern;
    tiles->w = matrix.values;
    tiles->values.clear();
    has_run_ = false;
    return;
  }
  const std::shared_ptr<ops::PackedWeight>& own = std::get<OnHost>(side_).own;
  if (own == nullptr)
    throw UsageError("the weight of this product may be shared; change it where it was made");
  if (auto* blocks = std::get_if<sparse::PackedBlocks>(&own->form))
    blocks->set_matrix(matrix, parallel());
  else
    std::get<sparse::PackedElements>(own->form).set_matrix(matrix, parallel());
  pattern_ = matrix.pattern;
  has_run_ = false;
}

uint32_t BoundProduct::steps() const {
  const auto* tiles = std::get_if<OnTiles>(&side_);
  return tiles != nullptr && tiles->built.dynamic ? tiles->built.dynamic->encoding.steps : 0;
}

uint32_t BoundProduct::roundings() const {
  const auto* tiles = std::get_if<OnTiles>(&side_);
  if (tiles == nullptr) return 1;
  if (tiles->built.dynamic) return tiles->built.dynamic->encoding.roundings;
  const auto* dense = std::get_if<ops::DensePartition>(&tiles->plan.partition);
  return dense != nullptr && dense->staged_sums ? ops::kMostSumStages : 1;
}

}  // namespace tessera::bound
