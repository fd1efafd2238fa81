#include <fmt/format.h>
#include <tessera/communicator.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/training.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/isa.h"
#include "graph/transforms/transforms.h"
#include "io/json_text.h"
#include "lower/recomputation.h"
#include "lower/session_impl.h"
#include "ranks/agreement.h"
#include "sparse/pattern.h"
#include "train/settings.h"
#include "train/trainer_impl.h"

namespace tessera {

using namespace train;

namespace train {

std::pair<graph::RunCost, graph::RunCost> estimate_both(
    graph::Graph& training, const graph::Graph& evaluation, const Machine& machine, uint32_t threads,
    bool host_io, std::span<const graph::Tensor> of_training, std::span<const graph::Tensor> of_evaluation) {
  std::vector<PassRecord> passes;
  std::shared_ptr<const graph::Session::Impl> estimated;
  if (training.memory_budget()) {
    graph::Fitted fitted = graph::fit_to_memory(training, machine.model(), {.host_io = host_io}, nullptr);
    training = std::move(fitted.graph);
    passes.push_back(std::move(fitted.pass));
    estimated = std::move(fitted.estimated);
  }
  const bool alone = (threads == 0 ? default_threads() : threads) == 1;
  auto evaluated = std::async(alone ? std::launch::deferred : std::launch::async, [&] {
    return graph::estimate(evaluation, machine,
                           {.inputs = of_evaluation, .owner = &training, .host_io = host_io});
  });
  graph::RunCost step = estimated
                            ? estimated->cost(of_training)
                            : graph::estimate(training, machine, {.inputs = of_training, .host_io = host_io});
  step.passes.insert(step.passes.begin(), passes.begin(), passes.end());
  return {std::move(step), evaluated.get()};
}

uint64_t count_right(std::span<const float> logits, std::span<const uint32_t> labels) {
  const size_t classes = labels.empty() ? 0 : logits.size() / labels.size();
  uint64_t right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto row = logits.subspan(i * classes, classes);
    right += std::ranges::max_element(row) - row.begin() == labels[i] ? 1 : 0;
  }
  return right;
}

double cross_entropy_of(std::span<const float> logits, uint32_t label) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - most);
  return std::log(sum) + most - logits[label];
}

void rethrow_for(const Machine& machine) {
  try {
    throw;
  } catch (const UsageError&) {
    throw;
  } catch (const RankError&) {
    throw;
  } catch (const Error& e) {
    if (machine.is_host()) throw;
    std::string_view why = e.what();  // a list of everything that was tried follows
    why = why.substr(0, why.find_first_of(":\n"));
    throw Error(
        fmt::format("{} has too little memory for this network: {}; a smaller batch, sparser or smaller "
                    "layers, or a machine with more tiles would need less",
                    machine.name(), why));
  }
}

uint64_t count_parameters(const graph::Graph& graph) {
  uint64_t count = 0;
  for (const graph::ValueInfo& info : graph.values())
    if (info.kind == graph::Kind::parameter) count += info.type.elements();
  return count;
}

void require_fit(std::initializer_list<graph::RunCost> costs) {
  for (const graph::RunCost& cost : costs)
    if (!cost.overflow.empty()) throw Error(cost.overflow);
}

}  // namespace train

TrainerImpl::TrainerImpl(Trainable of, Machine place, uint32_t most_threads, bool only_estimates,
                         std::shared_ptr<Communicator> ranks)
    : what(std::move(of)),
      machine(std::move(place)),
      threads(most_threads),
      communicator(std::move(ranks)),
      division(divide(what.training_samples, what.settings.validation, what.settings.seed)),
      identity{io::json_text(without_placement(io::parse_ordered_json(what.settings_json))),
               what.data,
               {what.machine, machine.tiles(), std::string(name_of(active_isa()))},
               division.training.size() / what.settings.batch,
               what.steps != 0 ? what.steps
                               : what.settings.epochs * (division.training.size() / what.settings.batch)},
      logits(size_t{std::max(what.settings.batch, what.evaluation_rows)} * what.classes) {
  if (only_estimates) {
    auto [step, evaluated] =
        estimate_both(what.training, what.evaluation, machine, threads, what.settings.host_io);
    estimated_ = Estimated{what.training, std::move(step), std::move(evaluated)};
    transform(estimated_->graph, graph::session_transforms(), machine.model());
    return;
  }
  if (communicator != nullptr)
    ranks::require_equal(*communicator,
                         {{"set of samples", what.data}, {"set of settings", what.settings_json}});
  graph::Session trained(what.training, machine,
                         {.seed = what.settings.seed,
                          .threads = threads,
                          .host_io = what.settings.host_io,
                          .communicator = communicator});
  graph::Session evaluation(what.evaluation, trained);
  sessions_.emplace(std::move(trained), std::move(evaluation));
}

TrainerImpl::Sessions& TrainerImpl::sessions() {
  if (!sessions_) throw UsageError("a trainer that only estimates cannot train: make one that does not");
  return *sessions_;
}

