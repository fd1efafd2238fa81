#include "cli/train_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "cli/option_parsing.h"
#include "cli/parse.h"
#include "cli/spiking_options.h"
#include "train/settings.h"

namespace tessera::cli {
namespace {

constexpr uint32_t kMostImages = 10'000'000;
constexpr uint32_t kMostSeeds = 1000;
constexpr std::string_view kImageSets[] = {"cifar-10-grey", "cifar-10", "mnist"};

void add_network_options(CLI::App& command, TrainRequest& r) {
  TrainingSettings& s = r.settings;
  command.add_option_function<std::string>(
      "--layers",
      [&r](const std::string& text) {
        r.settings.layers = parse_counts("--layers", text);
        r.layers_given = true;
      },
      "Sizes of inputs, hidden layers and classes (default: one hidden layer of 1024)");
  command.add_option_function<std::string>(
      "--kind",
      [&r](const std::string& text) {
        r.is_spiking = text == "spiking";
        if (!r.is_spiking) r.settings.kind = layer_kind_named(text);
      },
      "Hidden layers: dense, static (block-sparse, fixed pattern), dynamic (blocks are dropped and grown), "
      "butterfly, bpbp, block-butterfly, pixelfly, fastfood, circulant, low-rank or monarch; or spiking: "
      "a network of spiking neurons, trained on recordings");
  add(command, "--density", s.density, single_density, "Density of sparse layers (default: 0.1)");
  add_count(command, "--block", s.block_size,
            "Block size of sparse, block-butterfly and pixelfly layers: 1, 4, 8, 16 or 32 (default: 16)");
  add_count(command, "--butterfly", s.butterfly_size,
            "Butterfly size of pixelfly layers, a power of two (default: 16)");
  add_count(command, "--rank", s.rank,
            "Rank of low-rank layers, and of pixelfly's low-rank part (default: 1)");
  add(command, "--recipe", s.recipe, recipe_named,
      "Recipe for dense and structured layers: paper (initial values, standardisation and optimizer as "
      "published), or best (initial values and learning rates for each factor, Adam; the default for "
      "structured layers)");
  add(command, "--form", s.form, graph::form_named,
      "Form of structured layers: fused (default), or unfused (the operations of plain PyTorch, one after "
      "another)");
  command.add_option("--activation", s.activation,
                     "Activation of hidden layers: relu (default), gelu, tanh, sigmoid or none");
  add_real(command, "--dropout", s.dropout, "Probability of dropout after each hidden layer (default: 0)");
  add_drop_grow_options(command, s.drop_grow, "dynamic layers");
}

/// Batch sizes, each once.
std::vector<uint32_t> parse_batches(const std::string& text) {
  std::vector<uint32_t> batches;
  for (const std::string& item : parse_names(text)) {
    const uint32_t batch = parse_count("--batch", item, 1);
    if (std::ranges::find(batches, batch) != batches.end())
      throw UsageError(fmt::format("--batch lists {} twice", batch));
    batches.push_back(batch);
  }
  return batches;
}

void add_batch_options(CLI::App& command, TrainRequest& r) {
  add(command, "--batch", r.batches, parse_batches,
      "Number of images per step (default: 50); with a list separated by commas, one training for each");
  add_count(command, "--micro-batches", r.settings.micro_batches,
            "Number of parts into which a batch is divided to take less memory (default: 1)");
}

void add_seeds_option(CLI::App& command, TrainRequest& r) {
  add_count(command, "--seeds", r.seeds,
            "Number of trainings, with consecutive seeds; prints the mean and its 95 % confidence interval "
            "(default: "
            "1)",
            kMostSeeds);
}

void add_data_options(CLI::App& command, TrainRequest& r) {
  command.add_option("--data", r.data, "Folder with the data set (default: synthetic images)");
  command.add_option_function<std::string>(
      "--dataset",
      [&r](const std::string& name) {
        r.dataset = name;
        r.spiking = usual_settings(name);
      },
      fmt::format(
          "Data set in --data or TESSERA_DATA: {} (default: the one that is there); for spiking networks: {} "
          "(default: {})",
          fmt::join(kImageSets, ", "), fmt::join(recording_sets(), ", "), recording_sets().front()));
  add_count(command, "--images", r.images,
            "Number of synthetic images for training, with a quarter as many for testing (default: 8000)",
            kMostImages);
}

}  // namespace

bool is_sweep(const TrainRequest& r) { return r.batches.size() > 1 || r.seeds > 1; }

TrainRequest one_of(const TrainRequest& r, uint32_t batch, uint32_t number) {
  TrainRequest one = r;
  one.batches = {batch};
  one.seeds = 1;
  one.settings.batch = batch;
  one.settings.seed = r.settings.seed + number;
  if (r.checkpoint.empty()) return one;
  const std::filesystem::path file = r.checkpoint;
  one.checkpoint = (file.parent_path() / fmt::format("{}-batch{}-seed{}{}", file.stem().string(), batch,
                                                     one.settings.seed, file.extension().string()))
                       .string();
  return one;
}

std::vector<TrainRequest> trainings_of(const TrainRequest& r) {
  std::vector<TrainRequest> trainings;
  for (uint32_t batch : r.batches)
    for (uint32_t i = 0; i < r.seeds; ++i) trainings.push_back(one_of(r, batch, i));
  return trainings;
}

void set_defaults(TrainRequest& r, const CLI::App& command) {
  if (r.is_spiking) return set_spiking_defaults(r, command);
  TrainingSettings& s = r.settings;
  s.batch = r.batches.front();
  const bool best = s.recipe == Recipe::best && (train::is_structured(s) || command.count("--recipe") != 0);
  if (best && command.count("--optimizer") == 0) s.optimizer = OptimizerKind::adam;
}

void add_train_options(CLI::App& command, TrainRequest& request) {
  add_network_options(command, request);
  add_optimizer_options(command, request.settings, "default: momentum, and adam for structured layers");
  add_batch_options(command, request);
  add_seeds_option(command, request);
  add_data_options(command, request);
  add_run_options(
      command, request,
      "Write a checkpoint after each epoch, and when interrupted (.safetensors); several trainings "
      "write one each, with batch and seed in its name");
  add_host_io_option(command, request.settings.host_io);
  add_spiking_options(command, request);
}

void check(const TrainRequest& r, const CLI::App& command) {
  const TrainingSettings& s = r.settings;
  const auto refuse_unless = [&](bool holds, std::initializer_list<const char*> options, const char* what) {
    cli::refuse_unless(command, holds, options, what);
  };
  const bool is_pixelfly = s.kind == LayerKind::pixelfly;
  refuse_unless(train::is_sparse(s), {"--density"}, "--kind static or dynamic");
  refuse_unless(train::is_sparse(s) || is_pixelfly || s.kind == LayerKind::block_butterfly, {"--block"},
                "--kind static, dynamic, block-butterfly or pixelfly");
  refuse_unless(is_pixelfly, {"--butterfly"}, "--kind pixelfly");
  refuse_unless(is_pixelfly || s.kind == LayerKind::low_rank, {"--rank"}, "--kind low-rank or pixelfly");
  refuse_unless(!train::is_sparse(s), {"--recipe"}, "--kind dense, butterfly and other structures");
  refuse_unless(train::is_structured(s), {"--form"}, "--kind butterfly and other structures");
  refuse_unless(s.kind == LayerKind::dynamic_sparse, {"--schedule", "--change", "--every", "--until"},
                "--kind dynamic");
  refuse_unless(s.drop_grow.kind != DropGrowKind::none, {"--change", "--every", "--until"},
                "--schedule set or rigl");
  check_optimizer_options(s, command);
  check_run_options(r, command);
  for (const CLI::Option* option : command.get_options())
    if (option->get_group() == kSpikingGroup)
      refuse_unless(r.is_spiking, {option->get_name().c_str()}, "--kind spiking");
  if (r.is_spiking) {
    check_spiking(r, command);
  } else if (!r.dataset.empty() && std::ranges::find(kImageSets, r.dataset) == std::end(kImageSets)) {
    throw invalid_value(
        "--dataset", r.dataset,
        fmt::format("choose from {}, or others with --kind spiking", fmt::join(kImageSets, ", ")));
  }
  if (r.seeds - 1 > UINT64_MAX - s.seed)
    throw UsageError(fmt::format("{} consecutive seeds from {} on exceed the largest seed, {}", r.seeds,
                                 s.seed, UINT64_MAX));
  if (is_sweep(r) && r.estimate)
    throw UsageError(fmt::format("--estimate is for one training; leave out --estimate or {}",
                                 r.seeds > 1 ? "--seeds" : "all batches but one"));
  if (!r.data.empty() && command.count("--images") != 0)
    throw UsageError("--images is for synthetic images; leave out --images or --data");
  if (!r.print.empty() && is_sweep(r))
    throw UsageError("--print is for one training; leave out --print, or ask for one training");
  for (const TrainRequest& one : is_sweep(r) ? trainings_of(r) : std::vector{r}) {
    check_checkpoint(one);
    check_distinct({{"--checkpoint", one.checkpoint}, {"--report", one.report}});
  }
}

namespace {

/// Height and width of images with `inputs` pixels, as square as possible.
ImageShape shape_of(uint32_t inputs, uint32_t classes) {
  uint32_t height = 1;
  for (uint32_t side = 1; uint64_t{side} * side <= inputs; ++side)
    if (inputs % side == 0) height = side;
  return {height, inputs / height, classes};
}

ImageSplit read_images(TrainRequest& r) {
  const std::string folder = data_folder_of(r.dataset, r.data);
  r.settings.grey = r.dataset == "cifar-10-grey";
  return load_images(folder, r.settings.grey ? "cifar-10" : r.dataset);
}

}  // namespace

ImageSplit images_for(TrainRequest& r) {
  TrainingSettings& s = r.settings;
  if (r.data.empty() && r.dataset.empty()) {
    if (s.layers.size() < 2) throw UsageError("--layers takes at least two sizes, inputs and classes");
    train::check(s);  // before images, which may take long
    return synthetic_images(r.images, (r.images + 3) / 4, s.seed,
                            shape_of(s.layers.front(), s.layers.back()));
  }
  ImageSplit images = read_images(r);
  if (!r.layers_given) {
    s.layers.front() = static_cast<uint32_t>(s.grey ? images.train.image_size() / images.train.channels
                                                    : images.train.image_size());
    s.layers.back() = images.train.classes;
  }
  return images;
}

}  // namespace tessera::cli
