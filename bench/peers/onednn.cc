// oneDNN: its matmul primitive, W in the layout that it chooses, on its OpenMP threads.
#include <fmt/format.h>
#include <omp.h>
#include <tessera/error.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "peers/registry.h"

namespace tessera::bench {
namespace {

using Tag = dnnl::memory::format_tag;

dnnl::memory::desc matrix(int64_t rows, int64_t cols, Tag tag) {
  return {{rows, cols}, dnnl::memory::data_type::f32, tag};
}

/// The primitive for dst = src · weights with W on one side in any layout.
class DnnlProduct : public Product {
 public:
  DnnlProduct(const dnnl::engine& engine, const Work& work)
      : weights_first_(work.layout == Layout::row_major && work.n > 1), stream_(engine) {
    const int64_t m = work.m(), k = work.k(), n = work.n;
    // Column-major X and Y are the row-major arrays of the transposed product, Yᵀ = Xᵀ · Wᵀ.
    const auto description = weights_first_
                                 ? dnnl::matmul::desc(matrix(m, k, Tag::any), matrix(k, n, Tag::ab),
                                                      matrix(m, n, Tag::ab))
                                 : dnnl::matmul::desc(matrix(n, k, Tag::ab), matrix(k, m, Tag::any),
                                                      matrix(n, m, Tag::ab));
    const dnnl::matmul::primitive_desc primitive(description, engine);
    matmul_ = dnnl::matmul(primitive);
    const auto plain = weights_first_ ? matrix(m, k, Tag::ab) : matrix(k, m, Tag::ba);
    const auto chosen = weights_first_ ? primitive.src_desc() : primitive.weights_desc();
    dnnl::memory source(plain, engine, const_cast<float*>(work.dense.data()));
    w_ = dnnl::memory(chosen, engine);
    dnnl::reorder(source, w_).execute(stream_, source, w_);
    stream_.wait();
    x_ = dnnl::memory(weights_first_ ? primitive.weights_desc() : primitive.src_desc(), engine,
                      nullptr);
    y_ = dnnl::memory(primitive.dst_desc(), engine, nullptr);
  }

  void run(const float* x, float* y) override {
    x_.set_data_handle(const_cast<float*>(x));
    y_.set_data_handle(y);
    matmul_.execute(stream_, {{DNNL_ARG_SRC, weights_first_ ? w_ : x_},
                              {DNNL_ARG_WEIGHTS, weights_first_ ? x_ : w_},
                              {DNNL_ARG_DST, y_}});
    stream_.wait();
  }

  uint64_t weight_bytes() const override { return w_.get_desc().get_size(); }

 private:
  bool weights_first_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  dnnl::memory w_, x_, y_;
};

dnnl::cpu_isa highest(Isa isa) {
  switch (isa) {
    case Isa::avx512: return dnnl::cpu_isa::avx512_core;
    case Isa::avx2: return dnnl::cpu_isa::avx2;
    case Isa::generic: return dnnl::cpu_isa::sse41;
    default: return dnnl::cpu_isa::all;
  }
}

class OneDnn : public Peer {
 public:
  explicit OneDnn(const Limits& limits) {
    omp_set_num_threads(static_cast<int>(limits.threads));
    if (dnnl::set_max_cpu_isa(highest(limits.isa)) != dnnl::status::success)
      throw Error("its instruction set could not be restricted");
    engine_ = dnnl::engine(dnnl::engine::kind::cpu, 0);
  }

  std::string_view name() const override { return "onednn"; }
  Kind kind() const override { return Kind::dense; }

  std::string version() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}, OpenMP", version->major, version->minor, version->patch);
  }

  std::string why_not(const Work&) const override { return {}; }

  std::unique_ptr<Product> prepare(const Work& work) override {
    return std::make_unique<DnnlProduct>(engine_, work);
  }

 private:
  dnnl::engine engine_;
};

}  // namespace

std::unique_ptr<Peer> onednn(const Limits& limits) { return std::make_unique<OneDnn>(limits); }

}  // namespace tessera::bench
