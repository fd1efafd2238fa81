// Tessera itself, through its public interface.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/spmm.h>

#include <utility>

#include "peers/registry.h"

namespace tessera::bench {
namespace {

class TesseraProduct : public Product {
 public:
  TesseraProduct(Weight weight, uint32_t n, const SpmmOptions& options)
      : weight_(std::move(weight)), product_(weight_, n, options) {}

  void run(const float* x, float* y) override { product_(x, y); }
  uint64_t weight_bytes() const override { return weight_.bytes(); }
  double predicted_seconds() const override { return product_.predicted_seconds(); }
  std::string plan() const override { return product_.plan(); }

 private:
  Weight weight_;
  Spmm product_;
};

class TesseraPeer : public Peer {
 public:
  TesseraPeer(const Limits& limits, bool dense) : limits_(limits), dense_(dense) {
    restrict_isa(limits.isa);
  }

  std::string_view name() const override { return dense_ ? "tessera-dense" : "tessera"; }
  Kind kind() const override { return dense_ ? Kind::tessera_dense : Kind::tessera; }
  std::string version() const override {
    return fmt::format("Tessera, {} on {} threads", name_of(active_isa()), limits_.threads);
  }

  std::string why_not(const Work& work) const override {
    if (!dense_ || work.type == Type::f32) return {};
    return "compared in FP32 only";
  }

  std::unique_ptr<Product> prepare(const Work& work) override {
    SpmmOptions options;
    options.x_layout = options.y_layout = work.layout;
    options.threads = limits_.threads;
    return std::make_unique<TesseraProduct>(weight_of(work), work.n, options);
  }

 private:
  Weight weight_of(const Work& work) const {
    if (!dense_) return Weight(work.weights, work.type);
    return Weight::dense(row_major(work.dense.data(), work.k()), work.m(), work.k());
  }

  Limits limits_;
  bool dense_;
};

}  // namespace

std::unique_ptr<Peer> tessera_sparse(const Limits& limits) {
  return std::make_unique<TesseraPeer>(limits, /*dense=*/false);
}
std::unique_ptr<Peer> tessera_dense(const Limits& limits) {
  return std::make_unique<TesseraPeer>(limits, /*dense=*/true);
}

}  // namespace tessera::bench
