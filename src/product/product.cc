#include "product/product.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>

#include "compiler/compile.h"
#include "product/bind.h"
#include "product/chips.h"
#include "product/numbers.h"
#include "product/weight.h"
#include "sparse/pattern.h"

namespace tessera::product {
namespace {

using machine::Kind;
using machine::Machine;
using ops::ProductProblem;

constexpr const char* kStatic =
    "the weight of this product is static; plan for a capacity to change its pattern";

uint64_t stored_values(const Pattern& p) { return p.blocks() * p.block_size * p.block_size; }

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
  ops::check_host_product(problem.product, block_size, force);
}

std::shared_ptr<ops::PackedWeight> pack(const SparseMatrix& matrix, const ProductProblem& problem) {
  require_capacity(matrix.pattern, problem);
  if (!problem.capacity) {
    auto packed = std::make_shared<ops::PackedWeight>(ops::prepack_weight(matrix, problem.type));
    packed->is_dense = problem.dense;
    return packed;
  }
  return Weight::dynamic(matrix, *problem.capacity, problem.type).storage()->packed;
}

Product::Product(std::shared_ptr<const ops::PackedWeight> weight, const ProductProblem& problem,
                 const Machine& host, const ops::ForcedKnobs& force, const ops::HostLayouts& layouts)
    : problem_(problem) {
  side_.emplace<OnHost>().weight = std::move(weight);
  compile_for(host, force, layouts);
}

Product::Product(const SparseMatrix& matrix, const ProductProblem& problem, const Machine& machine,
                 const ops::ForcedKnobs& force, const ops::TileProductPlan* forward, const Layouts& layouts)
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
  engine_ =
      std::make_unique<engine::Engine>(compiler::compile(std::move(tiles.built.program), chips.machine));
  tiles.w = matrix.values;
}

void Product::compile_for(const Machine& machine, const ops::ForcedKnobs& force,
                          const ops::HostLayouts& layouts) {
  OnHost& host = std::get<OnHost>(side_);
  ops::update_index(*host.weight, problem_.product, parallel());
  host.plan = ops::plan_host_product(*host.weight, problem_, machine, force, layouts);
  ops::HostProgram built = ops::build_host_program(host.weight, problem_, host.plan, machine);
  host.operands = built.operands;
  host.index = std::move(built.index);
  engine_ = std::make_unique<engine::Engine>(compiler::compile(std::move(built.program), machine));
}

const ops::PlanCandidate& Product::chosen() const {
  return std::visit([](const auto& side) -> const ops::PlanCandidate& { return side.plan.chosen; }, side_);
}

const std::vector<ops::PlanCandidate>& Product::candidates() const {
  return std::visit([](const auto& side) -> const auto& { return side.plan.candidates; }, side_);
}

uint32_t Product::tiles_used() const {
  const uint32_t used = std::visit([](const auto& side) { return side.plan.tiles_used(); }, side_);
  return is_on_host() ? used : used * std::get<OnTiles>(side_).replicas;
}

std::string Product::plan() const {
  return std::visit([](const auto& side) { return to_string(side.plan); }, side_);
}

std::vector<engine::Binding> Product::OnTiles::metadata() const {
  if (!built.dynamic) return {};
  const ops::DynamicWeight& dynamic = *built.dynamic;
  return {{dynamic.metadata, const_cast<uint16_t*>(dynamic.encoding.metadata.data()),
           dynamic.grid.bucket_words, 1}};
}

engine::Profile Product::estimate(std::vector<engine::TraceEvent>* trace) const {
  std::vector<engine::Binding> known;
  if (const auto* tiles = std::get_if<OnTiles>(&side_)) known = tiles->metadata();
  return engine_->run(known, {.dry = true, .trace = trace});
}

engine::Profile Product::call(const HostCall& call, const engine::RunOptions& options) const {
  const OnHost& host = std::get<OnHost>(side_);
  ops::update_index(*host.weight, problem_.product, parallel());
  const ops::ProductOperands& o = host.operands;
  std::array<float, 2> scalars = {call.alpha, call.beta};
  const void* of_w = call.values != nullptr ? call.values : host.weight->values();
  void* values = problem_.product == ops::Product::sddmm ? call.dw : const_cast<void*>(of_w);
  CallBindings bindings = {
      {o.values.variable, values, o.values.cols(), 1},
      {o.x.variable, call.x.data, call.x.row_stride, call.x.col_stride},
      {o.y.variable, call.y.data, call.y.row_stride, call.y.col_stride},
      {o.scalars->variable, scalars.data(), 2, 1},
  };
  if (o.bias) bindings.push_back({o.bias->variable, const_cast<float*>(call.bias), o.bias->cols(), 1});
  for (const ops::WeightIndex::Binding& array : host.index)
    bindings.push_back({array.variable, const_cast<void*>(array.data), array.row_stride, 1});
  return engine_->run(bindings.all(), options);
}

engine::Profile Product::run(const MatrixView<float>& x, const MatrixView<float>& y,
                             const engine::RunOptions& options, const float* bias) {
  require_bias(problem_, bias);
  const auto* host = std::get_if<OnHost>(&side_);
  require_matrix(x, "X", host != nullptr ? host->weight->cols() : pattern_.cols, problem_.n);
  require_matrix(y, "Y", host != nullptr ? host->weight->rows() : pattern_.rows, problem_.n);
  engine_->require_fit();
  has_run_ = true;
  if (host == nullptr) return run_on_tiles(std::get<OnTiles>(side_), x, y, options, bias);
  if (problem_.product == ops::Product::sddmm) dw_.resize(ops::packed_shape(*host->weight).elements());
  return call({x, y, dw_.data(), bias}, options);
}

