#include "cli/train_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/option_parsing.h"
#include "cli/spiking_options.h"
#include "train/settings.h"

namespace tessera::cli {
namespace {

constexpr uint32_t kMostTiles = 4096;
constexpr uint32_t kMostImages = 10'000'000;
constexpr uint32_t kMostSeeds = 1000;
constexpr std::string_view kImageSets[] = {"cifar-10-grey", "cifar-10", "mnist"};

double density_of_layers(const std::string& text) {
  const std::vector<double> densities = parse_densities(text);
  if (densities.size() != 1)
    throw UsageError(fmt::format("--density takes one fraction, such as 1/16; '{}' are several", text));
  return densities[0];
}

void add_network_options(CLI::App& command, TrainRequest& r) {
  TrainingSettings& s = r.settings;
  command.add_option_function<std::string>(
      "--layers",
      [&r](const std::string& text) {
        r.settings.layers = parse_counts("--layers", text);
        r.layers_given = true;
      },
      "Sizes: inputs, hidden layers, classes (default: one hidden layer of 1024)");
  command.add_option_function<std::string>(
      "--kind",
      [&r](const std::string& text) {
        r.is_spiking = text == "spiking";
        if (!r.is_spiking) r.settings.kind = layer_kind_named(text);
      },
      "Hidden layers: dense, static (block-sparse, fixed pattern), dynamic (blocks are dropped and grown), "
      "butterfly, bpbp, block-butterfly, pixelfly, fastfood, circulant, low-rank or monarch; or spiking: "
      "a network of spiking neurons, of recordings");
  add(command, "--density", s.density, density_of_layers, "Density of sparse layers (default: 0.1)");
  add_count(command, "--block", s.block_size,
            "Their block size, and that of block-butterfly and pixelfly: 1, 4, 8, 16 or 32 (default: 16)");
  add_count(command, "--butterfly", s.butterfly_size,
            "Pixelfly's butterfly size, a power of two (default: 16)");
  add_count(command, "--rank", s.rank,
            "Rank of low-rank layers, and of pixelfly's low-rank part (default: 1)");
  add(command, "--recipe", s.recipe, recipe_named,
      "Of dense and structured layers: paper (initial values, standardisation and optimizer as published), "
      "or best (initial values and learning rates for each factor, Adam; default of structured ones)");
  add(command, "--form", s.form, graph::form_named,
      "Of structured layers: fused (default), or unfused (one after another, as the operations of "
      "plain PyTorch)");
  command.add_option("--activation", s.activation, "relu, gelu, tanh, sigmoid or none");
  add_real(command, "--dropout", s.dropout, "Fraction that dropout zeroes after each hidden layer");
  add(command, "--schedule", s.drop_grow.kind, drop_grow_named,
      "How dynamic layers change: none, set (grow at random) or rigl (by gradient, default)");
  add_real(command, "--change", s.drop_grow.change,
           "Fraction of the blocks that is replaced first; decays as a cosine (default: 0.3)");
  add_count(command, "--every", s.drop_grow.every, "Steps between replacements (default: 100)");
  add_real(command, "--until", s.drop_grow.until,
           "Fraction of all steps after which patterns stay (default: 0.75)");
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

graph::Betas parse_betas(const std::string& text) {
  const std::vector<std::string> betas = parse_names(text);
  if (betas.size() != 2)
    throw UsageError(
        fmt::format("--betas takes two numbers, such as 0.9,0.999; '{}' are {}", text, betas.size()));
  return {parse_real("--betas", betas[0]), parse_real("--betas", betas[1])};
}

void add_optimizer_options(CLI::App& command, TrainRequest& r) {
  TrainingSettings& s = r.settings;
  add(command, "--optimizer", s.optimizer, optimizer_named,
      "sgd, momentum (default), nesterov, adam (default of structured layers), adamw, lamb or lars");
  add_real(command, "--momentum", s.momentum, "Of momentum, nesterov and lars (default: 0.9)");
  add(command, "--betas", s.betas, parse_betas, "Of adam, adamw and lamb (default: 0.9,0.999)");
  command.add_flag("--bias-correction,!--no-bias-correction", s.bias_correction,
                   "Of these, the correction of the moments' bias (default)");
  add_real(command, "--trust-coefficient", s.trust_coefficient, "Of lars (default: 0.001)");
  add_real(command, "--decay", s.weight_decay, "Weight decay; with adamw and lamb decoupled");
  add(
      command, "--exclude", s.excluded, [](const std::string& text) { return parse_names(text); },
      "Parameters without weight decay and trust ratio: names, in which * stands for any characters");
  add_real(command, "--lr", s.lr, "Learning rate (default: 0.001)");
  add(command, "--lr-schedule", s.lr_schedule.kind, graph::schedule_named,
      "How it falls until the last step: constant (default), linear, polynomial or cosine");
  add_count(command, "--warmup", s.lr_schedule.warmup, "First steps, in which it rises linearly from 0");
  add_real(command, "--lr-power", s.lr_schedule.power, "Exponent of polynomial (default: 1)");
  add_real(command, "--lr-end", s.lr_schedule.end, "Fraction of it at the end (default: 0)");
  add_real(command, "--clip-norm", s.clip_norm, "Scale gradients to at most this norm");
  add(command, "--batch", r.batches, parse_batches,
      "Images of a step (default: 50); several, separated by commas, are trained with one after the other");
  add_count(command, "--micro-batches", s.micro_batches,
            "Divide a batch into so many, which take less memory");
  add_count(command, "--epochs", s.epochs, "Passes over the training images (default: 15)");
  add_seed(command, "--seed", s.seed, "Seed of all random choices");
}

void add_seeds_option(CLI::App& command, TrainRequest& r) {
  add_count(
      command, "--seeds", r.seeds,
      "Train so often with consecutive seeds; prints the mean and its 95 % confidence interval (default: 1)",
      kMostSeeds);
}

void add_place_options(CLI::App& command, TrainRequest& r) {
  command.add_option("--data", r.data, "Folder with images (default: synthetic ones)");
  command.add_option_function<std::string>(
      "--dataset",
      [&r](const std::string& name) {
        r.dataset = name;
        r.spiking = usual_settings(name);
      },
      fmt::format("{}, from --data or TESSERA_DATA (default: what is there); spiking: {} (default: {})",
                  fmt::join(kImageSets, ", "), fmt::join(recording_sets(), ", "), recording_sets().front()));
  add_count(command, "--images", r.images,
            "Synthetic images, and a quarter as many for testing (default: 8000)", kMostImages);
  command.add_option("--machine", r.machine,
                     "host, gc2, gc200, bow, m2000, pod16, pod64, or a machine's .toml file");
  add_count(command, "--tiles", r.tiles, "The host's tiles, on which bits depend (default: --threads)",
            kMostTiles);
  command.add_option("--checkpoint", r.checkpoint,
                     "Write a checkpoint after each epoch, and when interrupted (.safetensors); of several "
                     "trainings one each, with batch and seed in its name");
  command.add_flag("--resume", r.resume, "Continue from the checkpoint if there is one");
  command.add_flag("--allow-different-bits", r.allow_different_bits,
                   "Resume on another machine, number of tiles or instruction set too");
  command.add_flag("--estimate", r.estimate, "Only show what a step takes: memory, and time by operation");
  command.add_option("--print", r.print, "Also show: passes (from the graph of a step to its program)")
      ->check(CLI::IsMember({"passes"}));
  command.add_option("--report", r.report, "Write a page with loss, accuracy, memory and time (.html)");
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
  add_optimizer_options(command, request);
  add_seeds_option(command, request);
  add_place_options(command, request);
  add_spiking_options(command, request);
}

void check(const TrainRequest& r, const CLI::App& command) {
  const TrainingSettings& s = r.settings;
  const auto refuse_unless = [&](bool holds, std::initializer_list<const char*> options, const char* what) {
    for (const char* option : options)
      if (!holds && command.count(option) != 0)
        throw UsageError(fmt::format("{} is for {}; add that, or leave it out", option, what));
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
  refuse_unless(train::has_momentum(s.optimizer), {"--momentum"}, "--optimizer momentum, nesterov or lars");
  refuse_unless(train::has_moments(s.optimizer), {"--betas", "--bias-correction"},
                "--optimizer adam, adamw or lamb");
  refuse_unless(s.optimizer == OptimizerKind::lars, {"--trust-coefficient"}, "--optimizer lars");
  refuse_unless(s.lr_schedule.kind != graph::ScheduleKind::constant, {"--lr-end"},
                "--lr-schedule linear, polynomial or cosine");
  refuse_unless(s.lr_schedule.kind == graph::ScheduleKind::polynomial, {"--lr-power"},
                "--lr-schedule polynomial");
  refuse_unless(r.machine == "host", {"--tiles"}, "--machine host");
  for (const CLI::Option* option : command.get_options())
    if (option->get_group() == kSpikingGroup)
      refuse_unless(r.is_spiking, {option->get_name().c_str()}, "--kind spiking");
  if (r.is_spiking) {
    check_spiking(r, command);
  } else if (!r.dataset.empty() && std::ranges::find(kImageSets, r.dataset) == std::end(kImageSets)) {
    throw UsageError(fmt::format("--dataset {} is none of images; there are {}{}", r.dataset,
                                 fmt::join(kImageSets, ", "), ", and with --kind spiking others"));
  }
  refuse_unless(!r.checkpoint.empty(), {"--resume"}, "--checkpoint FILE");
  refuse_unless(r.resume, {"--allow-different-bits"}, "--resume");
  if (r.seeds - 1 > UINT64_MAX - s.seed)
    throw UsageError(
        fmt::format("{} consecutive seeds from {} on pass the largest, {}", r.seeds, s.seed, UINT64_MAX));
  if (is_sweep(r) && r.estimate)
    throw UsageError(fmt::format("--estimate is for one training; leave out it or {}",
                                 r.seeds > 1 ? "--seeds" : "further batches"));
  if (!r.data.empty() && command.count("--images") != 0)
    throw UsageError("--images is for synthetic images; leave out it or --data");
  if (!r.print.empty() && (r.json || is_sweep(r)))
    throw UsageError(fmt::format("--print is for people, and for one training; leave out it or {}",
                                 r.json ? "--json" : "some of the trainings"));
  if (r.estimate && !r.checkpoint.empty())
    throw UsageError("--estimate runs no step to write in a checkpoint; leave out one of them");
  if (r.checkpoint.empty() || r.resume) return;
  for (const TrainRequest& one : is_sweep(r) ? trainings_of(r) : std::vector{r})
    if (std::filesystem::exists(one.checkpoint))
      throw UsageError(
          fmt::format("{} exists: add --resume to continue from it, or remove it", one.checkpoint));
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
  const std::string folder = data_folder(r.data);
  if (folder.empty())
    throw UsageError(
        fmt::format("--dataset {} needs its folder: pass --data FOLDER, or set TESSERA_DATA", r.dataset));
  r.settings.grey = r.dataset == "cifar-10-grey";
  return load_images(folder, r.settings.grey ? "cifar-10" : r.dataset);
}

}  // namespace

ImageSplit images_for(TrainRequest& r) {
  TrainingSettings& s = r.settings;
  if (r.data.empty() && r.dataset.empty()) {
    if (s.layers.size() < 2) throw UsageError("--layers takes at least two sizes, inputs and classes");
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

Machine machine_for(const TrainRequest& r) {
  if (r.machine == "host") return Machine::host(r.tiles != 0 ? r.tiles : r.threads);
  return Machine::find(r.machine);
}

}  // namespace tessera::cli
