// Structured layers of N × N beside the dense products of MKL and oneDNN, in turns: forward, and forward with
// the gradients of input and parameters.
//
//   bench_structured [LAYER] [THREADS [N...]]
//
// LAYER is butterfly, circulant or fastfood; all of them by default. Without sizes, N goes from 32 to 4096.
// Times are the least of all calls. "dense" is the faster library. "bound" is the fraction of the peak rate
// of multiply-adds. A feature takes two of these in each factor of a butterfly, and four more backward; in
// each halving of a Hadamard transform it takes one (an addition), and of a real Fourier transform 1¼.
#include <fmt/format.h>
#include <tessera/structured.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "dense/contest.h"
#include "machine/host/measure.h"
#include "machine/model/machine.h"
#include "peers/peer.h"
#include "spmm/pinning.h"

namespace tessera::bench {
namespace {

/// A dense layer of a library, with its operands.
struct DenseLayer {
  SparseMatrix shape = {};
  std::vector<float> w, dw, x, dx, y, dy;
  std::vector<std::unique_ptr<PreparedProduct>> products;

  DenseLayer(Peer& peer, uint32_t n, uint32_t batch, bool with_gradients)
      : w(random_floats(size_t{n} * n, 1)),
        dw(with_gradients ? w.size() : 0),
        x(random_floats(size_t{n} * batch, 2)),
        dx(x.size()),
        y(x.size()),
        dy(random_floats(x.size(), 3)) {
    shape.pattern.rows = shape.pattern.cols = n;
    for (Task task : kProducts)
      if (task == Task::forward || with_gradients)
        products.push_back(peer.prepare({shape, w, batch, Layout::column_major, Type::f32, task}));
  }

  void run() {
    for (const auto& product : products) product->run({x.data(), dy.data(), y.data(), dx.data(), dw.data()});
  }
};

/// A structured layer, with its operands, which begin at cache lines.
struct StructuredLayer {
  StructuredProduct product;
  base::BufferVector<float> x, dx, y, dy;
  std::vector<base::BufferVector<float>> parameters, gradients;
  std::vector<const float*> read = {};
  std::vector<float*> written = {};

  StructuredLayer(const Structure& structure, uint32_t batch, bool transposed, unsigned threads)
      : product(structure, batch, {.transposed = transposed, .threads = threads}),
        x(random(size_t{batch} * inputs_of(structure), 1)),
        dx(x.size()),
        y(size_t{batch} * outputs_of(structure)),
        dy(random(y.size(), 2)) {
    for (const StructuredParameter& parameter : product.parameters()) {
      parameters.push_back(random(parameter.elements(), 3 + parameters.size()));
      gradients.emplace_back(parameter.elements());
    }
    for (const auto& parameter : parameters) read.push_back(parameter.data());
    for (auto& gradient : gradients) written.push_back(gradient.data());
  }

  void run(bool with_gradients) {
    product(x.data(), read, y.data());
    if (with_gradients) product.gradients(x.data(), dy.data(), read, dx.data(), written);
  }

 private:
  static base::BufferVector<float> random(size_t count, uint64_t seed) {
    const std::vector<float> floats = random_floats(count, seed);
    return {floats.begin(), floats.end()};
  }
};

Fastfood fastfood(uint32_t n) {
  Fastfood structure{n, n, std::vector<uint32_t>(n)};
  std::iota(structure.permutation.begin(), structure.permutation.end(), 0U);
  std::ranges::shuffle(structure.permutation, std::mt19937(7));
  return structure;
}

class Bench {
 public:
  explicit Bench(unsigned threads)
      : threads_(threads), pinning_(threads), peers_(load_peers({active_isa(), threads}, {"mkl", "onednn"})) {
    const machine::Machine machine = machine::host(threads);
    peak_ = machine::measure_peak_gflops(threads);
    fmt::print("{}, {} threads, {}, peak {:.0f} GFLOP/s\n", machine.facts.cpu, threads, name_of(active_isa()),
               peak_);
    for (const std::string& line : peers_.missing) fmt::print("without {}\n", line);
    fmt::print("{:<10} {:>5} {:>6} {:<17} {:>9} {:<7} {:>9} {:>8} {:>6} {:>11} {:>8} {:>6}\n", "layer", "N",
               "batch", "work", "dense us", "", "rows us", "speed-up", "bound", "columns us", "speed-up",
               "bound");
  }