engine::Profile Product::run_on_tiles(OnTiles& tiles, const MatrixView<float>& x, const MatrixView<float>& y,
                                      const engine::RunOptions& options, const float* bias) const {
  const Type type = problem_.type;
  if (tiles.values.empty()) tiles.values = as_type(tiles.built.stored_weight({pattern_, tiles.w}), type);
  const auto view = [](const MatrixView<float>& m) {
    return MatrixView<const float>{m.data, m.row_stride, m.col_stride};
  };
  // Each replica has columns of its own.
  const uint32_t m = pattern_.rows, k = pattern_.cols, n = problem_.n / tiles.replicas;
  const auto columns = [n](const MatrixView<float>& whole, uint32_t replica) {
    return MatrixView<float>{whole.data + int64_t{replica} * n * whole.col_stride, whole.row_stride,
                             whole.col_stride};
  };
  std::vector<float> stored_x, stored_y;
  for (uint32_t r = 0; r < tiles.replicas; ++r) {
    std::ranges::copy(tiles.built.stored_x(row_by_row(view(columns(x, r)), k, n)),
                      std::back_inserter(stored_x));
    std::ranges::copy(tiles.built.stored_y(row_by_row(view(columns(y, r)), m, n)),
                      std::back_inserter(stored_y));
  }
  std::vector<std::byte> x_bytes = as_type(stored_x, type), y_bytes = as_type(stored_y, type);
  const program::Program& program = *executable().program;
  const auto bind = [&](program::VariableId id, std::vector<std::byte>& bytes, int64_t replica_stride) {
    return engine::Binding{id, bytes.data(), program.variable(id).cols, 1, replica_stride};
  };
  const auto stride_of = [&](const std::vector<float>& stored) {
    return static_cast<int64_t>(stored.size() / tiles.replicas);
  };
  std::vector<engine::Binding> bindings = tiles.metadata();
  const ops::TileProductProgram::Variables& v = tiles.built.variables;
  bindings.insert(bindings.end(), {bind(v.values, tiles.values, 0), bind(v.x, x_bytes, stride_of(stored_x)),
                                   bind(v.y, y_bytes, stride_of(stored_y))});
  if (bias != nullptr) bindings.push_back({v.bias, const_cast<float*>(bias), 1, 1});
  engine::Profile profile = engine_->run(bindings, options);
  if (problem_.product == ops::Product::sddmm) return profile;
  const bool is_forward = problem_.product == ops::Product::forward;
  const std::vector<float> result = as_floats(is_forward ? y_bytes : x_bytes, type);
  const uint32_t rows = is_forward ? m : k;
  std::vector<float> row_major(uint64_t{rows} * n);
  for (uint32_t r = 0; r < tiles.replicas; ++r) {
    const size_t of_replica = result.size() / tiles.replicas;
    const std::span<const float> stored(&result[r * of_replica], of_replica);
    is_forward ? tiles.built.load_y(stored, row_major) : tiles.built.load_x(stored, row_major);
    spread(row_major, columns(is_forward ? y : x, r), rows, n);
  }
  return profile;
}

std::vector<float> Product::gradient() const {
  if (problem_.product != ops::Product::sddmm)
    throw UsageError("only an SDDMM has a gradient of W as its result; plan one");
  if (!has_run_) throw UsageError("there is no gradient yet; run the product first");
  if (const auto* tiles = std::get_if<OnTiles>(&side_)) {
    SparseMatrix dw{pattern_, {}};
    tiles->built.load_weight(as_floats(tiles->values, problem_.type), dw);
    return std::move(dw.values);
  }
  const ops::PackedWeight& weight = *std::get<OnHost>(side_).weight;
  return std::visit(
      [&](const auto& form) {
        std::vector<float> values(stored_values(form.pattern()));
        form.unpack(dw_, values);
        return values;
      },
      weight.form);
}

void Product::set_pattern(const Pattern& pattern) {
  sparse::validate(pattern);
  set_matrix({pattern, std::vector<float>(stored_values(pattern))});
}

void Product::set_matrix(const SparseMatrix& matrix) {
  if (!problem_.capacity) throw UsageError(kStatic);
  sparse::validate(matrix);
  require_capacity(matrix.pattern, problem_);
  has_run_ = false;
  if (auto* tiles = std::get_if<OnTiles>(&side_)) {
    require_shape(matrix.pattern, pattern_);
    tiles->built.set_pattern(matrix.pattern);
    pattern_ = matrix.pattern;
    tiles->w = matrix.values;
    tiles->values.clear();
    return;
  }
  const std::shared_ptr<ops::PackedWeight>& own = std::get<OnHost>(side_).own;
  if (own == nullptr)
    throw UsageError("the weight of this product may be shared; change it where it was made");
  std::visit([&](auto& form) { form.set_matrix(matrix, parallel()); }, own->form);
  pattern_ = matrix.pattern;
}

uint32_t Product::steps() const {
  const auto* tiles = std::get_if<OnTiles>(&side_);
  return tiles != nullptr && tiles->built.dynamic ? tiles->built.dynamic->encoding.steps : 0;
}

uint32_t Product::roundings() const {
  const auto* tiles = std::get_if<OnTiles>(&side_);
  return tiles != nullptr && tiles->built.dynamic ? tiles->built.dynamic->encoding.roundings : 1;
}

}  // namespace tessera::product
