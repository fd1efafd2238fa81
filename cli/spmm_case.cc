#include "cli/spmm_case.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/io.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <tuple>

#include "base/memory.h"
#include "base/random.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "io/weights.h"
#include "kernels/element.h"
#include "ops/spmm.h"
#include "ops/tiled_spmm.h"
#include "report/table.h"
#include "report/verification.h"
#include "sparse/generate.h"
#include "sparse/pattern.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;
using program::Phase;

constexpr int kWarmUps = 2;
constexpr size_t kLeastRuns = 7;
constexpr size_t kMostRuns = 200;
constexpr double kMeasureSeconds = 0.3;

PatternKind kind_of(const std::string& name) {
  if (name.empty() || name == "random") return PatternKind::random;
  if (name == "banded") return PatternKind::banded;
  if (name == "power-law") return PatternKind::power_law;
  throw UsageError(fmt::format("--pattern takes random, banded and power-law; '{}' is none of them", name));
}

report::Extent extent_of(Verify verify) {
  switch (verify) {
    case Verify::full: return report::Extent::full;
    case Verify::sample: return report::Extent::sample;
    default: return report::Extent::automatic;
  }
}

/// An activation matrix in memory.
struct Activations {
  Activations(uint32_t height, uint32_t width, Layout order) : rows(height), cols(width), layout(order) {
    base::require_memory(4 * uint64_t{rows} * cols, fmt::format("an activation matrix of {} × {}", rows, cols));
    elements.resize(uint64_t{rows} * cols);
  }

  int64_t row_stride() const { return layout == Layout::row_major ? cols : 1; }
  int64_t col_stride() const { return layout == Layout::row_major ? 1 : rows; }
  MatrixView<const float> view() const { return {elements.data(), row_stride(), col_stride()}; }

  uint32_t rows;
  uint32_t cols;
  Layout layout;
  std::vector<float> elements;
};

using Trace = std::vector<engine::TraceEvent>;

struct Timed {
  double seconds = 0;
  engine::Profile profile;
  Trace trace;
};

/// Runs until enough is measured; the run of median time.
template <class Run>
Timed median_run(const Run& run) {
  for (int i = 0; i < kWarmUps; ++i) {
    Trace ignored;
    run(ignored);
  }
  std::vector<Timed> runs;
  double total = 0;
  while (runs.size() < kMostRuns && (runs.size() < kLeastRuns || total < kMeasureSeconds)) {
    const Clock::time_point start = Clock::now();
    Trace trace;
    engine::Profile profile = run(trace);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    total += seconds;
    runs.push_back({seconds, std::move(profile), std::move(trace)});
  }
  const auto middle = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2);
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const Timed& a, const Timed& b) { return a.seconds < b.seconds; });
  return std::move(*middle);
}

std::string passes_text(const compiler::Executable& executable) {
  report::Table table({"pass", "took", "did"}, {0, 2});
  for (const compiler::PassRecord& pass : executable.passes)
    table.add({pass.name, report::seconds_text(pass.seconds), pass.did});
  return table.text();
}

template <class Plan>
std::string printed(const std::string& what, const Plan& plan, const compiler::Executable& executable) {
  if (what == "plan") return ops::to_string(plan) + "\n";
  if (what == "candidates") return ops::to_string(std::span<const ops::PlanCandidate>(plan.candidates));
  if (what == "program") return program::to_string(*executable.program);
  if (what == "passes") return passes_text(executable);
  return "";
}

}  // namespace

struct SpmmRunner::Weights {
  std::optional<io::Weights> file;
  std::optional<SparseMatrix> matrix;
  std::optional<SpmmCase> matrix_is_of;
  std::shared_ptr<const ops::PackedWeight> packed;
  std::optional<SpmmCase> packed_is_of;
  std::map<std::string, machine::Machine> machines;
  std::map<std::tuple<std::string, Precision, uint32_t>, double> dense_seconds;
};

