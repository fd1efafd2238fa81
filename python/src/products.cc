// Products with a weight: Y = W·X, Y = Wᵀ·X, and dW = dY·Xᵀ at the weight's pattern.
#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <tessera/error.h>
#include <tessera/spmm.h>

#include <cstddef>
#include <string>

#include "arrays.h"
#include "base/on_demand.h"
#include "bindings.h"

namespace tessera::python {
namespace {

using Released = nb::call_guard<nb::gil_scoped_release>;

using namespace nb::literals;

/// The number of the product for a pair of memory orders.
uint64_t by_layout(Layout first, Layout second) {
  return static_cast<uint64_t>(first) * 2 + static_cast<uint64_t>(second);
}

Layout layout_of(bool is_column_major) { return is_column_major ? Layout::column_major : Layout::row_major; }

const Weight& weight_of(nb::handle weight) {
  if (!nb::isinstance<Weight>(weight))
    type_error(fmt::format("weight must be a tessera.Weight, not {}; prepack it first",
                           nb::type_name(weight.type()).c_str()));
  return nb::cast<const Weight&>(weight);
}

uint32_t columns_of(nb::handle n) { return static_cast<uint32_t>(whole_number(n, "n")); }

uint32_t threads_of(nb::handle threads) {
  return static_cast<uint32_t>(whole_number(threads, "threads", 0, kMostThreads));
}

/// A matrix at an address.
Operand matrix_at(uintptr_t address, int64_t leading, bool is_column_major) {
  return {pointer<float>(address), layout_of(is_column_major), leading};
}

/// plan() and predicted_seconds(), by the memory orders of two operands.
template <class Planned>
void bind_plans(nb::class_<Planned>& product, const char* first, const char* second) {
  product
      .def(
          "plan",
          [](const Planned& p, bool a, bool b) { return p.planned(layout_of(a), layout_of(b)).plan(); },
          nb::arg(first) = false, nb::arg(second) = false, Released())
      .def(
          "predicted_seconds",
          [](const Planned& p, bool a, bool b) {
            return p.planned(layout_of(a), layout_of(b)).predicted_seconds();
          },
          nb::arg(first) = false, nb::arg(second) = false, Released());
}

/// Y = W·X or Wᵀ·X for n columns, whatever the memory order of X and Y.
class SpmmProduct {
 public:
  SpmmProduct(nb::handle weight, nb::object n, bool transpose, bool bias, const std::string& activation,
              nb::object threads)
      : weight_(weight_of(weight)), n_(columns_of(n)) {
    options_.activation = activation_named(activation);
    options_.bias = bias;
    options_.transpose = transpose;
    options_.threads = threads_of(threads);
  }

  uint32_t rows() const { return options_.transpose ? weight_.cols() : weight_.rows(); }   ///< of Y
  uint32_t depth() const { return options_.transpose ? weight_.rows() : weight_.cols(); }  ///< rows of X
  uint32_t columns() const { return n_; }

  const Spmm& planned(Layout x, Layout y) const {
    return planned_.at(by_layout(x, y), [&] {
      SpmmOptions options = options_;
      options.x_layout = x;
      options.y_layout = y;
      return Spmm(weight_, n_, options);
    });
  }

  void run(uintptr_t x, int64_t x_leading, bool x_column_major, uintptr_t y, int64_t y_leading,
           bool y_column_major, uintptr_t bias, float alpha, float beta, uintptr_t values) const {
    multiply(matrix_at(x, x_leading, x_column_major), matrix_at(y, y_leading, y_column_major),
             pointer<const float>(bias), alpha, beta, pointer<const void>(values));
  }

  nb::object call_for_new(nb::object x, std::nullptr_t, nb::object bias, float alpha, float beta) const {
    return call(x, nb::none(), bias, alpha, beta);
  }

  nb::object call(nb::object x, nb::object out, nb::object bias, float alpha, float beta) const {
    const Operand from = operand_of(x, "X", depth(), n_);
    if (out.is_none()) {
      if (beta != 0) throw UsageError("beta adds to Y: pass it as out");
      out = empty(from.layout);
    }
    const Operand to = result_of(out, "Y", rows(), n_);
    if (to.overlaps(from)) throw UsageError("X and Y overlap in memory; they must not");
    multiply(from, to, bias.is_none() ? nullptr : bias_of(bias), alpha, beta);
    return out;
  }

 private:
  void multiply(const Operand& x, const Operand& y, const float* bias, float alpha, float beta,
                const void* values = nullptr) const {
    const nb::gil_scoped_release released;
    planned(x.layout, y.layout)({.x = x.data,
                                 .x_leading = x.leading,
                                 .y = y.data,
                                 .y_leading = y.leading,
                                 .alpha = alpha,
                                 .beta = beta,
                                 .bias = bias,
                                 .values = values});
  }