  void butterfly(uint32_t n, uint32_t batch, bool with_gradients) {
    compete_with_dense(Butterfly{n, n}, n, batch, with_gradients, with_gradients ? 6 : 2);
  }
  void circulant(uint32_t n, uint32_t batch, bool with_gradients) {
    compete_with_dense(Circulant{n}, n, batch, with_gradients, 1.25 * (with_gradients ? 5 : 2));
  }
  void fastfood(uint32_t n, uint32_t batch, bool with_gradients) {
    compete_with_dense(bench::fastfood(n), n, batch, with_gradients, with_gradients ? 6 : 2);
  }

 private:
  /// `operations` counts the operations of a feature in each factor or halving.
  void compete_with_dense(const Structure& structure, uint32_t n, uint32_t batch, bool with_gradients,
                          double operations) {
    std::vector<Contestant> contestants;
    for (const auto& peer : peers_.loaded) {
      const auto layer = std::make_shared<DenseLayer>(*peer, n, batch, with_gradients);
      contestants.push_back({std::string(peer->name()), [layer] { layer->run(); }});
    }
    const std::string name(name_of(structure));
    for (bool transposed : {false, true}) {
      const auto layer = std::make_shared<StructuredLayer>(structure, batch, transposed, threads_);
      contestants.push_back({name, [layer, with_gradients] { layer->run(with_gradients); }});
    }
    compare(name, n, batch, with_gradients, operations * std::countr_zero(n) * (double{1} * n * batch),
            contestants);
  }

  /// The last two contestants are the layer, untransposed and transposed.
  void compare(const std::string& layer, uint32_t n, uint32_t batch, bool with_gradients, double operations,
               std::vector<Contestant>& contestants) {
    for (const Contestant& contestant : contestants) {
      contestant.run();
      pinning_.bind_new_threads();
    }
    compete(contestants);
    const auto best = std::min_element(contestants.begin(), contestants.end() - 2,
                                       [](const auto& a, const auto& b) { return a.least < b.least; });
    fmt::print("{:<10} {:>5} {:>6} {:<17} {:>9.1f} {:<7}", layer, n, batch,
               with_gradients ? "forward+gradients" : "forward", best->least * 1e6, best->name);
    const double bound = 2 * operations / (peak_ * 1e9);
    for (auto c = contestants.end() - 2; c != contestants.end(); ++c)
      fmt::print(" {:>9.1f} {:>8.1f} {:>6.2f}", c->least * 1e6, best->least / c->least, bound / c->least);
    fmt::print("\n");
  }

  unsigned threads_;
  Pinning pinning_;
  Peers peers_;
  double peak_ = 0;
};

void run(const std::string& layer, const std::vector<uint32_t>& numbers) {
  Bench bench(numbers.empty() ? machine::host().tiles : numbers[0]);
  std::vector<uint32_t> sizes = {32, 64, 128, 256, 512, 1024, 2048, 4096};
  if (numbers.size() > 1) sizes.assign(numbers.begin() + 1, numbers.end());
  const auto wants = [&](std::string_view name) { return layer.empty() || layer == name; };
  for (uint32_t n : sizes)
    for (uint32_t batch : {1U, 16U, 64U, 256U})
      for (bool with_gradients : {false, true}) {
        if (wants("butterfly")) bench.butterfly(n, batch, with_gradients);
        if (wants("circulant")) bench.circulant(n, batch, with_gradients);
        if (wants("fastfood")) bench.fastfood(n, batch, with_gradients);
      }
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) try {
  const bool has_layer = argc > 1 && std::isalpha(static_cast<unsigned char>(argv[1][0])) != 0;
  std::vector<uint32_t> numbers;
  for (int i = has_layer ? 2 : 1; i < argc; ++i)
    numbers.push_back(static_cast<uint32_t>(std::stoul(argv[i])));
  tessera::bench::run(has_layer ? argv[1] : "", numbers);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
