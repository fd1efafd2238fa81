// The slice of a batch that a vertex of a fastfood layer processes.
#if defined(TESSERA_FASTFOOD_VERTEX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_FASTFOOD_VERTEX_INL_H_
#undef TESSERA_FASTFOOD_VERTEX_INL_H_
#else
#define TESSERA_FASTFOOD_VERTEX_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/common/element.h"
#include "kernels/host/fastfood/codelet.h"
#include "kernels/host/fastfood/hadamard-inl.h"
#include "kernels/host/fastfood/layout.h"
#include "kernels/host/fastfood/line-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::fastfood {
namespace hn = hwy::HWY_NAMESPACE;

using program::FieldView;

// A row of a matrix of parameters.
template <class T>
struct Row {
  T* data;
  int64_t stride;

  Row(const FieldView& of, uint32_t row) : data(of.as<T>() + row * of.row_stride), stride(of.col_stride) {}
  T& operator[](size_t i) const { return data[static_cast<int64_t>(i) * stride]; }
};

struct Stack {
  Row<const float> s, g, b;
  Row<const uint32_t> permutation;
};

class FastfoodVertex {
 public:
  FastfoodVertex(const program::Vertex& v, uint32_t size, float* scratch, bool gradients)
      : transposed_(v.params[fastfood_param::transposed] != 0),
        size_(size),
        scale_(1 / static_cast<float>(size)),
        layout_(size, gradients),
        scratch_(scratch) {}

 protected:
  Columns columns(size_t offset) const { return {scratch_ + offset}; }
  static HWY_INLINE Lane all(float value) { return hn::Set(Floats(), value); }
  Samples samples(const FieldView& field) const { return samples_of(field, transposed_); }

  // Whether the samples of a tile are processed one by one; rows of parameters are arrays then.
  bool is_few(const LaneTile& tile, std::span<const FieldView> parameters) const {
    return fastfood_has_lines(size_) && tile.count <= kFewFastfoodSamples &&
           std::ranges::all_of(parameters, [](const FieldView& f) { return f.empty() || f.col_stride == 1; });
  }
  LineStack line_stack(const Stack& of, size_t work) const {
    return {of.s.data, of.g.data, of.b.data, of.permutation.data, size_, all(scale_), columns(work)};
  }

  // The position of another point's vector for the same lane.
  static HWY_INLINE size_t place_of(size_t point, size_t place) {
    return column_of(point) + place % kColumnLanes;
  }

  static HWY_INLINE Lane at(const Columns& columns, size_t point, size_t place) {
    return columns(point, place_of(point, place));
  }

  // Computes H·B·x without its factor, which is applied with g.
  void first_transform(const Stack& stack, const Columns& x, const Columns& to) const {
    transform(
        size_, [&](size_t p, size_t place) HWY_ATTR { return hn::Mul(all(stack.b[p]), x(p, place)); }, to,
        to);
  }
  // Applies H·G·Π to the first transform.
  template <class Sink>
  void second_transform(const Stack& stack, const Columns& first, const Columns& to, const Sink& sink) const {
    transform(
        size_,
        [&](size_t p, size_t place)
            HWY_ATTR { return hn::Mul(all(scale_ * stack.g[p]), at(first, stack.permutation[p], place)); },
        to, sink);
  }

  const bool transposed_;
  const uint32_t size_;
  const float scale_;
  const FastfoodScratch layout_;
  float* scratch_;
};

class FastfoodForward : FastfoodVertex {
 public:
  explicit FastfoodForward(const program::Vertex& v)
      : FastfoodVertex(v, v.fields[fastfood_forward_field::s].cols,
                       v.fields[fastfood_forward_field::scratch].as<float>(), false),
        v_(v) {}

  void run() const {
    using namespace fastfood_forward_field;
    const Samples in = samples(v_.fields[x]), out = samples(v_.fields[y]);
    const Columns first = columns(layout_.first), second = columns(layout_.second);
    each_lane_tile(in.count, [&](const LaneTile& tile) HWY_ATTR {
      if (is_few(tile, v_.fields.subspan(s, permutation - s + 1))) {
        for (uint32_t i = 0; i < tile.count; ++i) one_sample(in, out, tile.begin + i);
        return;
      }
      load_columns(in, tile, size_, columns(layout_.x).data);
      for (uint32_t row = 0; row < v_.fields[s].rows; ++row) {
        const Samples part = features_from(out, row * size_, size_);
        if (part.features == 0) break;
        const Stack stack = stack_of(row);
        first_transform(stack, columns(layout_.x), first);
        second_transform(stack, first, second, [&](size_t p, size_t place, Lane v) HWY_ATTR {
          second(p, place, hn::Mul(all(stack.s[p]), v));
        });
        store_columns(second.data, tile, part);
      }
    });
  }

 private:
  Stack stack_of(uint32_t row) const {
    using namespace fastfood_forward_field;
    return {{v_.fields[s], row}, {v_.fields[g], row}, {v_.fields[b], row}, {v_.fields[permutation], row}};
  }

  void one_sample(const Samples& in, const Samples& out, uint32_t sample) const {
    float *x = scratch_ + layout_.x, *first = scratch_ + layout_.first;
    load_line(in, sample, size_, x);
    for (uint32_t row = 0; row < v_.fields[fastfood_forward_field::s].rows; ++row) {
      const Samples part = features_from(out, row * size_, size_);
      if (part.features == 0) break;
      line_stack(stack_of(row), layout_.second).forward(x, first, first);
      store_line(first, sample, part);
    }
  }

  const program::Vertex& v_;
};

