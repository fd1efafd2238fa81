// Fastfood layers of single samples, on vectors along the features.
#if defined(TESSERA_FASTFOOD_LINE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_FASTFOOD_LINE_INL_H_
#undef TESSERA_FASTFOOD_LINE_INL_H_
#else
#define TESSERA_FASTFOOD_LINE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/host/fastfood/hadamard-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::fastfood {
namespace hn = hwy::HWY_NAMESPACE;

// The transform of the lanes of a vector.
class LaneHadamard {
 public:
  LaneHadamard() {
    for (size_t stage = 0; stage < 4; ++stage) {
      float signs[kLanes];
      for (size_t i = 0; i < kLanes; ++i) signs[i] = (i >> stage) % 2 == 0 ? 1.0F : -1.0F;
      signs_[stage] = hn::LoadU(Floats(), signs);
    }
  }

  HWY_INLINE Lane operator()(Lane v) const {
    v = hn::MulAdd(v, signs_[0], hn::Shuffle2301(v));
    v = hn::MulAdd(v, signs_[1], hn::Shuffle1032(v));
    if constexpr (kLanes >= 8) v = hn::MulAdd(v, signs_[2], hn::SwapAdjacentBlocks(v));
    if constexpr (kLanes >= 16) v = hn::MulAdd(v, signs_[3], hn::ConcatLowerUpper(Floats(), v, v));
    return v;
  }

 private:
  Lane signs_[4];
};

// The transform of a line of `size` features, at least a column's: source(i) is the vector of features from i
// on, and sink(i, v) takes the result's vector. Each column holds kColumnLanes neighbours.
template <class Source, class Sink>
void transform_line(uint32_t size, const Columns& columns, const Source& source, const Sink& sink) {
  constexpr size_t kVectors = kColumnLanes / kLanes;
  transform(
      size / kColumnLanes,
      [&](size_t p, size_t place) HWY_ATTR { return source(p * kColumnLanes + place % kColumnLanes); },
      columns, columns);
  const LaneHadamard in_lanes;
  for (size_t i = 0; i < size; i += kColumnLanes) {
    Lane v[kVectors];
#pragma GCC unroll 4
    for (size_t k = 0; k < kVectors; ++k) v[k] = columns(0, column_of(i / kColumnLanes) + k * kLanes);
    hadamard<kVectors>(v);
#pragma GCC unroll 4
    for (size_t k = 0; k < kVectors; ++k) sink(i + k * kLanes, in_lanes(v[k]));
  }
}

HWY_INLINE Lane load_at(const float* line, size_t i) { return hn::LoadU(Floats(), line + i); }
HWY_INLINE void store_at(Lane v, float* line, size_t i) { hn::StoreU(v, Floats(), line + i); }
HWY_INLINE void add_at(Lane v, float* line, size_t i) { store_at(hn::Add(load_at(line, i), v), line, i); }

// Vectors of v[permutation[i]].
HWY_INLINE Lane gather_at(const float* line, const uint32_t* permutation, size_t i) {
  const hn::RebindToSigned<Floats> d;
  return hn::GatherIndex(Floats(), line, hn::LoadU(d, reinterpret_cast<const int32_t*>(permutation) + i));
}

// One product of one sample. Parameters are arrays, and so are their gradients, which are added to unless
// they are null.
struct LineStack {
  const float *s, *g, *b;
  const uint32_t* permutation;
  uint32_t size;
  Lane scale;  // scale of both transforms
  Columns work;

  // Computes H·B·x without the factor N^(−½).
  void first(const float* x, float* to) const {
    transform_line(
        size, work, [&](size_t i) HWY_ATTR { return hn::Mul(load_at(b, i), load_at(x, i)); },
        [&](size_t i, Lane v) HWY_ATTR { store_at(v, to, i); });
  }
  // Applies H·G·Π to the result of first().
  template <class Sink>
  void second(const float* first, const Sink& sink) const {
    transform_line(
        size, work,
        [&](size_t i)
            HWY_ATTR { return hn::Mul(hn::Mul(scale, load_at(g, i)), gather_at(first, permutation, i)); },
        sink);
  }

  void forward(const float* x, float* first_line, float* y) const {
    first(x, first_line);
    second(first_line, [&](size_t i, Lane v) HWY_ATTR { store_at(hn::Mul(load_at(s, i), v), y, i); });
  }

  // Adds to dx, and to the other gradients that are not null. `first_line` and `other` are scratch lines.
  void gradients(const float* x, const float* dy, float* dx, float* ds, float* dg, float* db,
                 float* first_line, float* other) const {
    if (ds != nullptr || dg != nullptr) first(x, first_line);
    if (ds != nullptr)
      second(first_line, [&](size_t i, Lane v) HWY_ATTR { add_at(hn::Mul(load_at(dy, i), v), ds, i); });
    transform_line(
        size, work, [&](size_t i) HWY_ATTR { return hn::Mul(load_at(s, i), load_at(dy, i)); },
        [&](size_t i, Lane v) HWY_ATTR {
          const Lane scaled = hn::Mul(scale, v);
          if (dg != nullptr) add_at(hn::Mul(scaled, gather_at(first_line, permutation, i)), dg, i);
          store_at(hn::Mul(load_at(g, i), scaled), other, i);
        });
    for (size_t i = 0; i < size; ++i) first_line[permutation[i]] = other[i];
    transform_line(
        size, work, [&](size_t i) HWY_ATTR { return load_at(first_line, i); },
        [&](size_t i, Lane v) HWY_ATTR {
          if (db != nullptr) add_at(hn::Mul(v, load_at(x, i)), db, i);
          add_at(hn::Mul(load_at(b, i), v), dx, i);
        });
  }
};

}  // namespace tessera::kernels::HWY_NAMESPACE::fastfood
HWY_AFTER_NAMESPACE();
#endif