SampleScore TrainerImpl::evaluate(bool of_test, std::span<const uint32_t> which) {
  double loss = 0;
  uint64_t right = 0;
  const uint32_t classes = what.classes;
  for (size_t first = 0; first < which.size(); first += what.evaluation_rows) {
    const size_t count = std::min<size_t>(what.evaluation_rows, which.size() - first);
    const auto labels = evaluate_batch(of_test, which.subspan(first, count)).first(count);
    const std::span<const float> rows(logits.data(), count * classes);
    right += count_right(rows, labels);
    for (size_t i = 0; i < count; ++i) loss += loss_of(rows.subspan(i * classes, classes), labels[i]);
  }
  const auto count = static_cast<double>(which.size());
  return {loss / count, static_cast<double>(right) / count};
}

SampleScore TrainerImpl::test() {
  std::vector<uint32_t> all(what.test_samples);
  std::iota(all.begin(), all.end(), 0U);
  return evaluate(true, all);
}

void TrainerImpl::prepare_once() {
  if (!is_prepared) prepare();
  is_prepared = true;
}

void TrainerImpl::require_success() const {
  if (unfinished != 0)
    throw Error(
        fmt::format("step {}, or the evaluation after it, has failed, and training cannot go on from there: "
                    "resume a checkpoint",
                    unfinished));
}

std::vector<NamedParameter> TrainerImpl::named_parameters() {
  std::vector<NamedParameter> all;
  for (const graph::ValueInfo& info : trained().graph().values()) {
    if (info.kind != graph::Kind::parameter) continue;
    std::vector<float> values = trained().get(info.name);
    if (info.type.pattern) values = sparse::to_dense({trained().pattern(info.name), std::move(values)});
    all.push_back({info.name, info.type.shape, std::move(values)});
  }
  return all;
}

uint64_t TrainerImpl::parameters() const { return count_parameters(graph()); }

SpikingTraces TrainerImpl::traces(size_t /*recording*/) {
  throw UsageError("this network has no neurons that spike, and so no traces: use a spiking network");
}

Trainer::Trainer(std::unique_ptr<TrainerImpl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

const LearningSettings& Trainer::settings() const { return impl_->what.settings; }
const std::string& Trainer::settings_json() const { return impl_->what.settings_json; }
uint64_t Trainer::training_samples() const { return impl_->division.training.size(); }
uint64_t Trainer::validation_samples() const { return impl_->division.validation.size(); }
uint64_t Trainer::test_samples() const { return impl_->what.test_samples; }
uint64_t Trainer::steps() const { return impl_->steps(); }
uint64_t Trainer::evaluations() const { return impl_->identity.epochs_until(impl_->steps()); }
uint64_t Trainer::steps_per_epoch() const { return impl_->identity.steps_per_epoch; }
uint64_t Trainer::parameters() const { return impl_->parameters(); }
graph::RunCost Trainer::step_cost() const { return impl_->step_cost(); }
graph::RunCost Trainer::evaluation_cost() const { return impl_->evaluation_cost(); }
uint32_t Trainer::evaluation_batch() const { return impl_->what.evaluation_rows; }
const graph::Graph& Trainer::graph() const { return impl_->graph(); }
uint64_t Trainer::step() const { return impl_->position.step; }
const std::vector<EpochResult>& Trainer::history() const { return impl_->position.epochs; }
uint32_t Trainer::best_epoch() const { return impl_->position.best_epoch; }
SpikingTraces Trainer::traces(size_t recording) { return impl_->traces(recording); }

void Trainer::save_parameters(const std::string& path) { impl_->save_parameters(path); }
std::vector<NamedParameter> Trainer::named_parameters() { return impl_->named_parameters(); }

void Trainer::resume(const std::string& checkpoint, bool allow_different_bits) {
  graph::Session& trained = impl_->trained();
  require_fit({step_cost()});
  impl_->position =
      load_checkpoint(checkpoint, impl_->identity, allow_different_bits, trained, impl_->communicator.get());
  impl_->last.reset();
  impl_->is_prepared = true;
  impl_->unfinished = 0;
  if (impl_->position.step == impl_->steps()) impl_->take_best();
}

TrainingResult Trainer::train(const TrainingRun& run) {
  impl_->trained();
  require_fit({step_cost(), evaluation_cost()});
  impl_->require_success();
  impl_->prepare_once();
  return impl_->train(run);
}

SampleScore Trainer::validate() {
  impl_->trained();
  require_fit({evaluation_cost()});
  impl_->prepare_once();
  return impl_->validate();
}

SampleScore Trainer::test() {
  impl_->trained();
  require_fit({evaluation_cost()});
  impl_->prepare_once();
  return impl_->test();
}

void Trainer::save(const std::string& checkpoint) {
  impl_->trained();
  impl_->require_success();
  impl_->prepare_once();
  impl_->save(checkpoint);
}

}  // namespace tessera