std::vector<SpmmCase> cases_of(const SpmmRequest& r) {
  const auto has = [&](Mode mode) { return std::find(r.modes.begin(), r.modes.end(), mode) != r.modes.end(); };
  std::vector<std::optional<double>> densities(r.densities.begin(), r.densities.end());
  if (!r.weights.empty()) densities = {std::nullopt};
  const std::vector<uint32_t> blocks = r.blocks.empty() ? std::vector<uint32_t>{1} : r.blocks;
  std::vector<SpmmCase> cases;
  for (const std::string& machine : r.machines)
    for (const Settings& settings : machine == "host" ? std::vector<Settings>{{}} : r.settings)
      for (const Precision& precision : r.types) {
        if (has(Mode::dense))
          for (uint32_t n : r.n)
            cases.push_back({machine, settings, Mode::dense, precision, std::nullopt, sparse::kDenseBlockSize, n});
        if (has(Mode::sparse))
          for (const auto& density : densities)
            for (uint32_t block : blocks)
              for (uint32_t n : r.n) cases.push_back({machine, settings, Mode::sparse, precision, density, block, n});
      }
  return cases;
}

std::string machine_title(const SpmmCase& what) {
  std::string title = what.machine;
  for (const machine::Setting& setting : what.settings) title += fmt::format(" {}={}", setting.key, setting.value);
  return title;
}

SpmmRunner::SpmmRunner(const SpmmRequest& request) : request_(request), weights_(std::make_unique<Weights>()) {
  if (request.weights.empty()) return;
  weights_->file = io::read_weights(request.weights, request.tensor);
  if (!weights_->file->has_values)
    weights_->file->matrix.values = sparse::random_values(weights_->file->matrix.pattern, request.seed);
}

SpmmRunner::~SpmmRunner() = default;

uint32_t SpmmRunner::m() const { return weights_->file ? weights_->file->matrix.pattern.rows : *request_.m; }
uint32_t SpmmRunner::k() const { return weights_->file ? weights_->file->matrix.pattern.cols : *request_.k; }

const machine::Machine& SpmmRunner::machine_of(const SpmmCase& what) {
  const std::string title = machine_title(what);
  const auto found = weights_->machines.find(title);
  if (found != weights_->machines.end()) return found->second;
  machine::Machine machine = machine::find(what.machine, request_.threads);
  for (const machine::Setting& setting : what.settings) machine::apply(setting, machine);
  return weights_->machines.emplace(title, std::move(machine)).first->second;
}

/// Where both modes run, dense is the yardstick and keeps its own plan.
const ops::ForcedKnobs& SpmmRunner::knobs_of(const SpmmCase& what) const {
  static const ops::ForcedKnobs none;
  return what.mode == Mode::sparse || request_.modes.size() == 1 ? request_.force : none;
}

namespace {

ops::TiledSpmmProblem tiled_problem(const SpmmRequest& request, const SpmmCase& what) {
  const Type partials = what.precision.f32_partials ? Type::f32 : what.precision.type;
  return {what.n, what.precision.type, partials, request.planner, what.mode == Mode::dense};
}

}  // namespace

void SpmmRunner::check(const SpmmCase& what) {
  const machine::Machine& machine = machine_of(what);
  sparse::validate_sizes(m(), k(), what.block);
  if (machine.kind == machine::Kind::host) {
    if (what.precision.f32_partials)
      throw UsageError("--type f16-f32 is for tiled machines; a host sums in FP32 with every type");
    ops::check_spmm(what.block, knobs_of(what));
  } else {
    if (request_.layout != Layout::row_major)
      throw UsageError(fmt::format("--layout column is for host; {} spreads X and Y over its tiles", what.machine));
    ops::check_tiled_spmm(tiled_problem(request_, what), machine, knobs_of(what));
  }
}

SpmmResult SpmmRunner::failed(const SpmmCase& what, std::string why) const {
  SpmmResult result;
  result.what = what;
  result.m = m();
  result.k = k();
  result.failure = std::move(why);
  return result;
}

const SparseMatrix& SpmmRunner::matrix_of(const SpmmCase& what) {
  Weights& w = *weights_;
  const auto same = [&](const SpmmCase& other) {
    return other.mode == what.mode && other.density == what.density && other.block == what.block;
  };
  if (w.matrix_is_of && same(*w.matrix_is_of)) return *w.matrix;
  w.packed = nullptr;
  w.packed_is_of = std::nullopt;
  if (what.mode == Mode::dense)
    w.matrix = generate({PatternKind::random, m(), k(), 1.0, what.block, request_.seed});
  else if (w.file)
    w.matrix = what.block == 1 ? w.file->matrix : cover_with_blocks(w.file->matrix, what.block);
  else
    w.matrix = generate({kind_of(request_.pattern), m(), k(), *what.density, what.block, request_.seed});
  w.matrix_is_of = what;
  return *w.matrix;
}

