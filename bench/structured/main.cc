// Structured layers of N × N beside the dense products of MKL and oneDNN, in turns: forward, and forward with
// the gradients of input and parameters.
//
//   bench_structured [LAYER] [THREADS [N...]]
//
// Of all layers, or of one: butterfly, circulant or fastfood. Without sizes, 32 to 4096. Times are the least
// of all calls. "dense" is the faster library; "bound" the fraction of the rate of multiply-adds, of which a
// feature takes two in each factor, and four more backward; in each halving of a Hadamard transform one (an
// addition), of a real Fourier transform 1¼.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dense/contest.h"
#include "machine/host/measure.h"
#include "machine/model/machine.h"
#include "peers/peer.h"
#include "spmm/pinning.h"
#include "structured/butterfly.h"
#include "structured/fourier.h"

namespace tessera::bench {
namespace {

/// A dense layer of a library, with its operands.
struct DenseLayer {
  SparseMatrix shape = {};
  std::vector<float> w, dw, x, dx, y, dy;
  std::vector<std::unique_ptr<Product>> products;

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
    const auto log_n = static_cast<uint32_t>(std::countr_zero(n));
    const double operations = (with_gradients ? 6.0 : 2.0) * n * log_n * batch;
    compete_with_dense("butterfly", n, batch, with_gradients, operations, [&](bool transposed) {
      return std::make_shared<ButterflyLayer>(
          kernels::ButterflyShape{.transposed = transposed, .log_n = log_n}, batch, threads_);
    });
  }

  void fourier(FourierLayer::Kind kind, uint32_t n, uint32_t batch, bool with_gradients) {
    const bool is_circulant = kind == FourierLayer::Kind::circulant;
    const double halvings = std::countr_zero(n) * (double{1} * n * batch);
    const double operations =
        (is_circulant ? 1.25 : 1) * (with_gradients ? (is_circulant ? 5 : 6) : 2) * halvings;
    compete_with_dense(is_circulant ? "circulant" : "fastfood", n, batch, with_gradients, operations,
                       [&](bool transposed) {
                         return std::make_shared<FourierLayer>(kind, n, batch, transposed, threads_);
                       });
  }

 private:
  /// make(transposed) is the layer.
  template <class Make>
  void compete_with_dense(const std::string& name, uint32_t n, uint32_t batch, bool with_gradients,
                          double operations, const Make& make) {
    std::vector<Contestant> contestants;
    for (const auto& peer : peers_.loaded) {
      const auto layer = std::make_shared<DenseLayer>(*peer, n, batch, with_gradients);
      contestants.push_back({std::string(peer->name()), [layer] { layer->run(); }});
    }
    for (bool transposed : {false, true})
      contestants.push_back({name, [layer = make(transposed), with_gradients] {
                               layer->forward();
                               if (with_gradients) layer->gradients();
                             }});
    compare(name, n, batch, with_gradients, operations, contestants);
  }

  /// The last two contestants are the layer, of either order.
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
        if (wants("circulant")) bench.fourier(FourierLayer::Kind::circulant, n, batch, with_gradients);
        if (wants("fastfood")) bench.fourier(FourierLayer::Kind::fastfood, n, batch, with_gradients);
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