  const float* bias_of(nb::handle bias) const {
    const std::span<const float> values = floats_of(bias, "the bias");
    if (values.size() != rows())
      throw UsageError(fmt::format("the bias has {} elements; Y has {} rows", values.size(), rows()));
    return values.data();
  }

  nb::object empty(Layout layout) const {
    const size_t shape[] = {rows(), n_};
    const int64_t by_rows[] = {n_, 1}, by_columns[] = {1, rows()};
    auto* data = new float[size_t{rows()} * n_];
    const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    return nb::ndarray<nb::numpy, float, nb::ndim<2>>(data, 2, shape, owner,
                                                      layout == Layout::row_major ? by_rows : by_columns)
        .cast();
  }

  Weight weight_;
  uint32_t n_;
  SpmmOptions options_;
  base::OnDemand<Spmm> planned_;
};

constexpr const char* kSpmmCallDoc =
    "Multiply: X has `depth` rows (k of the weight, with transpose m), Y `rows` rows, both n "
    "columns.\n\n"
    "Operands are float32 arrays of NumPy or of a library with DLPack, in main memory, with contiguous "
    "rows or columns. The result is `out`, which must not overlap X, or a new NumPy array in the memory "
    "order of X. `bias` has one element per row of Y. If `beta` is not 0, the result is added to beta · "
    "`out`.\n\n"
    "Raises TypeError for other types and devices, and for tensors that require gradients; "
    "ValueError for other shapes and strides, for a read-only or overlapping `out`, and for a bias "
    "that is given to a product planned without one, or missing.";

constexpr const char* kSddmmCallDoc =
    "Multiply: dY is m × n, X is k × n, for a weight of m × k; dW has `packed_size` elements.\n\n"
    "Operands are as for Spmm; `out` is one-dimensional and contiguous, in packed order "
    "(`Weight.unpack` converts it to the order of CSR or BSR). Without `out` the result is a new NumPy "
    "array. If `beta` is not 0, the result is added to beta · `out`.\n\n"
    "Raises TypeError and ValueError as Spmm does.";

/// dW = dY·Xᵀ at the weight's pattern, in packed order.
class SddmmProduct {
 public:
  SddmmProduct(nb::handle weight, nb::object n, nb::object threads)
      : weight_(weight_of(weight)), n_(columns_of(n)), threads_(threads_of(threads)) {}

  uint32_t columns() const { return n_; }
  uint64_t packed_size() const { return weight_.packed_size(); }

  const Sddmm& planned(Layout dy, Layout x) const {
    return planned_.at(by_layout(dy, x), [&] {
      return Sddmm(weight_, n_, {.dy_layout = dy, .x_layout = x, .threads = threads_});
    });
  }

  void run(uintptr_t dy, int64_t dy_leading, bool dy_column_major, uintptr_t x, int64_t x_leading,
           bool x_column_major, uintptr_t dw, float alpha, float beta) const {
    multiply(matrix_at(dy, dy_leading, dy_column_major), matrix_at(x, x_leading, x_column_major),
             pointer<float>(dw), alpha, beta);
  }

  nb::object call_for_new(nb::object dy, nb::object x, std::nullptr_t, float alpha, float beta) const {
    return call(dy, x, nb::none(), alpha, beta);
  }

  nb::object call(nb::object dy, nb::object x, nb::object out, float alpha, float beta) const {
    const Operand dys = operand_of(dy, "dY", weight_.rows(), n_);
    const Operand xs = operand_of(x, "X", weight_.cols(), n_);
    if (out.is_none()) {
      if (beta != 0) throw UsageError("beta adds to dW: pass it as out");
      out = array_from(std::vector<float>(packed_size())).cast();
    }
    const std::span<float> dw = writable_floats_of(out, "dW");
    if (dw.size() != packed_size())
      throw UsageError(
          fmt::format("dW has {} elements; in packed order the weight has {}", dw.size(), packed_size()));
    multiply(dys, xs, dw.data(), alpha, beta);
    return out;
  }

 private:
  void multiply(const Operand& dy, const Operand& x, float* dw, float alpha, float beta) const {
    const nb::gil_scoped_release released;
    planned(dy.layout, x.layout)({.dy = dy.data,
                                  .dy_leading = dy.leading,
                                  .x = x.data,
                                  .x_leading = x.leading,
                                  .dw = dw,
                                  .alpha = alpha,
                                  .beta = beta});
  }

