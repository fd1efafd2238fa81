// Trains a network whose two hidden layers have dynamic block-sparse weights, and the same network
// with dense ones, by SGD with momentum. Periodically the weakest blocks are dropped and as many
// grown where the dense gradient is largest (RigL).
//   example_sparse_training [--data FOLDER] [--set mnist|cifar-10] [--hidden 1024] [--block 16]
//                           [--sparsity 0.9] [--epochs 20] [--batch 256] [--rate 0.05] [--seed 1]
// Without --data it uses the folder TESSERA_DATA, and without that synthetic images.
#include <tessera/error.h>
#include <tessera/io.h>
#include <tessera/sddmm.h>
#include <tessera/spmm.h>
#include <tessera/training.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

using tessera::Activation;
using tessera::Weight;

struct Settings {
  std::string data;
  std::string set;
  uint32_t hidden = 1024;
  uint32_t block = 16;
  double sparsity = 0.9;
  uint32_t epochs = 20;
  uint32_t batch = 256;
  float rate = 0.05F;
  float momentum = 0.9F;
  float decay = 5e-4F;
  double drop = 0.2;  // fraction of the blocks that the first update replaces; decays to 0 as a cosine
  uint32_t update_every = 50;  // steps
  uint64_t seed = 1;
};

// One layer: Y = W·X + bias with ReLU or without, a column an image. The weight, its gradient and its
// momentum are arrays in one order, the packed one, so that the optimizer walks all three.
class Layer {
 public:
  Layer(Weight weight, uint32_t batch, Activation activation)
      : weight_(std::move(weight)),
        forward_(weight_, batch, {.activation = activation, .bias = true}),
        backward_(weight_, batch, {.transpose = true}),
        gradient_(weight_, batch),
        dw_(weight_.packed_size()),
        velocity_(weight_.packed_size()),
        bias_(weight_.rows()),
        bias_velocity_(weight_.rows()),
        y_(size_t{weight_.rows()} * batch),
        dy_(y_.size()),
        batch_(batch),
        relu_(activation == Activation::relu) {}

  const std::vector<float>& forward(const std::vector<float>& x) {
    forward_({.x = x.data(), .y = y_.data(), .bias = bias_.data()});
    return y_;
  }

  // Takes dY from dy(); writes dX if the layer below needs it.
  void backward(const std::vector<float>& x, std::vector<float>* dx) {
    if (relu_)
      for (size_t i = 0; i < dy_.size(); ++i) dy_[i] = y_[i] > 0 ? dy_[i] : 0.0F;
    gradient_({.dy = dy_.data(), .x = x.data(), .dw = dw_.data()});
    if (dx != nullptr) backward_(dy_.data(), dx->data());
  }

  void step(const Settings& s, float rate) {
    const std::span<float> w = weight_.packed_values();
    for (size_t i = 0; i < w.size(); ++i) {
      velocity_[i] = s.momentum * velocity_[i] + dw_[i] + s.decay * w[i];
      w[i] -= rate * velocity_[i];
    }
    for (size_t r = 0; r < bias_.size(); ++r) {
      const float sum = std::reduce(&dy_[r * batch_], &dy_[r * batch_] + batch_);
      bias_velocity_[r] = s.momentum * bias_velocity_[r] + sum;
      bias_[r] -= rate * bias_velocity_[r];
    }
  }

  // Drops the weakest blocks and grows as many where the dense gradient is largest; momentum follows.
  void drop_and_grow(double share, const std::vector<float>& x) {
    if (!weight_.is_dynamic()) return;
    const uint32_t m = weight_.rows(), k = weight_.cols();
    if (dense_ == nullptr) {
      const std::vector<float> zeros(size_t{m} * k);
      dense_ = std::make_unique<Weight>(Weight::dense({zeros.data(), k}, m, k));
      dense_gradient_ = std::make_unique<tessera::Sddmm>(*dense_, batch_);
    }
    std::vector<float> packed(dense_->packed_size()), dense(size_t{m} * k);
    (*dense_gradient_)({.dy = dy_.data(), .x = x.data(), .dw = packed.data()});
    dense_->unpack(packed, dense);
    const auto count = static_cast<uint64_t>(share * static_cast<double>(weight_.pattern().blocks()));
    const auto grow = tessera::strongest_empty_blocks(weight_, count, {dense.data(), k});
    const auto drop = tessera::weakest_blocks(weight_, grow.size());
    weight_.replace(drop, grow).apply(velocity_);
  }

  std::vector<float>& dy() { return dy_; }
  const Weight& weight() const { return weight_; }

