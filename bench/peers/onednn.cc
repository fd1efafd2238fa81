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

/// dst = src · weights, as oneDNN names the operands of a matrix product.
struct Operands {
  dnnl::memory::desc src, weights, dst;
};

/// Column-major matrices are the row-major arrays of their transposes.
Tag tag_of(Layout layout) { return layout == Layout::row_major ? Tag::ab : Tag::ba; }

/// One product. W, if it takes part, is reordered to the layout that the library prefers.
class DnnlProduct : public PreparedProduct {
 public:
  DnnlProduct(const dnnl::engine& engine, const Work& work)
      : task_(work.task),
        pattern_(work.weights.pattern),
        // Column-major results come from the transposed product, with W as the second factor.
        weights_first_(work.layout == Layout::row_major && work.n > 1),
        stream_(engine) {
    const Operands asked = operands_of(work);
    const dnnl::matmul::primitive_desc primitive(dnnl::matmul::desc(asked.src, asked.weights, asked.dst),
                                                 engine);
    matmul_ = dnnl::matmul(primitive);
    src_ = dnnl::memory(primitive.src_desc(), engine, nullptr);
    weights_ = dnnl::memory(primitive.weights_desc(), engine, nullptr);
    dst_ = dnnl::memory(primitive.dst_desc(), engine, nullptr);
    if (task_ == Task::sddmm) return;
    dnnl::memory& w = weights_first_ ? src_ : weights_;
    dnnl::memory plain(plain_weights(work), engine, const_cast<float*>(work.dense.data()));
    w = dnnl::memory(w.get_desc(), engine);
    dnnl::reorder(plain, w).execute(stream_, plain, w);
    stream_.wait();
  }

  void run(const Arrays& a) override {
    switch (task_) {
      case Task::forward: return multiply(a.x, a.y);
      case Task::input_gradient: return multiply(a.dy, a.dx);
      default:
        src_.set_data_handle(const_cast<float*>(a.dy));
        weights_.set_data_handle(const_cast<float*>(a.x));
        dst_.set_data_handle(a.dw);
        execute();
    }
  }

  uint64_t weight_bytes() const override {
    return task_ == Task::sddmm ? 0 : (weights_first_ ? src_ : weights_).get_desc().get_size();
  }
  uint64_t gradient_size() const override {
    return task_ == Task::sddmm ? uint64_t{pattern_.rows} * pattern_.cols : 0;
  }
  void get_gradient(const float* dw, std::span<float> stored) const override {
    pick_gradient(pattern_, dw, stored);
  }

 private:
  Operands operands_of(const Work& work) const {
    const int64_t m = work.m(), k = work.k(), n = work.n;
    const Tag tag = tag_of(work.layout);
    if (task_ == Task::sddmm) {
      const Tag transposed = tag == Tag::ab ? Tag::ba : Tag::ab;
      return {matrix(m, n, tag), matrix(n, k, transposed), matrix(m, k, Tag::ab)};
    }
    const int64_t in = task_ == Task::forward ? k : m, out = m + k - in;
    if (weights_first_) return {matrix(out, in, Tag::any), matrix(in, n, Tag::ab), matrix(out, n, Tag::ab)};
    return {matrix(n, in, Tag::ab), matrix(in, out, Tag::any), matrix(n, out, Tag::ab)};
  }

  /// W (forward) or Wᵀ if it is the first operand, otherwise the second, in the caller's row-major W.
  dnnl::memory::desc plain_weights(const Work& work) const {
    const int64_t m = work.m(), k = work.k();
    const bool upright = weights_first_ == (task_ == Task::forward);
    return upright ? matrix(m, k, Tag::ab) : matrix(k, m, Tag::ba);
  }

  void multiply(const float* in, float* out) {
    (weights_first_ ? weights_ : src_).set_data_handle(const_cast<float*>(in));
    dst_.set_data_handle(out);
    execute();
  }

  void execute() {
    matmul_.execute(stream_, {{DNNL_ARG_SRC, src_}, {DNNL_ARG_WEIGHTS, weights_}, {DNNL_ARG_DST, dst_}});
    stream_.wait();
  }

  Task task_;
  const Pattern& pattern_;
  bool weights_first_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  dnnl::memory src_, weights_, dst_;
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

  std::unique_ptr<PreparedProduct> prepare(const Work& work) override {
    return std::make_unique<DnnlProduct>(engine_, work);
  }

 private:
  dnnl::engine engine_;
};

}  // namespace

std::unique_ptr<Peer> onednn(const Limits& limits) { return std::make_unique<OneDnn>(limits); }

}  // namespace tessera::bench