  Weight weight_;
  uint32_t n_;
  uint32_t threads_;
  base::OnDemand<Sddmm> planned_;
};

}  // namespace

void bind_products(nb::module_& m) {
  nb::class_<SpmmProduct> spmm(
      m, "Spmm",
      "A planned product Y = activation(alpha · W·X + beta · Y + bias) for n columns, or with "
      "transpose Y = alpha · Wᵀ·X + …. Safe to call from several threads.");
  spmm.def(
          nb::init<nb::handle, nb::object, bool, bool, const std::string&, nb::object>(), "weight"_a,
          "n"_a.none(), nb::kw_only(), "transpose"_a = false, "bias"_a = false, "activation"_a = "none",
          "threads"_a.none() = 0,
          nb::sig(
              "def __init__(self, weight: Weight, n: int, *, transpose: bool = False, bias: bool = False, "
              "activation: str = 'none', threads: int = 0) -> None"),
          "Plan for n columns, with this number of threads (0: the default, at most 4096). With `bias`, each "
          "call takes a bias.")
      .def("__call__", &SpmmProduct::call_for_new, "x"_a.none(), "out"_a = nb::none(), nb::kw_only(),
           "bias"_a = nb::none(), "alpha"_a = 1.0F, "beta"_a = 0.0F,
           nb::sig("def __call__(self, x: object, out: None = None, *, bias: object | None = None, "
                   "alpha: float = 1.0, beta: float = 0.0) -> numpy.typing.NDArray[numpy.float32]"),
           kSpmmCallDoc)
      .def("__call__", &SpmmProduct::call, "x"_a.none(), "out"_a.none(), nb::kw_only(), "bias"_a = nb::none(),
           "alpha"_a = 1.0F, "beta"_a = 0.0F,
           nb::sig("def __call__(self, x: object, out: T, *, bias: object | None = None, "
                   "alpha: float = 1.0, beta: float = 0.0) -> T"),
           kSpmmCallDoc)
      .def("run", &SpmmProduct::run, "x"_a, "x_leading"_a, "x_column_major"_a, "y"_a, "y_leading"_a,
           "y_column_major"_a, "bias"_a = 0, "alpha"_a = 1.0F, "beta"_a = 0.0F, "values"_a = 0,
           "For callers that have checked their arrays: addresses, with leading strides in elements (0: "
           "contiguous). A batch-major tensor [n, features] is the column-major features × n. `values` "
           "replaces "
           "the weight's own values, of its type and in packed order.")
      .def_prop_ro("rows", &SpmmProduct::rows)
      .def_prop_ro("depth", &SpmmProduct::depth)
      .def_prop_ro("n", &SpmmProduct::columns);
  bind_plans(spmm, "x_column_major", "y_column_major");

  nb::class_<SddmmProduct> sddmm(
      m, "Sddmm",
      "A planned product dW = alpha · (dY·Xᵀ at the weight's pattern) + beta · dW for n "
      "columns, in packed order. Safe to call from several threads.");
  sddmm
      .def(nb::init<nb::handle, nb::object, nb::object>(), "weight"_a, "n"_a.none(), nb::kw_only(),
           "threads"_a.none() = 0,
           nb::sig("def __init__(self, weight: Weight, n: int, *, threads: int = 0) -> None"),
           "Plan for n columns, with this number of threads (0: the default, at most 4096).")
      .def("__call__", &SddmmProduct::call_for_new, "dy"_a.none(), "x"_a.none(), "out"_a = nb::none(),
           nb::kw_only(), "alpha"_a = 1.0F, "beta"_a = 0.0F,
           nb::sig("def __call__(self, dy: object, x: object, out: None = None, *, alpha: float = 1.0, "
                   "beta: float = 0.0) -> numpy.typing.NDArray[numpy.float32]"),
           kSddmmCallDoc)
      .def("__call__", &SddmmProduct::call, "dy"_a.none(), "x"_a.none(), "out"_a.none(), nb::kw_only(),
           "alpha"_a = 1.0F, "beta"_a = 0.0F,
           nb::sig("def __call__(self, dy: object, x: object, out: T, *, alpha: float = 1.0, "
                   "beta: float = 0.0) -> T"),
           kSddmmCallDoc)
      .def("run", &SddmmProduct::run, "dy"_a, "dy_leading"_a, "dy_column_major"_a, "x"_a, "x_leading"_a,
           "x_column_major"_a, "dw"_a, "alpha"_a = 1.0F, "beta"_a = 0.0F,
           "For callers that have checked their arrays, as Spmm.run().")
      .def_prop_ro("n", &SddmmProduct::columns)
      .def_prop_ro("packed_size", &SddmmProduct::packed_size);
  bind_plans(sddmm, "dy_column_major", "x_column_major");
}

}  // namespace tessera::python
