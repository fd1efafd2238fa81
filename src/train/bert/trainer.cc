#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/estimate.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/isa.h"
#include "data/text/tokens_in_file.h"
#include "graph/transforms/loss_scale.h"
#include "graph/transforms/transforms.h"
#include "io/json_text.h"
#include "ranks/agreement.h"
#include "train/bert/network.h"
#include "train/bert/settings.h"
#include "train/bert/trainer_impl.h"
#include "train/network.h"
#include "train/settings.h"
#include "train/trainer_impl.h"

namespace tessera {
namespace train {
namespace {

uint64_t checksum_of(const Tokens& tokens) {
  base::Checksum sum;
  for_pieces(tokens, [&](uint64_t, std::span<const uint32_t> piece) { sum.add(std::as_bytes(piece)); });
  return sum.value();
}

std::string identity_of(const TextSplit& text) {
  constexpr uint64_t kMultiplier = 31;  // makes the sum depend on the order
  uint64_t sum = 0;
  const auto add_sum = [&](uint64_t of) { sum = sum * kMultiplier + of; };
  const auto add = [&](const auto& items) { add_sum(base::checksum(std::as_bytes(std::span(items)))); };
  const SpecialTokens& special = text.train->special;
  add(std::array{special.pad, special.cls, special.sep, special.mask});
  for (const auto& part : {text.train, text.held_out}) {
    add_sum(checksum_of(part->tokens));
    add(part->sentences);
    add(part->documents);
  }
  return fmt::format("text of {} tokens for training and {} held out, checksum {:016x}",
                     text.train->tokens.size(), text.held_out->tokens.size(), sum);
}

PretrainingEvaluation evaluation_of(const nlohmann::ordered_json& json) {
  return {.step = json.at("step").get<uint64_t>(),
          .sequences = json.at("sequences").get<uint64_t>(),
          .loss = json.at("loss").get<double>(),
          .held_out_loss = json.at("held_out_loss").get<double>(),
          .masked_lm_loss = json.at("masked_lm_loss").get<double>(),
          .next_sentence_loss = json.at("next_sentence_loss").get<double>()};
}

/// The settings on which results depend, which must be equal in a checkpoint.
std::string settings_of_results(const PretrainingSettings& settings) {
  return io::json_text(without_placement(json_of(settings)));
}

/// Reduces inputs with the rows of all replicas to the rows of this rank's replicas, or of the one whose
/// stages it has.
void take_own_rows(const graph::Graph& graph, const Communicator& ranks, std::vector<graph::Tensor>& arrays) {
  const uint32_t replicas = std::max(1U, graph.replicas() / ranks.size());
  const uint64_t first = uint64_t{ranks.rank()} * graph.replicas() / ranks.size();
  for (const graph::ValueId id : graph.inputs()) {
    const auto array = std::ranges::find(arrays, graph.info(id).name, &graph::Tensor::name);
    const uint64_t all = graph.bound_type(id).elements(), own = graph.bound_type(id, replicas).elements();
    if (array == arrays.end() || own == all) continue;
    array->data =
        static_cast<std::byte*>(array->data) + first / replicas * own * size_of(graph.type(id).type);
    if (array->elements) array->elements = own;
  }
}

/// Whether a loss scale skips steps.
bool leaves_out_steps(const PretrainingSettings& settings) {
  const std::optional<graph::LossScale> scale = numbers_of(settings).loss_scale;
  return scale && scale->grow_after > 0;
}

/// The ids of a batch if it is known, on which costs of attention depend.
std::vector<graph::Tensor> ids_of(std::optional<PretrainingBatch>& batch) {
  if (!batch) return {};
  return {{"sequence_ids", batch->sequence_ids.data(), batch->sequence_ids.size()}};
}

/// A weighted mean.
struct Mean {
  double sum = 0, weight = 0;
  void add(double value, double by) { sum += value * by, weight += by; }
  double value() const { return weight == 0 ? 0 : sum / weight; }
};

}  // namespace

std::string text_of(const PretrainingPosition& p) {
  nlohmann::ordered_json json = {{"step", p.step},
                                 {"sequences", p.sequences},
                                 {"steps_in_sum", p.steps_in_sum},
                                 {"loss_sum", p.loss_sum},
                                 {"evaluations", nlohmann::ordered_json::array()}};
  for (const PretrainingEvaluation& evaluation : p.evaluations)
    json["evaluations"].push_back(json_of(evaluation));
  return io::json_text(json);
}

PretrainingPosition position_of(const std::string& text) {
  const auto json = io::parse_ordered_json(text);
  PretrainingPosition position{.step = json.at("step").get<uint64_t>(),
                               .sequences = json.at("sequences").get<uint64_t>(),
                               .steps_in_sum = json.at("steps_in_sum").get<uint64_t>(),
                               .loss_sum = json.at("loss_sum").get<double>()};
  for (const auto& evaluation : json.at("evaluations"))
    position.evaluations.push_back(evaluation_of(evaluation));
  return position;
}

BertTrainerImpl::BertTrainerImpl(const PretrainingSettings& given, const TextSplit& text, Machine target,
                                 uint32_t thread_count, bool estimates_only,
                                 std::shared_ptr<Communicator> ranks)
    : settings(with_vocabulary(given, text)),
      machine(std::move(target)),
      threads(thread_count),
      only_estimates(estimates_only),
      communicator(std::move(ranks)) {
  ranks::do_on_each(communicator.get(), [&] {
    for (const PretrainingPhase& phase : settings.phases) add_phase(phase, text);
  });
  if (settings.evaluate_every == 0) settings.evaluate_every = phases.front().steps_per_epoch;
  graph::Schedule schedule = settings.lr_schedule;
  if (schedule.steps == 0) schedule.steps = steps;
  graph::check(schedule);
  settings_json = io::json_text(json_of(settings));
  std::string identity_of_text;
  ranks::do_on_each(communicator.get(), [&] { identity_of_text = identity_of(text); });
  identity = {settings_of_results(settings),
              std::move(identity_of_text),
              {host_or_name(machine), machine.tiles(), std::string(name_of(active_isa()))},
              settings.evaluate_every,
              steps};
  if (communicator != nullptr)
    ranks::require_equal(*communicator, {{"text", identity.data}, {"set of settings", settings_json}});
  if (!only_estimates) present = sessions_of(0);
  ranks::do_on_each(communicator.get(), [&] {
    for (size_t i = 0; i < phases.size(); ++i) estimate(i);
  });
}

void BertTrainerImpl::estimate(size_t number) {
  Phase& phase = phases[number];
  if (present && present->phase == number) {
    phase.graph = present->trained.graph();
    phase.step = present->trained.cost();
    phase.evaluation = present->evaluation.cost();
    return;
  }
  graph::Graph training = training_graph_of(phase);
  const graph::Graph evaluation = evaluation_graph_of(phase);
  std::optional<PretrainingBatch> first, first_held_out;
  if (settings.estimate_packs && only_estimates) {
    first = phase.training.batch(0, 0, phase.settings.packs);
    first_held_out = phase.held_out.batch(0, 0, rows_of_evaluation(phase));
  }
  std::tie(phase.step, phase.evaluation) = estimate_both(
      training, evaluation, machine, threads, settings.host_io, ids_of(first), ids_of(first_held_out));
  phase.graph = std::move(training);
  transform(*phase.graph, graph::session_transforms(), machine.model());
}

void BertTrainerImpl::require_fit() const {
  for (const Phase& phase : phases)
    for (const graph::RunCost* cost : {&phase.step, &phase.evaluation})
      if (!cost->overflow.empty())
        throw Error(phases.size() == 1
                        ? cost->overflow
                        : fmt::format("with packs of {} tokens: {}", phase.settings.length, cost->overflow));
}

void BertTrainerImpl::require_success() const {
  if (unfinished != 0)
    throw Error(fmt::format("step {} has failed, and training cannot go on from there: resume a checkpoint",
                            unfinished));
}

void BertTrainerImpl::add_phase(const PretrainingPhase& phase, const TextSplit& text) {
  const SequenceSettings sequences{.length = phase.length,
                                   .packed = settings.packed,
                                   .max_per_pack = settings.max_per_pack,
                                   .seed = settings.seed};
  Phase& added = phases.emplace_back(
      Phase{phase, PretrainingData(text.train, sequences), PretrainingData(text.held_out, sequences)});
  const uint64_t packs = added.training.packing().packs();
  check_packs(phase, packs);
  added.steps_per_epoch = packs / phase.packs;
  added.begin = steps;
  PretrainingPhase& own = settings.phases[phases.size() - 1];
  if (own.steps == 0) own.steps = settings.epochs * added.steps_per_epoch;
  added.settings = own;
  steps += own.steps;
}

uint32_t BertTrainerImpl::rows_of_evaluation(const Phase& phase) const {
  return phase.settings.packs / settings.micro_batches / settings.replicas;
}

graph::Graph BertTrainerImpl::training_graph_of(const Phase& phase) const {
  return pretraining_graph(settings, phase.training.shape(phase.settings.packs));
}

graph::Graph BertTrainerImpl::evaluation_graph_of(const Phase& phase) const {
  return pretraining_evaluation_graph(settings, phase.held_out.shape(rows_of_evaluation(phase)));
}

BertTrainerImpl::Sessions BertTrainerImpl::sessions_of(size_t number) const {
  const Phase& phase = phases[number];
  graph::Session trained(
      training_graph_of(phase), machine,
      {.seed = settings.seed, .threads = threads, .host_io = settings.host_io, .communicator = communicator});
  graph::Session evaluation(evaluation_graph_of(phase), trained);
  return {number, std::move(trained), std::move(evaluation)};
}

BertTrainerImpl::Sessions& BertTrainerImpl::sessions() {
  if (present) return *present;
  if (only_estimates) throw UsageError("a trainer that only estimates cannot train: make one that does not");
  throw Error("a phase could not begin, nor the one before go on; make another trainer, and resume");
}

size_t BertTrainerImpl::phase_of(uint64_t step) const {
  size_t phase = 0;
  while (phase + 1 < phases.size() && step >= phases[phase + 1].begin) ++phase;
  return phase;
}

uint32_t BertTrainerImpl::epoch_of(uint64_t step) const {
  const Phase& phase = phases[phase_of(step)];
  return static_cast<uint32_t>((step - phase.begin) / phase.steps_per_epoch);
}

void BertTrainerImpl::enter_phase_of(uint64_t step, const PretrainingRun& run) {
  const size_t before = sessions().phase, after = phase_of(step);
  if (before == after) return;
  if (!is_evaluated(position.step)) save(run);  // in case the next phase ends the process
  const graph::Arrays state = trained().state();
  const auto enter = [&](size_t phase) {
    present.reset();  // before the next sessions take memory
    present = sessions_of(phase);
    trained().set_state(state);
  };
  try {
    enter(after);
  } catch (...) {
    enter(before);
    throw;
  }
}

double BertTrainerImpl::step(uint64_t number, const PretrainingRun& run, StepTotals& totals) {
  enter_phase_of(number, run);
  Phase& phase = phases[present->phase];
  const uint64_t within = (number - phase.begin) % phase.steps_per_epoch;
  PretrainingBatch batch =
      phase.training.batch(epoch_of(number), within * phase.settings.packs, phase.settings.packs);
  std::vector<uint32_t> dropout_steps;
  for (uint32_t i = 0; i < settings.micro_batches; ++i)
    dropout_steps.push_back(static_cast<uint32_t>(number * settings.micro_batches + i));
  auto from_one = static_cast<uint32_t>(number + 1);
  auto lr = static_cast<float>(settings.lr_of(number, steps));
  float loss = 0, masked_lm = 0, next_sentence = 0;
  std::vector<graph::Tensor> arrays = batch.arrays();
  arrays.insert(arrays.end(), {{kDropoutStep, dropout_steps.data()},
                               {"lr", &lr},
                               {"step", &from_one},
                               {kLoss, &loss},
                               {kMaskedLmLoss, &masked_lm},
                               {kNextSentenceLoss, &next_sentence}});
  const Clock::time_point start = Clock::now();
  arrays = taken_by(trained().graph(), std::move(arrays));
  if (communicator != nullptr) take_own_rows(trained().graph(), *communicator, arrays);
  unfinished = from_one;
  trained().run(arrays);
  totals.seconds += machine.is_host() ? seconds_since(start) : trained().last_seconds();
  totals.tokens += batch.tokens;
  totals.sequences += batch.sequences;
  position.sequences += batch.sequences;
  return loss;
}

PretrainingEvaluation BertTrainerImpl::evaluate() {
  Phase& phase = phases[present->phase];
  const uint32_t rows = rows_of_evaluation(phase);
  Mean masked_lm, next_sentence;
  for (uint64_t first = 0; first < phase.held_out.packing().packs(); first += rows) {
    PretrainingBatch batch = phase.held_out.batch(0, first, rows);
    float of_masked = 0, of_next = 0;
    std::vector<graph::Tensor> arrays = batch.arrays();
    arrays.insert(arrays.end(), {{kMaskedLmLoss, &of_masked}, {kNextSentenceLoss, &of_next}});
    present->evaluation.run(arrays);
    const bool by_pack = settings.average == graph::PackedAverage::pack;
    const auto sequences = static_cast<double>(by_pack ? batch.packs : batch.sequences);
    const bool by_token = settings.average == graph::PackedAverage::token;
    masked_lm.add(of_masked, by_token ? static_cast<double>(batch.predictions) : sequences);
    next_sentence.add(of_next, sequences);
  }
  return {.step = position.step,
          .sequences = position.sequences,
          .loss = position.loss_sum / static_cast<double>(std::max<uint64_t>(1, position.steps_in_sum)),
          .held_out_loss = masked_lm.value() + next_sentence.value(),
          .masked_lm_loss = masked_lm.value(),
          .next_sentence_loss = next_sentence.value()};
}

PretrainingEvaluation BertTrainerImpl::evaluate_now() {
  enter_phase_of(std::max<uint64_t>(1, position.step) - 1, {});  // a resumed trainer is in the first phase
  return evaluate();
}

bool BertTrainerImpl::is_left_out(double loss) {
  if (std::isfinite(loss) || !leaves_out_steps(settings)) return false;
  // A loss may be infinite while its gradients are not, and the step then counts.
  return trained().get("loss_scale").front() > graph::kLeastLossScale &&
         trained().get("loss_scale.good_steps").front() == 0;
}

bool BertTrainerImpl::is_evaluated(uint64_t step) const {
  return step % settings.evaluate_every == 0 || step == steps;
}

uint64_t BertTrainerImpl::evaluations_until(uint64_t step) const {
  return step / settings.evaluate_every + (step == steps && step % settings.evaluate_every != 0 ? 1 : 0);
}

uint64_t BertTrainerImpl::evaluations_in(size_t phase) const {
  return evaluations_until(phases[phase].end()) - evaluations_until(phases[phase].begin);
}

uint64_t BertTrainerImpl::evaluation_batches(size_t number) const {
  const Phase& phase = phases[number];
  const uint32_t rows = rows_of_evaluation(phase);
  return (phase.held_out.packing().packs() + rows - 1) / rows;
}

void BertTrainerImpl::save(const PretrainingRun& run) {
  if (run.checkpoint.empty()) return;
  require_success();
  save_checkpoint(run.checkpoint, identity, text_of(position), present->trained, nullptr, communicator.get());
  last_checkpoint = run.checkpoint;
}

void BertTrainerImpl::check_position(const PretrainingPosition& p, const std::string& checkpoint) const {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds)
      throw Error(fmt::format("{}: a damaged checkpoint: step {} of {} {}", checkpoint, p.step, steps, what));
  };
  require(p.step <= steps && p.evaluations.size() == evaluations_until(p.step),
          fmt::format("with {} evaluations", p.evaluations.size()));
  for (size_t i = 0; i < p.evaluations.size(); ++i)
    require(p.evaluations[i].step == std::min((i + 1) * settings.evaluate_every, steps),
            fmt::format("with an evaluation after step {}", p.evaluations[i].step));
  const uint64_t evaluated = p.evaluations.empty() ? 0 : p.evaluations.back().step;
  const uint64_t since = p.step - evaluated;
  require(p.steps_in_sum == since || (p.steps_in_sum < since && leaves_out_steps(settings)),
          fmt::format("with a sum over {} steps since step {}", p.steps_in_sum, evaluated));
  require(std::isfinite(p.loss_sum) && (p.steps_in_sum > 0 || p.loss_sum == 0),
          fmt::format("with losses whose sum is {}", p.loss_sum));
  uint64_t least = 0, most = 0;
  for (const Phase& phase : phases) {
    const uint64_t packs =
        (std::clamp(p.step, phase.begin, phase.end()) - phase.begin) * phase.settings.packs;
    least += packs;
    most += packs * phase.training.shape(phase.settings.packs).sequences;
  }
  require(p.sequences >= least && p.sequences <= most, fmt::format("with {} sequences", p.sequences));
}

