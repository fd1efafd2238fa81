#include "dense/step.h"

#include "compiler/compile.h"
#include "engine/session.h"
#include "ops/dense/host/host_dense.h"
#include "ops/map/optimizer.h"

namespace tessera::bench {
namespace {

using ops::HostDenseProblem;
using ops::Operand;
using program::Role;

constexpr float kRate = 1e-3F, kMomentum = 0.9F;

/// A layer of the program: weight, velocity and bias are state.
struct Layer {
  uint32_t m, k, n;
  Operand weight, velocity, bias;

  Layer(const ops::Builder& b, const std::string& name, uint32_t rows, uint32_t cols, uint32_t batch)
      : m(rows), k(cols), n(batch) {
    const ops::PanelLayout layout{m, k};
    weight = b.external(name, Role::state, Type::f32, layout.rows(), layout.cols());
    velocity = b.external(name + ".velocity", Role::state, Type::f32, layout.rows(), layout.cols());
    bias = b.external(name + ".bias", Role::state, Type::f32, 1, m);
  }

  program::StepId forward(const ops::Builder& b, const Operand& x, const Operand& y,
                          Activation activation) const {
    return build(b, {.m = m, .k = k, .n = n, .activation = activation, .bias = true},
                 {.w = weight, .x = x, .y = y, .bias = bias});
  }
  program::StepId input_gradient(const ops::Builder& b, const Operand& dx, const Operand& dy,
                                 const Operand& relu) const {
    return build(b, {.m = m, .k = k, .n = n, .product = ProductKind::input_gradient, .relu = true},
                 {.w = weight, .x = dx, .y = dy, .relu = relu});
  }
  program::StepId update(const ops::Builder& b, const Operand& x, const Operand& dy,
                         const Operand& rate) const {
    const HostDenseProblem problem{.m = m, .k = k, .n = n, .product = ProductKind::sddmm};
    const ops::PanelLayout layout = problem.layout();
    const ops::SgdProblem momentum{Type::f32, Type::f32, layout.rows(), layout.cols(), kMomentum};
    return build_host_dense_strips(b, problem, plan_host_dense(problem, b.machine()),
                                   {.w = {}, .x = x, .y = dy},
                                   {operation_of(momentum), 0, {rate, velocity, weight}});
  }
  program::StepId gradient(const ops::Builder& b, const Operand& x, const Operand& dy) const {
    const ops::PanelLayout layout{m, k};
    const Operand dw =
        b.external("dw" + std::to_string(m), Role::state, Type::f32, layout.rows(), layout.cols());
    return build(b, {.m = m, .k = k, .n = n, .product = ProductKind::sddmm}, {.w = dw, .x = x, .y = dy});
  }

 private:
  static program::StepId build(const ops::Builder& b, const HostDenseProblem& problem,
                               const ops::HostDenseOperands& operands) {
    return build_host_dense(b, problem, plan_host_dense(problem, b.machine()), operands);
  }
};

/// A program with its inputs.
struct Step {
  std::vector<float> x, dy;
  std::unique_ptr<engine::Session> session;
  std::vector<engine::Binding> bindings;

