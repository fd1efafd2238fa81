// Overheads of a tile program: building, compiling and dispatching a vertex, and a superstep of the host's
// threads. The budget is in docs/contributing/compiler.md.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "calls.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "heap_count.h"

namespace {

using namespace tessera;
using program::Box;
using program::BoxSeries;
using program::Phase;
using program::Program;
using program::Role;
using program::Variable;

constexpr uint32_t kTiles = 1472;
constexpr uint32_t kPerTile = 6;
constexpr uint32_t kVertices = kTiles * kPerTile;
constexpr uint32_t kWidth = 16;

double median_of(int times, const std::function<double()>& measure) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) all.push_back(measure());
  return base::median(all);
}

void do_nothing(const program::Vertex&) {}
program::PhaseTimes unit_cost(const program::Vertex&, const machine::Machine&) {
  program::PhaseTimes cycles;
  cycles[Phase::compute] = 1;
  return cycles;
}
constexpr program::FieldSpec kFields[] = {{"a"}, {"x"}, {"y", program::Access::out}};
const program::Codelet kNothing = {
    .name = "nothing", .fields = kFields, .params = {}, .reference = do_nothing, .cost = unit_cost};

machine::Machine ipu() { return machine::find("bow"); }

Variable rows_on_tiles(std::string name, Role role) {
  return {std::move(name), Type::f32, kVertices,
          kWidth,          role,      program::map_linearly(kVertices, kWidth, kTiles),
          nullptr};
}

/// Each vertex's own row.
BoxSeries own_rows() { return BoxSeries::stepped({0, 1, 0, kWidth}, {1, 0}); }

/// One compute set of six vertices per tile, whose a and y are on their tile.
Program six_a_tile(const BoxSeries& boxes_of_x) {
  Program p;
  const auto a = p.add(rows_on_tiles("a", Role::input));
  const auto x = p.add(rows_on_tiles("x", Role::input));
  const auto y = p.add(rows_on_tiles("y", Role::output));
  program::VertexGroup group{
      &kNothing, 0, kTiles, kPerTile, {{a, own_rows()}, {x, boxes_of_x}, {y, own_rows()}}, {}};
  p.set_main(p.execute({"set", Phase::compute, {std::move(group)}}));
  return p;
}

/// Rows `distance` tiles away.
BoxSeries far_rows(uint32_t distance) {
  std::vector<Box> boxes(kVertices);
  for (uint32_t i = 0; i < kVertices; ++i) boxes[i] = {(i + distance * kPerTile) % kVertices, 1, 0, kWidth};
  return BoxSeries::table(std::move(boxes));
}

/// A column across `reach` tiles each.
BoxSeries wide_boxes(uint32_t reach) {
  std::vector<Box> boxes(kVertices);
  for (uint32_t i = 0; i < kVertices; ++i)
    boxes[i] = {std::min(i * 7 % kVertices, kVertices - reach * kPerTile), reach * kPerTile, i % kWidth, 1};
  return BoxSeries::table(std::move(boxes));
}

/// Copies a row to each vertex from elsewhere, by a list of rows.
Program row_copies() {
  Program p;
  const auto x = p.add(rows_on_tiles("x", Role::input));
  const auto y = p.add(rows_on_tiles("y", Role::output));
  auto rows = std::make_shared<std::vector<uint32_t>>(kVertices);
  for (uint32_t i = 0; i < kVertices; ++i) (*rows)[i] = (i * 2477U) % kVertices;
  p.set_main(p.copy({"gather", {{x, y, kVertices, own_rows(), own_rows(), rows, {}, {}}}}));
  return p;
}

constexpr uint32_t kRowsPerTile = 512;

/// Partial rows of a sparse product on their way to the tiles that add them: 512 rows on every tile, which go
/// to tiles all over the machine, one by one.
Program scattered_rows() {
  constexpr uint32_t kRows = kTiles * kRowsPerTile;
  Program p;
  const auto add = [&](std::string name) {
    return p.add(Variable{std::move(name), Type::f16, kRows, kWidth, Role::temporary,
                          program::map_linearly(kRows, kWidth, kTiles), nullptr});
  };
  const auto partials = add("partials");
  const auto received = add("received");
  auto rows = std::make_shared<std::vector<uint32_t>>(kRows);
  for (uint32_t i = 0; i < kRows; ++i)
    (*rows)[i] = (i % kRowsPerTile * 37 + i / kRowsPerTile * 911) % kTiles * kRowsPerTile + i % kRowsPerTile;
  const BoxSeries all = BoxSeries::same({0, kRows, 0, kWidth});
  p.set_main(p.copy({"send partials", {{partials, received, 1, all, all, rows, {}, {}}}}));
  return p;
}