void BertTrainerImpl::resume(const std::string& checkpoint, bool allow_different_bits) {
  PretrainingPosition found;
  const auto take = [&](const std::string& text) {
    found = position_of(text);
    check_position(found, checkpoint);
  };
  load_checkpoint(checkpoint, identity, allow_different_bits, trained(), take, communicator.get());
  position = std::move(found);
  last_checkpoint = checkpoint;
  unfinished = 0;
}

PretrainingProgress BertTrainerImpl::progress() const {
  return {.step = position.step,
          .steps = steps,
          .epoch = epoch_of(position.step - 1) + 1,
          .loss = position.loss_sum / static_cast<double>(std::max<uint64_t>(1, position.steps_in_sum))};
}

PretrainingResult BertTrainerImpl::train(const PretrainingRun& run) {
  require_success();
  if (communicator != nullptr)
    ranks::require_equal(*communicator, {{"number of steps so far", fmt::format("{}", position.step)},
                                         {"checkpoint", text_of(position)}});
  const Clock::time_point start = Clock::now();
  Clock::time_point since = start;
  PretrainingResult result;
  StepTotals totals;
  for (bool stopped = false; position.step < steps && !stopped;) {
    const double loss = step(position.step, run, totals);
    position.step += 1;
    if (std::isfinite(loss)) position.steps_in_sum += 1, position.loss_sum += loss;
    result.steps_run += 1;
    PretrainingProgress now = progress();
    now.step_loss = loss;
    if (!is_left_out(loss))
      require_finite("loss", loss, position.step, now.epoch, settings.lr, last_checkpoint);
    if (is_evaluated(position.step)) {
      position.evaluations.push_back(evaluate());
      require_finite("held-out loss", position.evaluations.back().held_out_loss, position.step, now.epoch,
                     settings.lr, last_checkpoint);
      position.steps_in_sum = 0;
      position.loss_sum = 0;
      unfinished = 0;
      save(run);
      position.evaluations.back().seconds = seconds_since(since);
      since = Clock::now();
      now.evaluated = &position.evaluations.back();
    }
    unfinished = 0;
    stopped = ranks::is_any(communicator.get(), run.progress && !run.progress(now));
    if (stopped && now.evaluated == nullptr) save(run);
  }
  result.finished = position.step == steps;
  result.step = position.step;
  result.sequences = position.sequences;
  result.evaluations = position.evaluations;
  result.seconds = seconds_since(start);
  if (result.steps_run == 0) return result;
  result.step_seconds = totals.seconds / static_cast<double>(result.steps_run);
  result.tokens_per_second = static_cast<double>(totals.tokens) / totals.seconds;
  result.sequences_per_second = static_cast<double>(totals.sequences) / totals.seconds;
  if (!machine.is_host())
    result.cycles = static_cast<uint64_t>(std::llround(totals.seconds * machine.clock_hz()));
  return result;
}

}  // namespace train

