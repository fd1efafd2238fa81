// Trains a network with dense hidden layers, and with dynamic block-sparse ones (RigL), by the library's own
// training loop; `tessera train` has more settings.
//   example_sparse_training [--data FOLDER] [--epochs 5] [--density 0.1]
// Images are MNIST or CIFAR-10 from the folder, or synthetic.
#include <tessera/training.h>

#include <cstdio>
#include <string>

#include "arguments.h"

namespace {

void train(const char* name, const tessera::TrainingSettings& settings, const tessera::ImageSplit& images) {
  tessera::Trainer trainer(settings, images, tessera::Machine::host());
  const tessera::TrainingResult result =
      trainer.train({.progress = [&](const tessera::TrainingProgress& now) {
        if (now.finished != nullptr)
          std::printf("%s: epoch %u, loss %.4f, validation accuracy %.2f %%\n", name, now.finished->epoch,
                      now.finished->loss, 100 * now.finished->validation_accuracy);
        return true;
      }});
  std::printf("%s: test accuracy %.2f %%, %.3f ms per step, %llu parameters\n", name,
              100 * result.test_accuracy.value(), 1e3 * result.step_seconds,
              static_cast<unsigned long long>(trainer.parameters()));
}

int run(const example::Arguments& arguments) {
  const std::string data = arguments.text("--data");
  tessera::TrainingSettings settings;
  settings.epochs = arguments.count("--epochs", 5);
  settings.density = arguments.fraction("--density", settings.density);
  const tessera::ImageSplit images =
      data.empty() ? tessera::synthetic_images(4000, 1000, 1) : tessera::load_images(data);
  settings.layers = {static_cast<uint32_t>(images.train.image_size()), 1024, 1024, images.train.classes};
  settings.lr = 0.005;
  train("dense", settings, images);
  settings.kind = tessera::LayerKind::dynamic_sparse;
  train("sparse", settings, images);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run({.program = "example_sparse_training",
                       .options = {{"--data", "FOLDER"}, {"--epochs", "COUNT"}, {"--density", "FRACTION"}}},
                      argc, argv, run);
}