 private:
  Weight weight_;
  tessera::Spmm forward_, backward_;
  tessera::Sddmm gradient_;
  std::unique_ptr<Weight> dense_;  // its pattern serves the dense gradient
  std::unique_ptr<tessera::Sddmm> dense_gradient_;
  std::vector<float> dw_, velocity_, bias_, bias_velocity_, y_, dy_;
  uint32_t batch_;
  bool relu_;
};

// Normal values whose variance preserves the magnitude of ReLU activations (He et al. 2015), by the actual
// number of inputs of a row.
void initialise(std::vector<float>& values, double inputs, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0.0F, static_cast<float>(std::sqrt(2.0 / inputs)));
  for (float& value : values) value = normal(random);
}

Weight make_weight(uint32_t m, uint32_t k, double density, uint32_t block, std::mt19937_64& random) {
  if (density >= 1) {
    std::vector<float> values(size_t{m} * k);
    initialise(values, k, random);
    return Weight::dense({values.data(), k}, m, k);
  }
  tessera::SparseMatrix matrix =
      tessera::generate({.rows = m, .cols = k, .density = density, .block_size = block, .seed = random()});
  initialise(matrix.values, density * k, random);
  return Weight::dynamic(matrix, matrix.pattern.blocks());
}

class Network {
 public:
  Network(const tessera::ImageSet& images, const Settings& s, double density)
      : settings_(s), random_(s.seed) {
    const auto inputs = static_cast<uint32_t>(images.image_size());
    layers_.emplace_back(make_weight(s.hidden, inputs, density, s.block, random_), s.batch, Activation::relu);
    layers_.emplace_back(make_weight(s.hidden, s.hidden, density, s.block, random_), s.batch,
                         Activation::relu);
    layers_.emplace_back(make_weight(images.classes, s.hidden, 1, 1, random_), s.batch, Activation::none);
  }

  const std::vector<float>& forward(const std::vector<float>& x) {
    const std::vector<float>* y = &x;
    for (Layer& layer : layers_) y = &layer.forward(*y);
    return *y;
  }

  // Softmax and cross-entropy: dY of the last layer, and the mean loss.
  double loss(const std::vector<float>& scores, const std::vector<uint8_t>& labels) {
    const size_t batch = labels.size(), classes = scores.size() / batch;
    std::vector<float>& dy = layers_.back().dy();
    double total = 0;
    for (size_t j = 0; j < batch; ++j) {
      float most = scores[j], sum = 0;
      for (size_t c = 1; c < classes; ++c) most = std::max(most, scores[c * batch + j]);
      for (size_t c = 0; c < classes; ++c) sum += dy[c * batch + j] = std::exp(scores[c * batch + j] - most);
      total -= std::log(dy[labels[j] * batch + j] / sum);
      for (size_t c = 0; c < classes; ++c)
        dy[c * batch + j] =
            (dy[c * batch + j] / sum - (c == labels[j] ? 1.0F : 0.0F)) / static_cast<float>(batch);
    }
    return total / static_cast<double>(batch);
  }

  // One step on a batch, with a fraction of blocks to replace, or 0.
  double step(const std::vector<float>& x, const std::vector<uint8_t>& labels, float rate,
              double drop_fraction) {
    activations_ = {&x};
    for (Layer& layer : layers_) activations_.push_back(&layer.forward(*activations_.back()));
    const double mean = loss(*activations_.back(), labels);
    for (size_t i = layers_.size(); i-- > 0;)
      layers_[i].backward(*activations_[i], i == 0 ? nullptr : &layers_[i - 1].dy());
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].step(settings_, rate);
      if (drop_fraction > 0) layers_[i].drop_and_grow(drop_fraction, *activations_[i]);
    }
    return mean;
  }

 private:
  const Settings& settings_;
  std::mt19937_64 random_;
  std::vector<Layer> layers_;
  std::vector<const std::vector<float>*> activations_;
};

// Images [first, first + batch) of an order, a column an image, pixels to about -1 to 1.
void load_batch(const tessera::ImageSet& set, const std::vector<uint32_t>& order, size_t first,
                std::vector<float>& x, std::vector<uint8_t>& labels) {
  for (size_t j = 0; j < labels.size(); ++j) {
    const uint32_t i = order[(first + j) % order.size()];
    const auto pixels = set.image(i);
    for (size_t p = 0; p < pixels.size(); ++p)
      x[p * labels.size() + j] = static_cast<float>(pixels[p]) / 127.5F - 1.0F;
    labels[j] = set.labels[i];
  }
}

