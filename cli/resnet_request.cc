#include "cli/resnet_request.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "cli/config.h"
#include "cli/option_parsing.h"
#include "cli/parse.h"
#include "io/atomic_file.h"
#include "train/resnet/settings.h"

namespace tessera::cli {
namespace {

constexpr const char* kCifar = "cifar-10";
constexpr const char* kSynthetic = "synthetic";
constexpr uint32_t kMostSyntheticImages = 10'000'000;
constexpr uint32_t kMostImageSize = 4096;
constexpr uint32_t kMostClasses = 65536;

/// The data set to train with; by default CIFAR-10 if a folder is given.
std::string dataset_of(const ResnetRequest& r) {
  return !r.dataset.empty() ? r.dataset : r.data.empty() ? kSynthetic : kCifar;
}

bool is_folder(const std::string& dataset) { return dataset != kCifar && dataset != kSynthetic; }

void add_resnet_network_options(CLI::App& command, ResnetTrainingSettings& s) {
  add_count(
      command, "--depth", s.depth,
      "Number of layers: 18, 34, 50, 101 or 152 for images of 224², 6n + 2 for images of 32² (default: 20)");
  add(command, "--shortcut", s.shortcut, graph::shortcut_named,
      "Shortcut of blocks that change sizes: projection, or padding, which has no parameters (default: "
      "projection, and padding for depths 6n + 2)");
  command.add_option("--numbers", s.numbers,
                     "Types, rounding and loss scale: fp32 (default), bf16, mlperf-v1, mlperf-v2 or "
                     "mlperf-slides");
  add_real(command, "--label-smoothing", s.label_smoothing,
           "Fraction of each target that is spread over all classes (default: 0)");
  add(command, "--density", s.density, single_density,
      "Density of all convolutions but the first; below 1 they are block-sparse (default: 1)");
  add_count(command, "--block", s.block_size,
            "Block size of sparse convolutions: 1, 4, 8, 16 or 32 (default: 16)");
  add_drop_grow_options(command, s.drop_grow, "sparse convolutions");
}

void add_resnet_data_options(CLI::App& command, ResnetRequest& r) {
  command.add_option("--data", r.data, "Folder with CIFAR-10 in its binary version");
  command.add_option(
      "--dataset", r.dataset,
      "Data set: cifar-10 (in --data or TESSERA_DATA), synthetic (default without --data), or a folder of "
      "JPEG files: CLASS/*.jpg, or train/CLASS/*.jpg and val/CLASS/*.jpg");
  add(
      command, "--images", r.images,
      [](const std::string& text) { return parse_count("--images", text, 1, kMostSyntheticImages); },
      "Number of synthetic images for training, with a quarter as many for testing (default: 8000, or 256 "
      "large images)");
  add_count(command, "--classes", r.classes,
            "Number of classes of synthetic images, at most 256 without --estimate (default: 10)",
            kMostClasses, 2);
  ResnetTrainingSettings& s = r.settings;
  add_count(
      command, "--size", s.size,
      "Height and width in pixels of synthetic images, and of images in files after scaling (default: 32 or "
      "224, depending on the depth)",
      kMostImageSize, 8);
  command.add_flag("--augment,!--no-augment", s.augment,
                   "Train with random crops and flips of images, which differ in each epoch (default)");
  add_count(command, "--padding", s.padding, "Pixels added around images before crops are taken (default: 4)",
            1024, 0);
  add_count(command, "--batch", s.batch, fmt::format("Number of images per step (default: {})", s.batch));
  add_placement_options(command, s, "blocks");
  add_count(
      command, "--replicas", s.replicas,
      "Number of replicas, on equal parts of the machine's chips or of the ranks of mpirun, among which a "
      "batch is divided (default: 1; with mpirun one for each rank)");
  add_rank_options(command, r.ranks);
  add_count(command, "--norm-replicas", s.norm_replicas,
            "Number of consecutive replicas whose images are normalised as one batch; 0: all (default: 1)",
            kMostCount, 0);
  add(
      command, "--steps", s.steps,
      [](const std::string& text) { return uint64_t{parse_count("--steps", text, 1)}; },
      "Number of steps (default: as --epochs says)");
}

void check_files_of_resnet(const ResnetRequest& r) {
  check_distinct({{"--checkpoint", r.checkpoint}, {"--report", r.report}, {"--save", r.save}});
  check_extension("--checkpoint", r.checkpoint, {".safetensors"});
  check_extension("--save", r.save, {".safetensors"});
  if (!r.save.empty()) io::require_writable(r.save);
  check_files(r);
  check_checkpoint(r);
}

}  // namespace

void add_resnet_options(CLI::App& command, ResnetRequest& r) {
  add_config_option(command, kResnetConfigs, r.configured);
  add_resnet_network_options(command, r.settings);
  add_optimizer_options(command, r.settings, "default: momentum");
  add_resnet_data_options(command, r);
  add_run_options(command, r, "Write a checkpoint after each epoch, and when interrupted (.safetensors)");
  add_host_io_option(command, r.settings.host_io);
  command.add_option("--save", r.save,
                     "Write the trained parameters with torchvision's names and shapes (.safetensors)");
}

void check(const ResnetRequest& r, const CLI::App& command) {
  const ResnetTrainingSettings& s = r.settings;
  train::check(s);
  const bool is_sparse = train::is_sparse(s);
  refuse_unless(command, is_sparse, {"--block", "--schedule", "--change", "--every", "--until"},
                "--density below 1");
  refuse_unless(command, s.drop_grow.kind != DropGrowKind::none, {"--change", "--every", "--until"},
                "--schedule set or rigl");
  refuse_unless(command, s.augment, {"--padding"}, "--augment");
  check_optimizer_options(s, command);
  check_run_options(r, command);
  check_sums(s);
  check_duration(command, r.configured);
  const std::string dataset = dataset_of(r);
  if (is_folder(dataset) && !std::filesystem::is_directory(dataset))
    throw invalid_value(
        "--dataset", dataset,
        fmt::format("choose from {}, {}, or a folder of JPEG files by class", kCifar, kSynthetic));
  for (const char* option : {"--images", "--classes"})
    if (!r.configured.contains(option))
      refuse_unless(command, dataset == kSynthetic, {option}, "--dataset synthetic");
  refuse_unless(command, dataset != kCifar, {"--size"}, "--dataset synthetic or a folder");
  refuse_unless(command, !is_folder(dataset), {"--padding"}, "--dataset cifar-10 or synthetic");
  if (is_folder(dataset) && !r.data.empty())
    throw UsageError("--dataset is a folder of images already; leave out --data");
  if (dataset == kSynthetic && !r.data.empty())
    throw UsageError(
        "--data is a folder of images, but --dataset asks for synthetic images; leave out one of them");
  if (r.estimate && !r.save.empty())
    throw UsageError("--estimate trains no parameters; leave out --estimate or --save");
  check_files_of_resnet(r);
}

std::variant<ImageSplit, ImageFolder, ImageOutline> images_for(const ResnetRequest& r) {
  const std::string dataset = dataset_of(r);
  if (is_folder(dataset)) return find_image_folder(dataset);
  if (dataset == kSynthetic) {
    constexpr uint32_t kColours = 3, kLargeSize = 64;
    const uint32_t size = train::size_of_images(r.settings);
    const uint32_t images = r.images.value_or(size > kLargeSize ? 256 : 8000), testing = (images + 3) / 4;
    const ImageShape shape{size, size, r.classes, kColours};
    if (r.estimate) return ImageOutline{"synthetic images", images, testing, shape};
    return synthetic_images(images, testing, r.settings.seed, shape);
  }
  return load_images(data_folder_of(kCifar, r.data), kCifar);
}

std::string network_of(const ResnetTrainingSettings& s) {
  std::string text = fmt::format("ResNet-{}", s.depth);
  if (s.shortcut) text += fmt::format(" with {} as shortcuts", name_of(*s.shortcut));
  if (!train::is_sparse(s))
    text += ", dense";
  else
    text += fmt::format(", {} of density {:.4g}, block size {}",
                        train::drops_and_grows(s) ? "dynamic" : "static", s.density, s.block_size);
  if (s.numbers != "fp32") text += fmt::format(", numbers {}", s.numbers);
  return text + fmt::format(", {}", name_of(s.optimizer));
}

}  // namespace tessera::cli