class FastfoodGradients : FastfoodVertex {
 public:
  explicit FastfoodGradients(const program::Vertex& v)
      : FastfoodVertex(v, v.fields[fastfood_gradients_field::s].cols,
                       v.fields[fastfood_gradients_field::scratch].as<float>(), true),
        v_(v) {}

  void run() const {
    using namespace fastfood_gradients_field;
    for (size_t field : {ds, dg, db}) clear(v_.fields[field]);
    const Samples gradient = samples(v_.fields[dy]), dx_out = samples(v_.fields[dx]);
    each_lane_tile(gradient.count, [&](const LaneTile& tile) HWY_ATTR {
      if (is_few(tile, v_.fields.subspan(s, permutation - s + 1)) &&
          is_few(tile, v_.fields.subspan(ds, db - ds + 1))) {
        for (uint32_t i = 0; i < tile.count; ++i) one_sample(gradient, dx_out, tile.begin + i);
        return;
      }
      if (reads_x()) load_columns(samples(v_.fields[x]), tile, size_, columns(layout_.x).data);
      std::fill_n(columns(layout_.dx).data, v_.fields[dx].empty() ? 0 : floats_of_columns(size_), 0.0F);
      for (uint32_t row = 0; row < v_.fields[s].rows; ++row) {
        const Samples part = features_from(gradient, row * size_, size_);
        if (part.features == 0) break;
        load_columns(part, tile, size_, columns(layout_.dy).data);
        one_stack(row);
      }
      if (!v_.fields[dx].empty()) store_columns(columns(layout_.dx).data, tile, dx_out);
    });
  }

 private:
  bool wants(size_t field) const { return !v_.fields[field].empty(); }
  bool reads_x() const {
    using namespace fastfood_gradients_field;
    return wants(ds) || wants(dg) || wants(db);
  }

  Stack stack_of(uint32_t row) const {
    using namespace fastfood_gradients_field;
    return {{v_.fields[s], row}, {v_.fields[g], row}, {v_.fields[b], row}, {v_.fields[permutation], row}};
  }

  void one_sample(const Samples& gradient, const Samples& out, uint32_t sample) const {
    using namespace fastfood_gradients_field;
    float *x_line = scratch_ + layout_.x, *dx_line = scratch_ + layout_.dx;
    float *first = scratch_ + layout_.first, *dy_line = scratch_ + layout_.dy;
    // The columns of one sample take less than half of the second columns.
    float* other = scratch_ + layout_.second + floats_of_columns(size_ / kColumnLanes);
    if (reads_x()) load_line(samples(v_.fields[x]), sample, size_, x_line);
    std::fill_n(dx_line, size_, 0.0F);
    for (uint32_t row = 0; row < v_.fields[s].rows; ++row) {
      const Samples part = features_from(gradient, row * size_, size_);
      if (part.features == 0) break;
      load_line(part, sample, size_, dy_line);
      const auto to = [&](size_t field) {
        return wants(field) ? Row<float>(v_.fields[field], row).data : nullptr;
      };
      line_stack(stack_of(row), layout_.second)
          .gradients(x_line, dy_line, dx_line, to(ds), to(dg), to(db), first, other);
    }
    if (wants(dx)) store_line(dx_line, sample, out);
  }

  // Adds the gradients of one stack, whose dy is in the columns at layout_.dy.
  void one_stack(uint32_t row) const {
    using namespace fastfood_gradients_field;
    const Stack stack = stack_of(row);
    const Columns x = columns(layout_.x), first = columns(layout_.first), second = columns(layout_.second);
    const Columns gradient = columns(layout_.dy), dx_columns = columns(layout_.dx);
    if (wants(ds) || wants(dg)) first_transform(stack, x, first);
    if (wants(ds)) {
      second_transform(stack, first, second, [&](size_t p, size_t place, Lane v) HWY_ATTR {
        second(p, place, hn::Mul(v, gradient(p, place)));
      });
      add_totals(v_.fields[ds], row, 1);
    }
    if (!wants(dg) && !wants(db) && !wants(dx)) return;
    // Gradients of the first transform's results replace these results.
    const bool wants_dg = wants(dg);
    transform(
        size_, [&](size_t p, size_t place) HWY_ATTR { return hn::Mul(all(stack.s[p]), gradient(p, place)); },
        second,
        [&](size_t p, size_t place, Lane v) HWY_ATTR {
          const size_t from = stack.permutation[p];
          if (wants_dg) second(p, place, hn::Mul(v, at(first, from, place)));
          first(from, place_of(from, place), hn::Mul(all(scale_ * stack.g[p]), v));
        });
    if (wants_dg) add_totals(v_.fields[dg], row, scale_);
    if (!wants(db) && !wants(dx)) return;
    const bool wants_db = wants(db), wants_dx = wants(dx);
    transform(size_, first, first, [&](size_t p, size_t place, Lane v) HWY_ATTR {
      if (wants_db) second(p, place, hn::Mul(v, x(p, place)));
      if (wants_dx) dx_columns(p, place, hn::MulAdd(all(stack.b[p]), v, dx_columns(p, place)));
    });
    if (wants_db) add_totals(v_.fields[db], row, 1);
  }

  // Adds the lanes of the second columns.
  void add_totals(const FieldView& field, uint32_t row, float factor) const {
    float* totals = scratch_ + layout_.totals;
    std::fill_n(totals, size_, 0.0F);
    add_lane_totals(columns(layout_.second).data, size_, totals);
    const Row<float> to(field, row);
    for (size_t i = 0; i < size_; ++i) to[i] += factor * totals[i];
  }

  const program::Vertex& v_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::fastfood
HWY_AFTER_NAMESPACE();
#endif
