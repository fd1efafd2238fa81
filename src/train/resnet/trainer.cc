// Training of residual networks.
#include <tessera/communicator.h>
#include <tessera/convolution.h>
#include <tessera/training.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/parallel.h"
#include "data/image_source.h"
#include "graph/state_file.h"
#include "io/json_text.h"
#include "ranks/agreement.h"
#include "train/network.h"
#include "train/regrow.h"
#include "train/resnet/network.h"
#include "train/resnet/settings.h"
#include "train/settings.h"
#include "train/trainer_impl.h"

namespace tessera {
namespace train {
namespace {

using graph::Kind;

Trainable trainable(const ResnetTrainingSettings& s, const ImageSources& images, const Patterns& patterns,
                    const Machine& machine) {
  const uint32_t rows = rows_of_part(s);
  return {.settings = s,
          .settings_json = io::json_text(train::json_of(s)),
          .data = images.identity,
          .training_samples = images.training->count(),
          .test_samples = images.testing->count(),
          .classes = images.format.classes,
          .training = resnet_training_graph(s, images.format, patterns),
          .evaluation = resnet_evaluation_graph(s, images.format, patterns, rows),
          .evaluation_rows = rows,
          .machine = machine.name(),
          .steps = s.steps};
}

bool is_running_statistic(const std::string& name) {
  return name.ends_with(".running_mean") || name.ends_with(".running_var");
}

class ResnetTrainer final : public TrainerImpl {
 public:
  ResnetTrainer(const ResnetTrainingSettings& chosen, ImageSources images, const Patterns& patterns,
                const Machine& place, uint32_t most_threads, bool only_estimates,
                const std::shared_ptr<Communicator>& ranks)
      : TrainerImpl(trainable(chosen, images, patterns, place), place, most_threads, only_estimates, ranks),
        settings_(chosen),
        images_(std::move(images)),
        patterns_(patterns),
        pixels_(only_estimates ? 0 : most_rows() * images_.format.image_size()),
        labels_(most_rows()) {}

  uint64_t parameters() const override;
  void save_parameters(const std::string& path) override;
  std::vector<NamedParameter> named_parameters() override;

 private:
  /// Images of a step's batch.
  struct Rows {
    size_t first = 0, count = 0;
  };

  /// The rows of this rank's replicas.
  Rows own_rows() const {
    if (communicator == nullptr) return {0, settings_.batch};
    const size_t count = settings_.batch / communicator->size();
    return {communicator->rank() * count, count};
  }
  bool grows_by_gradients() const {
    return drops_and_grows(settings_) && settings_.drop_grow.kind == DropGrowKind::rigl;
  }
  /// Maximum number of rows that are loaded at once.
  size_t most_rows() const { return grows_by_gradients() ? settings_.batch : own_rows().count; }
  StepResult step(uint64_t number) override;
  std::span<const uint32_t> evaluate_batch(bool of_test, std::span<const uint32_t> which) override;
  void load(const ImageSource& source, std::span<const uint32_t> which, std::optional<uint32_t> epoch);
  void drop_and_grow(uint64_t number, double fraction);
  struct JoinedImages {
    base::BufferVector<uint8_t> pixels;
    std::vector<uint32_t> labels;
  };
  JoinedImages joined() const;
  std::vector<std::vector<float>> dense_gradients();