using train::BertTrainerImpl;

namespace {

std::unique_ptr<BertTrainerImpl> bert_trainer(const PretrainingSettings& settings, const TextSplit& text,
                                              const Machine& machine, uint32_t threads, bool only_estimates,
                                              const std::shared_ptr<Communicator>& communicator = {}) {
  return train::make_for(machine, [&] {
    return std::make_unique<BertTrainerImpl>(settings, text, machine, threads, only_estimates, communicator);
  });
}

}  // namespace

BertTrainer::BertTrainer(const PretrainingSettings& settings, const TextSplit& text, const Machine& machine,
                         uint32_t threads, const std::shared_ptr<Communicator>& communicator)
    : BertTrainer(bert_trainer(settings, text, machine, threads, false, communicator)) {}
BertTrainer::BertTrainer(std::unique_ptr<BertTrainerImpl> impl) : impl_(std::move(impl)) {}

BertTrainer BertTrainer::for_estimates(const PretrainingSettings& settings, const TextSplit& text,
                                       const Machine& machine, uint32_t threads) {
  return BertTrainer(bert_trainer(settings, text, machine, threads, true));
}
BertTrainer::~BertTrainer() = default;
BertTrainer::BertTrainer(BertTrainer&&) noexcept = default;
BertTrainer& BertTrainer::operator=(BertTrainer&&) noexcept = default;