double accuracy(Network& network, const tessera::ImageSet& set, uint32_t batch) {
  std::vector<uint32_t> order(set.count());
  std::iota(order.begin(), order.end(), 0U);
  std::vector<float> x(set.image_size() * batch);
  std::vector<uint8_t> labels(batch);
  size_t right = 0;
  for (size_t first = 0; first < set.count(); first += batch) {
    load_batch(set, order, first, x, labels);
    const std::vector<float>& scores = network.forward(x);
    for (size_t j = 0; j < std::min<size_t>(batch, set.count() - first); ++j) {
      size_t best = 0;
      for (size_t c = 1; c < set.classes; ++c)
        if (scores[c * batch + j] > scores[best * batch + j]) best = c;
      right += best == labels[j];
    }
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(set.count());
}

struct Outcome {
  double accuracy = 0;
  double step_ms = 0;  // median of steps that replace no blocks
};

Outcome train(const tessera::ImageSplit& images, const Settings& s, double density, const char* name) {
  Network network(images.train, s, density);
  std::mt19937_64 random(s.seed + 1);
  std::vector<uint32_t> order(images.train.count());
  std::iota(order.begin(), order.end(), 0U);
  std::vector<float> x(images.train.image_size() * s.batch);
  std::vector<uint8_t> labels(s.batch);
  std::vector<double> times;
  const size_t steps_an_epoch = std::max<size_t>(1, order.size() / s.batch),
               steps = steps_an_epoch * s.epochs;
  double loss = 0;
  for (size_t step = 0; step < steps; ++step) {
    if (step % steps_an_epoch == 0) std::shuffle(order.begin(), order.end(), random);
    load_batch(images.train, order, step % steps_an_epoch * s.batch, x, labels);
    const double cosine =
        0.5 + 0.5 * std::cos(3.14159265 * static_cast<double>(step) / static_cast<double>(steps));
    const bool exchanges = step > 0 && step % s.update_every == 0 && step < steps * 3 / 4;
    const auto start = std::chrono::steady_clock::now();
    loss = network.step(x, labels, s.rate * static_cast<float>(cosine), exchanges ? s.drop * cosine : 0);
    if (!exchanges)
      times.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  const Outcome outcome{accuracy(network, images.test, s.batch), times[times.size() / 2]};
  std::printf("%-8s test accuracy %6.2f %%, final loss %.4f, %.3f ms per step\n", name, outcome.accuracy,
              loss, outcome.step_ms);
  std::fflush(stdout);
  return outcome;
}

Settings parse(int argc, char** argv) {
  Settings s;
  if (const char* data = std::getenv("TESSERA_DATA")) s.data = data;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    if (i + 1 == argc) throw tessera::UsageError(std::string(option) + " needs a value");
    const char* value = argv[i + 1];
    const auto number = [&](double least, double most) {
      char* end = nullptr;
      const double parsed = std::strtod(value, &end);
      if (end == value || *end != '\0' || !(parsed >= least && parsed <= most))
        throw tessera::UsageError(std::string(option) + " " + value + ": a number from " +
                                  std::to_string(least) + " to " + std::to_string(most) + " is required");
      return parsed;
    };
    if (option == "--data")
      s.data = value;
    else if (option == "--set")
      s.set = value;
    else if (option == "--hidden")
      s.hidden = static_cast<uint32_t>(number(16, 65536));
    else if (option == "--block")
      s.block = static_cast<uint32_t>(number(1, 32));
    else if (option == "--sparsity")
      s.sparsity = number(0, 0.999);
    else if (option == "--epochs")
      s.epochs = static_cast<uint32_t>(number(1, 10000));
    else if (option == "--batch")
      s.batch = static_cast<uint32_t>(number(1, 65536));
    else if (option == "--rate")
      s.rate = static_cast<float>(number(0, 10));
    else if (option == "--seed")
      s.seed = static_cast<uint64_t>(number(0, 1e15));
    else
      throw tessera::UsageError("unknown option " + std::string(option) +
                                "; the comment at the beginning of this file lists them");
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) try {
  const Settings s = parse(argc, argv);
  const tessera::ImageSplit images =
      s.data.empty() ? tessera::synthetic_images(8000, 2000, s.seed) : tessera::load_images(s.data, s.set);
  std::printf("%s: %zu training and %zu test images; hidden layers of %u, blocks of %u, %.0f %% sparse\n",
              images.name.c_str(), images.train.count(), images.test.count(), s.hidden, s.block,
              100 * s.sparsity);
  const Outcome dense = train(images, s, 1.0, "dense");
  const Outcome sparse = train(images, s, 1.0 - s.sparsity, "sparse");
  std::printf("sparse: %.2f percentage points from dense, speed-up of a step %.2f\n",
              sparse.accuracy - dense.accuracy, dense.step_ms / sparse.step_ms);
} catch (const tessera::UsageError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
