#include "kernels/host/butterfly/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

using enum Type;

/// The fixed properties of a sample; its scale determines N.
struct Use {
  uint32_t samples = 1;
  ButterflyShape shape = {};
  bool rectangular = false;  ///< fewer inputs than N, and results that end within a stack
  bool has_dx = true;
  bool has_dtwiddle = true;
};

/// At scale 128, N = 1024; at 2, 16 and 11, 128.
uint32_t log_n_of(uint32_t scale) {
  uint32_t log_n = 0;
  while (scale > 0 && (1U << log_n) < 8 * scale) ++log_n;
  return log_n;
}

/// Outputs are sums that at most double with each factor, but rarely do.
Tolerance tolerance_of(const ButterflyShape& s, double terms) {
  return {.relative = 1e-4, .absolute = 8 * (s.factors() + terms) * s.parts() * epsilon_of(f32)};
}

class Maker {
 public:
  Maker(const Use& use, uint32_t scale, uint64_t seed) : use_(use), shape_(use.shape), seed_(seed) {
    shape_.log_n = log_n_of(scale);
    in_ = shape_.n();
    out_ = shape_.stacks * shape_.n();
    if (use.rectangular && shape_.log_n > 2) {
      in_ -= in_ / 5;
      out_ -= shape_.n() / 3;
    }
  }

  Sample forward() {
    Sample s(butterfly_forward_codelet);
    batch(s, in_, true);
    twiddle(s, true);
    batch(s, out_, false);
    return finish(s, butterfly_forward_scratch(shape_, use_.samples), 1, 0);
  }
  Sample gradients() {
    Sample s(butterfly_gradients_codelet);
    batch(s, in_, true);
    batch(s, out_, true);
    twiddle(s, true);
    batch(s, use_.has_dx ? in_ : 0, false);
    twiddle(s, false);
    return finish(s, butterfly_gradients_scratch(shape_, use_.samples), use_.has_dtwiddle ? 3 : 1,
                  use_.samples * (shape_.tied ? shape_.n() : 1));
  }

 private:
  void batch(Sample& s, uint32_t features, bool given) {
    const uint32_t numbers = features * shape_.parts();
    given ? s.batch(use_.samples, numbers, shape_.transposed, seed_++)
          : s.unset_batch(use_.samples, numbers, shape_.transposed);
  }
  void twiddle(Sample& s, bool given) {
    const uint32_t rows = given || use_.has_dtwiddle ? shape_.twiddle_rows() : 0;
    // Results keep about the size of the inputs.
    given ? s.random(f32, rows, shape_.twiddle_cols(), seed_++, shape_.complex ? 0.85F : 1.2F)
          : s.unset(f32, rows, shape_.twiddle_cols());
    s.packed();
  }
  Sample finish(Sample& s, size_t scratch, double products, double terms) {
    s.scratch(scratch);
    for (uint32_t param : {uint32_t{shape_.transposed}, shape_.stacks, shape_.blocks, shape_.log_n,
                           uint32_t{shape_.tied}, uint32_t{shape_.complex}, uint32_t{shape_.decreasing}})
      s.param(param);
    const double numbers = double{1} * shape_.n() * shape_.parts() * shape_.parts();
    return s.tolerance(tolerance_of(shape_, terms))
        .flops(products * 4 * numbers * shape_.stacks * shape_.factors() * use_.samples);
  }

  Use use_;
  ButterflyShape shape_;
  uint64_t seed_;
  uint32_t in_, out_;
};

constexpr ButterflyShape kDecreasing{.decreasing = true};
constexpr ButterflyShape kTransposed{.transposed = true};
constexpr ButterflyShape kTied{.tied = true};
constexpr ButterflyShape kTiedDecreasing{.transposed = true, .tied = true, .decreasing = true};
constexpr ButterflyShape kComplex{.complex = true};
constexpr ButterflyShape kComplexTied{.transposed = true, .tied = true, .complex = true, .decreasing = true};
constexpr ButterflyShape kStacks{.stacks = 3};
constexpr ButterflyShape kBlocks{.stacks = 2, .blocks = 3, .decreasing = true};
constexpr ButterflyShape kComplexBlocks{.transposed = true, .stacks = 2, .blocks = 2, .complex = true};

template <Use use>
Sample forward(uint32_t scale, uint64_t seed) {
  return Maker(use, scale, seed).forward();
}
template <Use use>
Sample gradients(uint32_t scale, uint64_t seed) {
  return Maker(use, scale, seed).gradients();
}

constexpr NamedSample butterfly_forward_uses[] = {
    {"n1", forward<Use{1, {}}>},
    {"n1-decreasing-cut", forward<Use{1, kDecreasing, true}>},
    {"n3-cut", forward<Use{3, kStacks, true}>},
    {"n32", forward<Use{32, {}}>},
    {"n32-transposed", forward<Use{32, kTransposed}>},
    {"n37-decreasing-cut", forward<Use{37, kDecreasing, true}>},
    {"n37-transposed-cut", forward<Use{37, kTransposed, true}>},
    {"n1-tied", forward<Use{1, kTied}>},
    {"n21-tied", forward<Use{21, kTied, true}>},
    {"n16-tied-decreasing", forward<Use{16, kTiedDecreasing}>},
    {"n1-complex", forward<Use{1, kComplex}>},
    {"n17-complex-cut", forward<Use{17, kComplex, true}>},
    {"n5-complex-tied", forward<Use{5, kComplexTied}>},
    {"n19-blocks", forward<Use{19, kBlocks, true}>},
    {"n18-complex-blocks", forward<Use{18, kComplexBlocks, true}>},
};

constexpr NamedSample butterfly_gradients_uses[] = {
    {"n1", gradients<Use{1, {}}>},
    {"n3-cut", gradients<Use{3, kStacks, true}>},
    {"n32", gradients<Use{32, {}}>},
    {"n32-transposed", gradients<Use{32, kTransposed}>},
    {"n32-dx", gradients<Use{32, {}, false, true, false}>},
    {"n32-dtwiddle", gradients<Use{32, kDecreasing, false, false, true}>},
    {"n71-decreasing-cut", gradients<Use{71, kDecreasing, true}>},
    {"n150-transposed-cut", gradients<Use{150, kTransposed, true}>},
    {"n21-tied", gradients<Use{21, kTied, true}>},
    {"n70-tied-decreasing", gradients<Use{70, kTiedDecreasing}>},
    {"n17-complex-cut", gradients<Use{17, kComplex, true}>},
    {"n17-complex-dx", gradients<Use{17, kComplex, true, true, false}>},
    {"n5-complex-tied", gradients<Use{5, kComplexTied}>},
    {"n19-blocks", gradients<Use{19, kBlocks, true}>},
    {"n18-complex-blocks", gradients<Use{18, kComplexBlocks, true}>},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(butterfly, TESSERA_BUTTERFLY_CODELETS)

}  // namespace tessera::kernels