SpmmResult SpmmRunner::run(const SpmmCase& what) {
  const machine::Machine& machine = machine_of(what);
  const SparseMatrix& matrix = matrix_of(what);
  SpmmResult result = machine.kind == machine::Kind::host ? run_on_host(what, machine) : run_on_tiles(what, machine);
  result.what = what;
  result.m = matrix.pattern.rows;
  result.k = matrix.pattern.cols;
  result.nnz = sparse::stored_elements(matrix.pattern);
  result.density = sparse::density(matrix.pattern);
  result.tiles = machine.tiles;
  if (weights_->file && what.mode == Mode::sparse && weights_->file->matrix.pattern.blocks() != 0)
    result.fill_in = static_cast<double>(result.nnz) / static_cast<double>(weights_->file->matrix.pattern.blocks());
  const std::tuple key{machine_title(what), what.precision, what.n};
  if (what.mode == Mode::dense && result.seconds) weights_->dense_seconds[key] = *result.seconds;
  const auto dense = weights_->dense_seconds.find(key);
  if (dense != weights_->dense_seconds.end()) result.dense_seconds = dense->second;
  if (const auto gflops = result.useful_gflops(); gflops && machine.kind == machine::Kind::host && !request_.estimate)
    result.peak_share = *gflops / (machine.figures.core_gflops() * machine.tiles);
  return result;
}

namespace {

/// What is known of a case before it runs.
template <class Plan>
SpmmResult start(const Plan& plan, const compiler::Executable& executable, const SpmmRequest& request) {
  SpmmResult result;
  result.printed = printed(request.print, plan, executable);
  result.memory = executable.memory;
  result.cut = plan.chosen.cut;
  result.tiles_used = plan.tiles_used();
  result.predicted_seconds = plan.chosen.total();
  result.fits = result.memory.fits();
  if (!request.report.empty()) result.candidates = plan.candidates;
  if (request.keeps_runs()) result.run = report::summarize(executable, {}, {}, report::Times::accounted);
  return result;
}

/// Accounts without floating-point work.
void estimate(const engine::Engine& engine, SpmmResult& result) {
  const machine::Machine& machine = engine.executable().machine;
  Trace trace;
  const engine::Profile profile = engine.run({}, {.dry = true, .trace = result.run ? &trace : nullptr});
  if (result.run) result.run = report::summarize(engine.executable(), profile, trace, report::Times::accounted);
  result.phases = profile.cycles.scaled(1 / machine.clock_hz);
  result.seconds = result.phases.total();
  if (machine.kind == machine::Kind::tiled) result.cycles = profile.cycles.total();
}

/// Types that numbers are rounded to.
struct Rounding {
  Type weights;
  Type partials;
  Type result;
};

void verify(const SpmmRequest& request, const SparseMatrix& matrix, const Rounding& types, const Activations& x,
            const Activations& y, SpmmResult& result) {
  if (request.verify == Verify::none) return;
  const SparseMatrix w = report::rounded(matrix, types.weights);
  const uint32_t threads = request.threads != 0 ? request.threads : machine::default_threads(machine::detect_host());
  const report::Verification v = report::verify_product({w, x.view(), y.view(), x.cols, types.result, Type::f32, types.partials},
                                                        extent_of(request.verify), request.seed, threads);
  result.verified = v.verified;
  result.max_abs_error = v.max_abs_error;
  result.max_rel_error = v.max_rel_error;
  result.tolerance = v.tolerance;
}

/// Elements as a tile's memory has them.
std::vector<std::byte> as_type(std::span<const float> elements, Type type) {
  std::vector<std::byte> bytes(elements.size() * size_of(type));
  const program::FieldView view{bytes.data(), type, 1, static_cast<uint32_t>(elements.size())};
  for (size_t i = 0; i < elements.size(); ++i) kernels::set_number(view, 0, static_cast<int64_t>(i), elements[i]);
  return bytes;
}

void as_floats(std::vector<std::byte>& bytes, Type type, std::span<float> elements) {
  const program::FieldView view{bytes.data(), type, 1, static_cast<uint32_t>(elements.size())};
  for (size_t i = 0; i < elements.size(); ++i)
    elements[i] = static_cast<float>(kernels::number_at(view, 0, static_cast<int64_t>(i)));
}

}  // namespace