  void run() { session->run(bindings, {.profile = false}); }
};

}  // namespace

Contestant tessera_step(const StepShape& s, unsigned threads, bool with_momentum) {
  const machine::Machine machine = machine::host(threads);
  program::Program program;
  const ops::Builder b(program, machine);
  const Layer hidden(b, "hidden", s.m, s.k, s.n), last(b, "last", s.classes, s.m, s.n);
  const Operand x = b.external("x", Role::input, Type::f32, s.n, s.k);
  const Operand dy = b.external("dy", Role::input, Type::f32, s.n, s.classes);
  const Operand h = b.temporary("h", Type::f32, s.n, s.m), dh = b.temporary("dh", Type::f32, s.n, s.m);
  const Operand y = b.external("y", Role::state, Type::f32, s.n, s.classes);
  const auto contents = std::make_shared<float>(kRate);
  const Operand rate =
      b.constant("rate", Type::f32, 1, 1, {contents, reinterpret_cast<std::byte*>(contents.get())});
  std::vector<program::StepId> steps = {hidden.forward(b, x, h, Activation::relu),
                                        last.forward(b, h, y, Activation::none),
                                        last.input_gradient(b, dh, dy, h)};
  for (const auto& [layer, in, gradient] : {std::tuple(&last, &h, &dy), std::tuple(&hidden, &x, &dh)})
    steps.push_back(with_momentum ? layer->update(b, *in, *gradient, rate)
                                  : layer->gradient(b, *in, *gradient));
  program.set_main(b.sequence(std::move(steps)));

  auto step = std::make_shared<Step>();
  step->x = random_floats(size_t{s.n} * s.k, 1);
  step->dy = random_floats(size_t{s.n} * s.classes, 2);
  step->bindings = {{x.variable, step->x.data(), s.k, 1}, {dy.variable, step->dy.data(), s.classes, 1}};
  const auto executable = compiler::compile(program, machine);
  step->session = std::make_unique<engine::Session>(executable);
  for (const Layer* layer : {&hidden, &last}) {
    std::vector<float> weights = random_floats(ops::PanelLayout{layer->m, layer->k}.elements(), 3);
    step->session->write(program.variable(layer->weight.variable).name,
                         {reinterpret_cast<std::byte*>(weights.data()), Type::f32, layer->weight.rows(),
                          layer->weight.cols(), layer->weight.cols(), 1});
  }
  double cycles = 0;
  for (const program::PhaseTimes& set : executable->set_cycles) cycles += set.total();
  return {"tessera", [step] { step->run(); }, 0, machine.seconds(cycles)};
}

namespace {

/// The products of one layer by a library.
struct PeerLayer {
  SparseMatrix shape;
  std::vector<float> w, velocity, dw;
  std::unique_ptr<PreparedProduct> forward, input_gradient, sddmm;

  PeerLayer(Peer& peer, uint32_t m, uint32_t k, uint32_t n)
      : w(random_floats(size_t{m} * k, 3)), velocity(w.size()), dw(w.size()) {
    shape.pattern.rows = m;
    shape.pattern.cols = k;
    const auto make = [&](Task task) {
      return peer.prepare({shape, w, n, Layout::column_major, Type::f32, task});
    };
    forward = make(Task::forward);
    input_gradient = make(Task::input_gradient);
    sddmm = make(Task::sddmm);
  }

  void update() {
    const auto count = static_cast<int64_t>(w.size());
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; ++i) {
      velocity[i] = kMomentum * velocity[i] + dw[i];
      w[i] -= kRate * velocity[i];
    }
  }
};

struct PeerStep {
  PeerLayer hidden, last;
  std::vector<float> x, dy, h, dh, y;
};

}  // namespace

Contestant peer_step(Peer& peer, const StepShape& s, bool with_momentum) {
  const auto step = std::make_shared<PeerStep>(
      PeerStep{PeerLayer(peer, s.m, s.k, s.n), PeerLayer(peer, s.classes, s.m, s.n),
               random_floats(size_t{s.n} * s.k, 1), random_floats(size_t{s.n} * s.classes, 2),
               std::vector<float>(size_t{s.n} * s.m), std::vector<float>(size_t{s.n} * s.m),
               std::vector<float>(size_t{s.n} * s.classes)});
  const auto run = [step, with_momentum] {
    PeerStep& p = *step;
    p.hidden.forward->run({.x = p.x.data(), .y = p.h.data()});
    p.last.forward->run({.x = p.h.data(), .y = p.y.data()});
    p.last.input_gradient->run({.dy = p.dy.data(), .dx = p.dh.data()});
    p.last.sddmm->run({.x = p.h.data(), .dy = p.dy.data(), .dw = p.last.dw.data()});
    if (with_momentum) p.last.update();
    p.hidden.sddmm->run({.x = p.x.data(), .dy = p.dh.data(), .dw = p.hidden.dw.data()});
    if (with_momentum) p.hidden.update();
  };
  return {std::string(peer.name()), run};
}

}  // namespace tessera::bench