  ResnetTrainingSettings settings_;
  ImageSources images_;
  Patterns patterns_;
  base::BufferVector<uint8_t> pixels_;
  std::vector<uint32_t> labels_;
  std::unique_ptr<graph::Session> gradients_;  ///< made when first needed
};

void ResnetTrainer::load(const ImageSource& source, std::span<const uint32_t> which,
                         std::optional<uint32_t> epoch) {
  const size_t size = images_.format.image_size();
  const uint32_t most = threads == 0 ? default_threads() : threads;
  const auto read = [&](uint32_t readers) {
    base::run_parallel(which.size(), readers, [&](size_t i, const std::atomic<bool>& /*stopped*/) {
      source.read(which[i], epoch, std::span(pixels_).subspan(i * size, size));
      labels_[i] = source.label(which[i]);
    });
  };
  if (!source.is_slow()) return read(1);
  ranks::do_on_each(communicator.get(), [&] { read(most); });  // all have to know if a rank lacks a file
}

StepResult ResnetTrainer::step(uint64_t number) {
  const double fraction = drops_and_grows(settings_) ? settings_.drop_grow.fraction(number, steps()) : 0;
  // Gradients for pattern changes are gradients of the whole batch, which each rank computes for itself.
  const bool takes_all = fraction > 0 && grows_by_gradients();
  const Rows own = own_rows();
  const std::span<const uint32_t> batch = samples_of(number);
  load(*images_.training, takes_all ? batch : batch.subspan(own.first, own.count),
       static_cast<uint32_t>(number / identity.steps_per_epoch));
  if (fraction > 0) drop_and_grow(number, fraction);
  const size_t first = takes_all ? own.first : 0;
  return run_step(number, std::span(labels_).subspan(first, own.count),
                  {{kImages, &pixels_[first * images_.format.image_size()]}});
}

std::span<const uint32_t> ResnetTrainer::evaluate_batch(bool of_test, std::span<const uint32_t> which) {
  load(of_test ? *images_.testing : *images_.training, which, {});
  evaluation().run(std::vector<graph::Tensor>{{kImages, pixels_.data()}, {kLogits, logits.data()}});
  evaluation_seconds = evaluation().last_seconds();
  return labels_;
}

/// The loaded batch, with jointly normalised images one after another: the images of a micro-batch of several
/// replicas.
ResnetTrainer::JoinedImages ResnetTrainer::joined() const {
  const size_t image = images_.format.image_size(), rows = rows_of_part(settings_),
               joint = replicas_of_norm(settings_);
  JoinedImages batch;
  for (size_t group = 0; group < settings_.replicas; group += joint)
    for (size_t part = 0; part < settings_.micro_batches; ++part)
      for (size_t replica = group; replica < group + joint; ++replica) {
        const size_t first = (replica * settings_.micro_batches + part) * rows;
        const auto pixels = std::span(pixels_).subspan(first * image, rows * image);
        const auto labels = std::span(labels_).subspan(first, rows);
        batch.pixels.insert(batch.pixels.end(), pixels.begin(), pixels.end());
        batch.labels.insert(batch.labels.end(), labels.begin(), labels.end());
      }
  return batch;
}

/// The gradients of the loaded batch.
std::vector<std::vector<float>> ResnetTrainer::dense_gradients() {
  if (gradients_ == nullptr)
    gradients_ =
        std::make_unique<graph::Session>(resnet_gradient_graph(settings_, images_.format, patterns_),
                                         machine.is_host() ? machine : Machine::host(1),
                                         graph::SessionOptions{.seed = settings_.seed, .threads = threads});
  copy_as_dense(trained(), *gradients_);
  std::vector<std::vector<float>> found;
  JoinedImages batch = joined();
  std::vector<graph::Tensor> arrays = {{kImages, batch.pixels.data()}, {kLabels, batch.labels.data()}};
  for (const auto& [name, pattern] : patterns_) {
    std::vector<float>& of_weight = found.emplace_back(size_t{pattern.rows} * pattern.cols);
    arrays.push_back({gradient_name(name), of_weight.data()});
  }
  gradients_->run(arrays);
  return found;
}

void ResnetTrainer::drop_and_grow(uint64_t number, double fraction) {
  std::vector<std::vector<float>> gradients;
  if (settings_.drop_grow.kind == DropGrowKind::rigl) gradients = dense_gradients();
  std::vector<std::string> weights;
  for (const auto& [name, pattern] : patterns_) weights.push_back(name);
  begin_changes(number);
  regrow(trained(), weights, gradients, fraction, settings_.seed, number);
}

/// Excludes running statistics.
uint64_t ResnetTrainer::parameters() const {
  uint64_t count = 0;
  for (const graph::ValueInfo& info : graph().values())
    if (info.kind == Kind::parameter && !is_running_statistic(info.name)) count += info.type.elements();
  return count;
}

/// With PyTorch's layout of convolutions, [outputs, channels, height, width].
std::vector<NamedParameter> ResnetTrainer::named_parameters() {
  const std::map<std::string, graph::Shape> kernels = kernels_of(settings_, images_.format);
  std::vector<NamedParameter> all = TrainerImpl::named_parameters();
  for (NamedParameter& each : all) {
    const auto kernel = kernels.find(each.name);
    if (kernel == kernels.end()) continue;
    each.shape = kernel->second;
    // From [outputs, taps, channels], which is the shape of a kernel with as many channels and taps.
    each.values =
        graph::convolution_weight(each.values, {each.shape[0], each.shape[2] * each.shape[3], each.shape[1]});
  }
  return all;
}

void ResnetTrainer::save_parameters(const std::string& path) {
  graph::StateFile file;
  file.metadata()["format"] = "pt";
  const std::vector<NamedParameter> all = named_parameters();
  auto next = all.begin();
  for (const graph::ValueInfo& info : trained().graph().values()) {
    if (info.kind != Kind::parameter) continue;
    file.add({.name = info.name, .kind = info.kind, .type = {info.type.type, next->shape}}, next->values);
    ++next;
  }
  ranks::do_once(communicator.get(), [&] { file.write(path); });
}

}  // namespace
}  // namespace train

namespace {

train::ImageSources sources_of(const ResnetTrainingSettings& settings, const ImageSplit& images) {
  return train::stored_images(images, settings.seed,
                              settings.augment ? std::optional(settings.padding) : std::nullopt);
}

train::ImageSources sources_of(const ResnetTrainingSettings& settings, const ImageFolder& images) {
  return train::images_of_files(images, train::size_of_images(settings), settings.seed, settings.augment);
}

train::ImageSources sources_of(const ResnetTrainingSettings& /*settings*/, const ImageOutline& images) {
  return train::outlined_images(images);
}

template <class Images>
std::unique_ptr<train::TrainerImpl> resnet_trainer(const ResnetTrainingSettings& settings,
                                                   const Images& images, const Machine& machine,
                                                   uint32_t threads, bool only_estimates,
                                                   const std::shared_ptr<Communicator>& communicator = {}) {
  train::ImageSources sources;
  train::Patterns patterns;
  ranks::do_on_each(communicator.get(), [&] {
    train::check(settings);
    sources = sources_of(settings, images);
    train::check_images(settings, sources.training->count(), sources.testing->count());
    patterns = train::initial_patterns(settings, sources.format);
  });
  return train::make_for(machine, [&] {
    return std::make_unique<train::ResnetTrainer>(settings, std::move(sources), patterns, machine, threads,
                                                  only_estimates, communicator);
  });
}

}  // namespace

Trainer::Trainer(const ResnetTrainingSettings& settings, const ImageSplit& images, const Machine& machine,
                 uint32_t threads, const std::shared_ptr<Communicator>& communicator)
    : impl_(resnet_trainer(settings, images, machine, threads, false, communicator)) {}

Trainer Trainer::for_estimates(const ResnetTrainingSettings& settings, const ImageSplit& images,
                               const Machine& machine, uint32_t threads) {
  return Trainer(resnet_trainer(settings, images, machine, threads, true));
}

Trainer::Trainer(const ResnetTrainingSettings& settings, const ImageFolder& images, const Machine& machine,
                 uint32_t threads, const std::shared_ptr<Communicator>& communicator)
    : impl_(resnet_trainer(settings, images, machine, threads, false, communicator)) {}

Trainer Trainer::for_estimates(const ResnetTrainingSettings& settings, const ImageFolder& images,
                               const Machine& machine, uint32_t threads) {
  return Trainer(resnet_trainer(settings, images, machine, threads, true));
}

Trainer Trainer::for_estimates(const ResnetTrainingSettings& settings, const ImageOutline& images,
                               const Machine& machine, uint32_t threads) {
  return Trainer(resnet_trainer(settings, images, machine, threads, true));
}

}  // namespace tessera