SpmmResult SpmmRunner::run_on_host(const SpmmCase& what, const machine::Machine& machine) {
  const Type type = what.precision.type;
  const SparseMatrix& matrix = *weights_->matrix;
  if (weights_->packed == nullptr || weights_->packed_is_of->precision != what.precision) {
    ops::PackedWeight packed = ops::pack_weight(matrix, type, machine.tiles);
    packed.is_dense = what.mode == Mode::dense;
    weights_->packed = std::make_shared<const ops::PackedWeight>(std::move(packed));
    weights_->packed_is_of = what;
  }
  const ops::SpmmProblem problem{what.n, request_.layout, request_.layout};
  const ops::SpmmPlan plan = ops::plan_spmm(*weights_->packed, problem, machine, knobs_of(what));
  ops::SpmmProgram built = ops::build_spmm(weights_->packed, problem, plan, machine);
  const ops::SpmmVariables variables = built.variables;
  const engine::Engine engine(compiler::compile(std::move(built.program), machine));

  SpmmResult result = start(plan, engine.executable(), request_);
  if (!result.fits) return result;
  if (request_.estimate) {
    estimate(engine, result);
    return result;
  }
  Activations x(matrix.pattern.cols, what.n, request_.layout);
  Activations y(matrix.pattern.rows, what.n, request_.layout);
  base::RandomStream(request_.seed, 0, 1).fill_symmetric(x.elements);
  std::array<float, 2> scalars = {1, 0};
  const program::Variable& values = engine.executable().program->variable(variables.values);
  const std::array<engine::Binding, 5> bindings = {{
      {variables.values, const_cast<std::byte*>(weights_->packed->values()), values.cols, 1},
      {variables.x, x.elements.data(), x.row_stride(), x.col_stride()},
      {variables.y, y.elements.data(), y.row_stride(), y.col_stride()},
      {variables.scalars, scalars.data(), 2, 1},
      {variables.bias, nullptr, 0, 1},
  }};
  const Timed timed = median_run(
      [&](Trace& trace) { return engine.run(bindings, {.trace = result.run ? &trace : nullptr}); });
  result.seconds = timed.seconds;
  result.phases = timed.profile.phases;
  result.phases[Phase::control] += timed.seconds - timed.profile.seconds;
  if (result.run)
    result.run = report::summarize(engine.executable(), timed.profile, timed.trace, report::Times::measured);
  verify(request_, matrix, {type, Type::f32, Type::f32}, x, y, result);
  return result;
}

SpmmResult SpmmRunner::run_on_tiles(const SpmmCase& what, const machine::Machine& machine) {
  const Type type = what.precision.type;
  const SparseMatrix& matrix = *weights_->matrix;
  const ops::TiledSpmmProblem problem = tiled_problem(request_, what);
  const ops::TiledSpmmPlan plan = ops::plan_tiled_spmm(matrix.pattern, problem, machine, knobs_of(what));
  ops::TiledSpmmProgram built = ops::build_tiled_spmm(matrix.pattern, problem, plan, machine);
  const engine::Engine engine(compiler::compile(std::move(built.program), machine));

  SpmmResult result = start(plan, engine.executable(), request_);
  result.fits &= plan.chosen.rejected.empty();
  if (!result.fits) return result;
  estimate(engine, result);
  if (request_.estimate) return result;
  Activations x(matrix.pattern.cols, what.n, Layout::row_major);
  Activations y(matrix.pattern.rows, what.n, Layout::row_major);
  base::RandomStream(request_.seed, 0, 1).fill_symmetric(x.elements);
  std::vector<std::byte> x_typed = as_type(x.elements, type);
  as_floats(x_typed, type, x.elements);  // as the tiles have them
  x_typed = as_type(built.stored_x(x.elements), type);
  std::vector<std::byte> values = as_type(built.stored_weight(matrix), type);
  const auto cols_of = [&](program::VariableId id) { return int64_t{engine.executable().program->variable(id).cols}; };
  const ops::SpmmVariables& v = built.variables;
  std::vector<float> y_stored(engine.executable().program->variable(v.y).elements());
  std::vector<std::byte> y_typed(y_stored.size() * size_of(type));
  const std::array<engine::Binding, 3> bindings = {{{v.values, values.data(), cols_of(v.values), 1},
                                                    {v.x, x_typed.data(), cols_of(v.x), 1},
                                                    {v.y, y_typed.data(), cols_of(v.y), 1}}};
  engine.run(bindings);
  as_floats(y_typed, type, y_stored);
  built.load_y(y_stored, y.elements);
  verify(request_, matrix, {type, problem.partials, type}, x, y, result);
  return result;
}

}  // namespace tessera::cli
