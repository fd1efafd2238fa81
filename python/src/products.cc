// Products with a weight: Y = W·X, Y = Wᵀ·X, and dW = dY·Xᵀ at the weight's pattern.
#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <tessera/error.h>
#include <tessera/spmm.h>

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "arrays.h"
#include "bindings.h"

namespace tessera::python {
namespace {

using namespace nb::literals;

/// Products for each pair of memory orders, planned when one is first used. Threads may share it.
template <class Product>
class ByLayout {
 public:
  template <class Make>
  const Product& at(Layout first, Layout second, const Make& make) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Product>& product =
        products_[static_cast<size_t>(first) * 2 + static_cast<size_t>(second)];
    if (product == nullptr) product = std::make_unique<Product>(make());
    return *product;
  }

 private:
  std::mutex mutex_;
  std::array<std::unique_ptr<Product>, 4> products_;
};

Layout layout_of(bool is_column_major) { return is_column_major ? Layout::column_major : Layout::row_major; }

Activation activation_named(const std::string& name) {
  if (name == "none") return Activation::none;
  if (name == "relu") return Activation::relu;
  if (name == "gelu") return Activation::gelu;
  throw UsageError(fmt::format("unknown activation '{}': use relu, gelu or none", name));
}

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

template <class T>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
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
    return by_layout_->at(x, y, [&] {
      SpmmOptions options = options_;
      options.x_layout = x;
      options.y_layout = y;
      return Spmm(weight_, n_, options);
    });
  }

  void run(uintptr_t x, int64_t x_leading, bool x_column_major, uintptr_t y, int64_t y_leading,
           bool y_column_major, uintptr_t bias, float alpha, float beta, uintptr_t values) const {
    const nb::gil_scoped_release released;
    planned(layout_of(x_column_major), layout_of(y_column_major))({.x = pointer<const float>(x),
                                                                   .x_leading = x_leading,
                                                                   .y = pointer<float>(y),
                                                                   .y_leading = y_leading,
                                                                   .alpha = alpha,
                                                                   .beta = beta,
                                                                   .bias = pointer<const float>(bias),
                                                                   .values = pointer<const void>(values)});
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
    const float* added = bias.is_none() ? nullptr : bias_of(bias);
    {
      const nb::gil_scoped_release released;
      planned(from.layout, to.layout)({.x = from.data,
                                       .x_leading = from.leading,
                                       .y = to.data,
                                       .y_leading = to.leading,
                                       .alpha = alpha,
                                       .beta = beta,
                                       .bias = added});
    }
    return out;
  }

 private:
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
  std::unique_ptr<ByLayout<Spmm>> by_layout_ = std::make_unique<ByLayout<Spmm>>();
};

constexpr const char* kSpmmCallDoc =
    "Multiply: X has `depth` rows (k of the weight, with transpose m), Y `rows` rows, both n "
    "columns.\n\n"
    "Operands are float32 arrays of NumPy or of a library with DLPack, in main memory, of which rows "
    "or columns are contiguous. The result is `out`, which must not overlap X, or a new array of "
    "NumPy in the memory order of X. `bias` has an element per row of Y. `beta` other than 0 adds to "
    "`out`.\n\n"
    "Raises TypeError for other types and devices, and for tensors that require gradients; "
    "ValueError for other shapes and strides, for a read-only or overlapping `out`, and for a bias "
    "that was not planned or is missing.";

constexpr const char* kSddmmCallDoc =
    "Multiply: dY is m × n, X is k × n, for a weight of m × k; dW has `packed_size` elements.\n\n"
    "Operands are as those of Spmm; `out` is one-dimensional and contiguous, in packed order "
    "(`Weight.unpack` converts to that of CSR or BSR). Without it the result is a new array of "
    "NumPy. `beta` other than 0 adds to `out`.\n\n"
    "Raises TypeError and ValueError as Spmm does.";

/// dW = dY·Xᵀ at the weight's pattern, in packed order.
class SddmmProduct {
 public:
  SddmmProduct(nb::handle weight, nb::object n, nb::object threads)
      : weight_(weight_of(weight)), n_(columns_of(n)), threads_(threads_of(threads)) {}

