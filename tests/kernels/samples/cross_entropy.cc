#include "kernels/common/element.h"
#include "kernels/samples/list.h"
#include "kernels/tile/cross_entropy/codelet.h"

namespace tessera::kernels {
namespace {

constexpr float kRange = 6;

/// The second third of the classes of columns.
struct Sizes {
  uint32_t columns, rows, first, classes;

  explicit Sizes(uint32_t scale)
      : columns(7 * scale), rows(scale == 0 ? 0 : 3 + 4 * scale), first(rows), classes(3 * rows) {}
};

class CrossEntropySample {
 public:
  CrossEntropySample(const program::Codelet& codelet, uint32_t scale, bool in_rows)
      : of_(scale), in_rows_(in_rows), sample_(codelet) {}

  CrossEntropySample& logits(Type type, uint64_t seed) {
    sample_.random(type, in_rows_ ? of_.rows : of_.columns, in_rows_ ? of_.columns : of_.rows, seed, kRange);
    return *this;
  }
  /// Labels of these and of other classes, and some beyond all classes.
  CrossEntropySample& labels() {
    const uint64_t known = of_.classes + 2;
    return row(Type::u32, [known](uint64_t i) { return static_cast<double>(i * 7 % known); });
  }
  /// Every third weight is 0.
  CrossEntropySample& weights() {
    return row(Type::f32, [](uint64_t i) { return 0.25 * static_cast<double>(i % 3); });
  }
  CrossEntropySample& terms(uint32_t parts) {
    sample_.values(Type::f32, kCrossEntropyTerms * parts, of_.columns,
                   [](uint64_t i) { return 1 + static_cast<double>(i % 5); });
    return *this;
  }
  CrossEntropySample& unset_terms() {
    sample_.unset(Type::f32, kCrossEntropyTerms, of_.columns);
    return *this;
  }
  CrossEntropySample& unset_row() {
    sample_.unset(Type::f32, in_rows_ ? 1 : of_.columns, in_rows_ ? of_.columns : 1);
    return *this;
  }
  CrossEntropySample& unset_logits(Type type) {
    sample_.unset(type, in_rows_ ? of_.rows : of_.columns, in_rows_ ? of_.columns : of_.rows);
    return *this;
  }
  Sample& orientation() { return sample_.param(in_rows_ ? 1 : 0); }
  Sample& sample() { return sample_; }
  const Sizes& sizes() const { return of_; }

 private:
  CrossEntropySample& row(Type type, const std::function<double(uint64_t)>& value_at) {
    sample_.values(type, in_rows_ ? 1 : of_.columns, in_rows_ ? of_.columns : 1, value_at);
    return *this;
  }

  Sizes of_;
  bool in_rows_;
  Sample sample_;
};

template <Type type, bool in_rows>
Sample terms_sample(uint32_t scale, uint64_t seed) {
  CrossEntropySample s(class_terms_codelet, scale, in_rows);
  return s.logits(type, seed).labels().unset_terms().orientation().param(s.sizes().first);
}

Sample join_sample(uint32_t scale, uint64_t) {
  CrossEntropySample s(join_class_terms_codelet, scale, true);
  return s.terms(scale == 0 ? 0 : 2 + scale).unset_terms().sample();
}

template <bool in_rows>
Sample loss_sample(uint32_t scale, uint64_t) {
  CrossEntropySample s(class_loss_codelet, scale, in_rows);
  return s.terms(1).labels().weights().unset_row().orientation().param(s.sizes().classes);
}

template <Type type, bool in_rows>
Sample gradient_sample(uint32_t scale, uint64_t seed) {
  CrossEntropySample s(class_gradient_codelet, scale, in_rows);
  s.logits(type, seed).labels().weights().terms(1).unset_logits(type);
  return s.orientation().param(s.sizes().classes).param(s.sizes().first);
}

constexpr NamedSample class_terms_uses[] = {{"f32", terms_sample<Type::f32, true>},
                                            {"f16-classes-in-columns", terms_sample<Type::f16, false>}};
constexpr NamedSample join_class_terms_uses[] = {{"f32", join_sample}};
constexpr NamedSample class_loss_uses[] = {{"f32", loss_sample<true>},
                                           {"f32-classes-in-columns", loss_sample<false>}};
constexpr NamedSample class_gradient_uses[] = {{"f32", gradient_sample<Type::f32, true>},
                                               {"f16-classes-in-columns", gradient_sample<Type::f16, false>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(cross_entropy, TESSERA_CROSS_ENTROPY_CODELETS)

}  // namespace tessera::kernels