const PretrainingSettings& BertTrainer::settings() const { return impl_->settings; }
const std::string& BertTrainer::settings_json() const { return impl_->settings_json; }
uint64_t BertTrainer::steps() const { return impl_->steps; }
uint64_t BertTrainer::steps_per_epoch(size_t phase) const { return impl_->phases.at(phase).steps_per_epoch; }
uint64_t BertTrainer::evaluations(size_t phase) const { return impl_->evaluations_in(phase); }
uint64_t BertTrainer::evaluation_batches(size_t phase) const { return impl_->evaluation_batches(phase); }
const PretrainingData& BertTrainer::training_data(size_t phase) const {
  return impl_->phases.at(phase).training;
}

uint64_t BertTrainer::parameters() const { return train::count_parameters(graph()); }

const graph::RunCost& BertTrainer::step_cost(size_t phase) const { return impl_->phases.at(phase).step; }
const graph::RunCost& BertTrainer::evaluation_cost(size_t phase) const {
  return impl_->phases.at(phase).evaluation;
}
const graph::Graph& BertTrainer::graph(size_t phase) const { return *impl_->phases.at(phase).graph; }

void BertTrainer::resume(const std::string& checkpoint, bool allow_different_bits) {
  impl_->trained();
  impl_->require_fit();
  impl_->resume(checkpoint, allow_different_bits);
}
uint64_t BertTrainer::step() const { return impl_->position.step; }

PretrainingResult BertTrainer::train(const PretrainingRun& run) {
  impl_->trained();
  impl_->require_fit();
  return impl_->train(run);
}

const std::vector<PretrainingEvaluation>& BertTrainer::history() const { return impl_->position.evaluations; }

PretrainingEvaluation BertTrainer::evaluate() {
  impl_->trained();
  impl_->require_fit();
  return impl_->evaluate_now();
}

void BertTrainer::save(const std::string& checkpoint) {
  impl_->trained();
  if (checkpoint.empty()) throw UsageError("a checkpoint is written to a file: give its path");
  impl_->save({.checkpoint = checkpoint});
}

void BertTrainer::load_parameters(const std::string& path) { impl_->trained().load_parameters(path); }
void BertTrainer::save_parameters(const std::string& path) const { impl_->trained().save_parameters(path); }
std::vector<float> BertTrainer::parameter(const std::string& name) const {
  return impl_->trained().get(name);
}

}  // namespace tessera