  uint32_t columns() const { return n_; }
  uint64_t packed_size() const { return weight_.packed_size(); }

  const Sddmm& planned(Layout dy, Layout x) const {
    return by_layout_->at(
        dy, x, [&] { return Sddmm(weight_, n_, {.dy_layout = dy, .x_layout = x, .threads = threads_}); });
  }

  void run(uintptr_t dy, int64_t dy_leading, bool dy_column_major, uintptr_t x, int64_t x_leading,
           bool x_column_major, uintptr_t dw, float alpha, float beta) const {
    const nb::gil_scoped_release released;
    planned(layout_of(dy_column_major), layout_of(x_column_major))({.dy = pointer<const float>(dy),
                                                                    .dy_leading = dy_leading,
                                                                    .x = pointer<const float>(x),
                                                                    .x_leading = x_leading,
                                                                    .dw = pointer<float>(dw),
                                                                    .alpha = alpha,
                                                                    .beta = beta});
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
    {
      const nb::gil_scoped_release released;
      planned(dys.layout, xs.layout)({.dy = dys.data,
                                      .dy_leading = dys.leading,
                                      .x = xs.data,
                                      .x_leading = xs.leading,
                                      .dw = dw.data(),
                                      .alpha = alpha,
                                      .beta = beta});
    }
    return out;
  }

 private:
  Weight weight_;
  uint32_t n_;
  uint32_t threads_;
  std::unique_ptr<ByLayout<Sddmm>> by_layout_ = std::make_unique<ByLayout<Sddmm>>();
};

}  // namespace

void bind_products(nb::module_& m) {
  nb::class_<SpmmProduct>(
      m, "Spmm",
      "A planned product Y = activation(alpha · W·X + beta · Y + bias) for n columns, or with "
      "transpose Y = alpha · Wᵀ·X + …. Safe to call from several threads.")
      .def(nb::init<nb::handle, nb::object, bool, bool, const std::string&, nb::object>(), "weight"_a,
           "n"_a.none(), nb::kw_only(), "transpose"_a = false, "bias"_a = false, "activation"_a = "none",
           "threads"_a.none() = 0,
           nb::sig(
               "def __init__(self, weight: Weight, n: int, *, transpose: bool = False, bias: bool = False, "
               "activation: str = 'none', threads: int = 0) -> None"),
           "Plan for n columns, on so many threads (0: the default, at most 4096). With `bias` each call "
           "takes one.")
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
      .def_prop_ro("n", &SpmmProduct::columns)
      .def(
          "plan",
          [](const SpmmProduct& p, bool x, bool y) { return p.planned(layout_of(x), layout_of(y)).plan(); },
          "x_column_major"_a = false, "y_column_major"_a = false, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "predicted_seconds",
          [](const SpmmProduct& p, bool x, bool y) {
            return p.planned(layout_of(x), layout_of(y)).predicted_seconds();
          },
          "x_column_major"_a = false, "y_column_major"_a = false, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<SddmmProduct>(m, "Sddmm",
                           "A planned product dW = alpha · (dY·Xᵀ at the weight's pattern) + beta · dW for n "
                           "columns, in packed order. Safe to call from several threads.")
      .def(nb::init<nb::handle, nb::object, nb::object>(), "weight"_a, "n"_a.none(), nb::kw_only(),
           "threads"_a.none() = 0,
           nb::sig("def __init__(self, weight: Weight, n: int, *, threads: int = 0) -> None"),
           "Plan for n columns, on so many threads (0: the default, at most 4096).")
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
      .def_prop_ro("packed_size", &SddmmProduct::packed_size)
      .def(
          "plan",
          [](const SddmmProduct& p, bool dy, bool x) {
            return p.planned(layout_of(dy), layout_of(x)).plan();
          },
          "dy_column_major"_a = false, "x_column_major"_a = false, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "predicted_seconds",
          [](const SddmmProduct& p, bool dy, bool x) {
            return p.planned(layout_of(dy), layout_of(x)).predicted_seconds();
          },
          "dy_column_major"_a = false, "x_column_major"_a = false, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace tessera::python