void measure_compile(const char* name, const std::function<Program()>& build, uint32_t count = kVertices) {
  const machine::Machine machine = ipu();
  const uint64_t before = live_bytes();
  restart_peak();
  auto executable = compiler::compile(build(), machine);
  const uint64_t kept = live_bytes() - before;
  const uint64_t peak = peak_bytes() - before;
  std::vector<double> passes(executable->passes.size(), 1);
  const double build_seconds = median_of(9, [&] {
    const base::Clock::time_point start = base::Clock::now();
    const Program p = build();
    return base::seconds_since(start);
  });
  const double compile_seconds = median_of(9, [&] {
    Program p = build();
    const double took = base::seconds_of([&] { executable = compiler::compile(std::move(p), machine); });
    for (size_t i = 0; i < passes.size(); ++i) passes[i] = std::min(passes[i], executable->passes[i].seconds);
    return took;
  });
  const auto each = [&](double seconds) { return seconds / count * 1e9; };
  fmt::print("{:<22} {:>8.0f} {:>8.0f} {:>8.0f} {:>8.0f}  ", name, each(build_seconds), each(compile_seconds),
             static_cast<double>(kept) / count, static_cast<double>(peak) / count);
  for (size_t i = 0; i < passes.size(); ++i)
    fmt::print(" {} {:.0f}", executable->passes[i].name, each(passes[i]));
  fmt::print("\n");
}

double dispatch_seconds() {
  const engine::Engine engine(compiler::compile(six_a_tile(own_rows()), ipu()));
  std::vector<float> array(size_t{kVertices} * kWidth);
  std::vector<engine::Binding> bindings;
  for (program::VariableId v = 0; v < 3; ++v) bindings.push_back({v, array.data(), kWidth, 1});
  return median_of(21, [&] {
    const engine::Profile profile = engine.run(bindings, {.threads = 1});
    return profile.seconds / kVertices;
  });
}

double superstep_seconds(uint32_t threads) {
  constexpr uint32_t kTimes = 10000;
  machine::Machine host = machine::host(threads);
  Program p;
  const auto v = p.add(
      Variable{"v", Type::f32, threads, kWidth, Role::inout, program::map_shared(threads, kWidth), nullptr});
  const auto field = [&] { return program::Field{v, own_rows()}; };
  program::VertexGroup group{&kNothing, 0, threads, 1, {field(), field(), field()}, {}};
  p.set_main(p.repeat(kTimes, p.execute({"set", Phase::compute, {std::move(group)}})));
  const engine::Engine engine(compiler::compile(std::move(p), host));
  std::vector<float> array(threads * kWidth);
  const engine::Binding binding{v, array.data(), kWidth, 1};
  return median_of(21, [&] { return engine.run({&binding, 1}, {.threads = threads}).seconds / kTimes; });
}

}  // namespace

int main() {
  fmt::print("{} tiles of {} vertices, ns and bytes per vertex\n", kTiles, kPerTile);
  fmt::print("{:<22} {:>8} {:>8} {:>8} {:>8}   passes\n", "program", "build", "compile", "kept", "peak");
  measure_compile("all on its tile", [] { return six_a_tile(own_rows()); });
  measure_compile("x on another tile", [] { return six_a_tile(far_rows(700)); });
  measure_compile("x over 4 tiles", [] { return six_a_tile(wide_boxes(4)); });
  measure_compile("copies of listed rows", row_copies);
  measure_compile("scattered rows, per row", scattered_rows, kTiles * kRowsPerTile);
  fmt::print("dispatch: {:.0f} ns per vertex\n", dispatch_seconds() * 1e9);
  for (uint32_t threads : {1U, 2U})
    fmt::print("superstep on the host, {} threads: {:.2f} µs\n", threads, superstep_seconds(threads) * 1e6);
  measure_calls();
  return 0;
}
