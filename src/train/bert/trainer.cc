#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/estimate.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/checksum.h"
#include "base/isa.h"
#include "graph/transforms/transforms.h"
#include "train/bert/network.h"
#include "train/bert/settings.h"
#include "train/bert/trainer_impl.h"
#include "train/network.h"
#include "train/trainer_impl.h"

namespace tessera {
namespace train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_from(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string identity_of(const TextSplit& text) {
  uint64_t sum = 0;
  for (const auto& part : {text.train, text.held_out}) {
    sum = sum * 31 + base::checksum(std::as_bytes(std::span(part->tokens)));
    for (const auto* limits : {&part->sentences, &part->documents})
      sum = sum * 31 + base::checksum(std::as_bytes(std::span(*limits)));
  }
  return fmt::format("text of {} tokens for training and {} held out, checksum {:016x}",
                     text.train->tokens.size(), text.held_out->tokens.size(), sum);
}

PretrainingSettings with_vocabulary(PretrainingSettings settings, const TextSplit& text) {
  check(settings);
  tessera::check(*text.train);
  tessera::check(*text.held_out);
  settings.config.vocab_size = text.train->vocabulary;
  return settings;
}

nlohmann::ordered_json json_of(const PretrainingEvaluation& e) {
  return {{"step", e.step},
          {"sequences", e.sequences},
          {"loss", e.loss},
          {"held_out_loss", e.held_out_loss},
          {"masked_lm_loss", e.masked_lm_loss},
          {"next_sentence_loss", e.next_sentence_loss}};
}

PretrainingEvaluation evaluation_of(const nlohmann::ordered_json& json) {
  return {.step = json.at("step").get<uint64_t>(),
          .sequences = json.at("sequences").get<uint64_t>(),
          .loss = json.at("loss").get<double>(),
          .held_out_loss = json.at("held_out_loss").get<double>(),
          .masked_lm_loss = json.at("masked_lm_loss").get<double>(),
          .next_sentence_loss = json.at("next_sentence_loss").get<double>()};
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
  return json.dump();
}

PretrainingPosition position_of(const std::string& text) {
  const auto json = nlohmann::ordered_json::parse(text);
  PretrainingPosition position{.step = json.at("step").get<uint64_t>(),
                               .sequences = json.at("sequences").get<uint64_t>(),
                               .steps_in_sum = json.at("steps_in_sum").get<uint64_t>(),
                               .loss_sum = json.at("loss_sum").get<double>()};
  for (const auto& evaluation : json.at("evaluations"))
    position.evaluations.push_back(evaluation_of(evaluation));
  return position;
}

BertTrainerImpl::BertTrainerImpl(const PretrainingSettings& chosen, const TextSplit& text, Machine place,
                                 uint32_t most_threads, bool only_estimates)
    : settings(with_vocabulary(chosen, text)), machine(std::move(place)), threads(most_threads) {
  for (const PretrainingPhase& phase : settings.phases) add_phase(phase, text);
  if (settings.evaluate_every == 0) settings.evaluate_every = phases.front().steps_per_epoch;
  graph::Schedule schedule = settings.lr_schedule;
  if (schedule.steps == 0) schedule.steps = steps;
  graph::check(schedule);
  settings_json = json_of(settings).dump();
  identity = {
      settings_json,
      identity_of(text),
      {machine.is_host() ? "host" : machine.name(), machine.tiles(), std::string(name_of(active_isa()))},
      settings.evaluate_every,
      steps};
  if (!only_estimates) {
    present = sessions_of(0);
    return;
  }
  const Phase& first = phases.front();
  const graph::Graph training = pretraining_graph(settings, first.training.shape(first.of.packs));
  const graph::Graph evaluation =
      pretraining_evaluation_graph(settings, first.held_out.shape(rows_of_evaluation(first)));
  estimated = Estimated{training, graph::estimate(training, machine),
                        graph::estimate(evaluation, machine, {.owner = &training})};
  transform(estimated->graph, graph::session_transforms(), machine.model());
}

void BertTrainerImpl::add_phase(const PretrainingPhase& phase, const TextSplit& text) {
  const SequenceSettings sequences{.length = phase.length,
                                   .packed = settings.packed,
                                   .max_per_pack = settings.max_per_pack,
                                   .seed = settings.seed};
  Phase& added = phases.emplace_back(
      Phase{phase, PretrainingData(text.train, sequences), PretrainingData(text.held_out, sequences)});
  const uint64_t packs = added.training.packing().packs();
  added.steps_per_epoch = packs / phase.packs;
  if (added.steps_per_epoch == 0)
    throw UsageError(
        fmt::format("a batch of {} packs is larger than the {} packs of {} tokens for training; make "
                    "it smaller",
                    phase.packs, packs, phase.length));
  added.begin = steps;
  PretrainingPhase& own = settings.phases[phases.size() - 1];
  if (own.steps == 0) own.steps = settings.epochs * added.steps_per_epoch;
  added.of = own;
  steps += own.steps;
}

uint32_t BertTrainerImpl::rows_of_evaluation(const Phase& phase) const {
  return phase.of.packs / settings.micro_batches;
}

BertTrainerImpl::Sessions BertTrainerImpl::sessions_of(size_t number) const {
  const Phase& phase = phases[number];
  graph::Session trained(pretraining_graph(settings, phase.training.shape(phase.of.packs)), machine,
                         {.seed = settings.seed, .threads = threads});
  graph::Session evaluation(
      pretraining_evaluation_graph(settings, phase.held_out.shape(rows_of_evaluation(phase))), trained);
  return {number, std::move(trained), std::move(evaluation)};
}

BertTrainerImpl::Sessions& BertTrainerImpl::sessions() {
  if (!present) throw UsageError("a trainer that only estimates cannot train: make one that does not");
  return *present;
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

void BertTrainerImpl::enter_phase_of(uint64_t step) {
  const size_t phase = phase_of(step);
  if (sessions().phase == phase) return;
  const graph::Arrays state = trained().state();
  present.reset();  // before the next one takes memory
  present = sessions_of(phase);
  trained().set_state(state);
}

double BertTrainerImpl::step(uint64_t number, Taken& taken) {
  enter_phase_of(number);
  Phase& phase = phases[present->phase];
  const uint64_t within = (number - phase.begin) % phase.steps_per_epoch;
  PretrainingBatch batch = phase.training.batch(epoch_of(number), within * phase.of.packs, phase.of.packs);
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
  trained().run(taken_by(trained().graph(), std::move(arrays)));
  taken.seconds += machine.is_host() ? seconds_from(start) : trained().last_seconds();
  taken.tokens += batch.tokens;
  taken.sequences += batch.sequences;
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
          .loss = position.loss_sum / static_cast<double>(position.steps_in_sum),
          .held_out_loss = masked_lm.value() + next_sentence.value(),
          .masked_lm_loss = masked_lm.value(),
          .next_sentence_loss = next_sentence.value()};
}

bool BertTrainerImpl::is_evaluated(uint64_t step) const {
  return step % settings.evaluate_every == 0 || step == steps;
}

uint64_t BertTrainerImpl::evaluations_until(uint64_t step) const {
  return step / settings.evaluate_every + (step == steps && step % settings.evaluate_every != 0 ? 1 : 0);
}

uint64_t BertTrainerImpl::evaluation_batches() const {
  const Phase& phase = phases[present ? present->phase : 0];
  const uint32_t rows = rows_of_evaluation(phase);
  return (phase.held_out.packing().packs() + rows - 1) / rows;
}

void BertTrainerImpl::save(const PretrainingRun& run) const {
  if (!run.checkpoint.empty()) save_checkpoint(run.checkpoint, identity, text_of(position), present->trained);
}

void BertTrainerImpl::resume(const std::string& checkpoint, bool allow_different_bits) {
  PretrainingPosition found;
  load_checkpoint(checkpoint, identity, allow_different_bits, trained(), [&](const std::string& text) {
    found = position_of(text);
    if (found.step > steps || found.evaluations.size() != evaluations_until(found.step))
      throw Error(fmt::format("{}: a damaged checkpoint: step {} of {} with {} evaluations", checkpoint,
                              found.step, steps, found.evaluations.size()));
  });
  position = std::move(found);
}

PretrainingProgress BertTrainerImpl::progress() const {
  return {.step = position.step,
          .steps = steps,
          .epoch = epoch_of(position.step - 1) + 1,
          .loss = position.loss_sum / static_cast<double>(std::max<uint64_t>(1, position.steps_in_sum))};
}

PretrainingResult BertTrainerImpl::train(const PretrainingRun& run) {
  const Clock::time_point start = Clock::now();
  Clock::time_point since = start;
  PretrainingResult result;
  Taken taken;
  for (bool stopped = false; position.step < steps && !stopped;) {
    const double loss = step(position.step, taken);
    position.step += 1;
    position.steps_in_sum += 1;
    position.loss_sum += loss;
    result.steps_run += 1;
    const std::string kept = position.evaluations.empty() ? "" : run.checkpoint;
    require_finite(loss, position.step, epoch_of(position.step - 1) + 1, settings.lr, kept);
    PretrainingProgress now = progress();
    if (is_evaluated(position.step)) {
      position.evaluations.push_back(evaluate());
      require_finite(position.evaluations.back().held_out_loss, position.step, now.epoch, settings.lr, kept);
      position.steps_in_sum = 0;
      position.loss_sum = 0;
      save(run);
      position.evaluations.back().seconds = seconds_from(since);
      since = Clock::now();
      now.evaluated = &position.evaluations.back();
    }
    stopped = run.progress && !run.progress(now);
    if (stopped && now.evaluated == nullptr) save(run);
  }
  result.finished = position.step == steps;
  result.step = position.step;
  result.sequences = position.sequences;
  result.evaluations = position.evaluations;
  result.seconds = seconds_from(start);
  if (result.steps_run == 0) return result;
  result.step_seconds = taken.seconds / static_cast<double>(result.steps_run);
  result.tokens_per_second = static_cast<double>(taken.tokens) / taken.seconds;
  result.sequences_per_second = static_cast<double>(taken.sequences) / taken.seconds;
  if (!machine.is_host())
    result.cycles = static_cast<uint64_t>(std::llround(taken.seconds * machine.clock_hz()));
  return result;
}

}  // namespace train

using train::BertTrainerImpl;

BertTrainer::BertTrainer(const PretrainingSettings& settings, const TextSplit& text, const Machine& machine,
                         uint32_t threads, bool only_estimates) {
  train::make_for(machine, [&] {
    impl_ = std::make_unique<BertTrainerImpl>(settings, text, machine, threads, only_estimates);
  });
}
BertTrainer::~BertTrainer() = default;
BertTrainer::BertTrainer(BertTrainer&&) noexcept = default;
BertTrainer& BertTrainer::operator=(BertTrainer&&) noexcept = default;

const PretrainingSettings& BertTrainer::settings() const { return impl_->settings; }
const std::string& BertTrainer::settings_json() const { return impl_->settings_json; }
uint64_t BertTrainer::steps() const { return impl_->steps; }
uint64_t BertTrainer::steps_per_epoch(size_t phase) const { return impl_->phases.at(phase).steps_per_epoch; }
uint64_t BertTrainer::evaluations() const { return impl_->evaluations_until(impl_->steps); }
uint64_t BertTrainer::evaluation_batches() const { return impl_->evaluation_batches(); }
const PretrainingData& BertTrainer::training_data(size_t phase) const {
  return impl_->phases.at(phase).training;
}
const PretrainingData& BertTrainer::held_out_data(size_t phase) const {
  return impl_->phases.at(phase).held_out;
}

uint64_t BertTrainer::parameters() const {
  uint64_t count = 0;
  for (const graph::ValueInfo& info : graph().values())
    if (info.kind == graph::Kind::parameter) count += info.type.elements();
  return count;
}

graph::RunCost BertTrainer::step_cost() const {
  return impl_->present ? impl_->present->trained.cost() : impl_->estimated->step;
}
graph::RunCost BertTrainer::evaluation_cost() const {
  return impl_->present ? impl_->present->evaluation.cost() : impl_->estimated->evaluation;
}
const graph::Graph& BertTrainer::graph() const {
  return impl_->present ? impl_->present->trained.graph() : impl_->estimated->graph;
}

void BertTrainer::resume(const std::string& checkpoint, bool allow_different_bits) {
  impl_->trained();
  train::require_fit({step_cost()});
  impl_->resume(checkpoint, allow_different_bits);
}
uint64_t BertTrainer::step() const { return impl_->position.step; }

PretrainingResult BertTrainer::train(const PretrainingRun& run) {
  impl_->trained();
  train::require_fit({step_cost(), evaluation_cost()});
  return impl_->train(run);
}

void BertTrainer::load_parameters(const std::string& path) { impl_->trained().load_parameters(path); }
void BertTrainer::save_parameters(const std::string& path) const { impl_->trained().save_parameters(path); }

}  // namespace tessera
