// Structured products of PyTorch's tensors, found by shapes.
#include <nanobind/stl/vector.h>
#include <tessera/machine.h>
#include <tessera/structured.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "bindings.h"
#include "exchange.h"

namespace tessera::python {
namespace {

using namespace nb::literals;
using Dimensions = std::vector<int64_t>;

constexpr size_t kMostParameters = 4;  // with a bias

/// The products of one structure for any number of samples. Whatever is not as usual is left to the caller:
/// methods then return None.
class StructuredCalls {
 public:
  /// Calls of products with `parameters` parameters, and a bias or none.
  StructuredCalls(nb::object reader, size_t parameters, bool has_bias)
      : kept_reader_(std::move(reader)),
        reader_(nb::cast<const TensorReader*>(kept_reader_)),
        parameters_(parameters),
        has_bias_(has_bias) {}

  /// A product for an x and results of these shapes. `parameters` has the shapes of the tensors, and ends
  /// with a bias if there is one.
  void add(nb::object product, nb::tuple x, nb::tuple y, nb::list parameters) {
    Entry entry{.threads = default_threads(),
                .x = nb::cast<Dimensions>(x),
                .y = nb::cast<Dimensions>(y),
                .product = nb::cast<const StructuredProduct*>(product),
                .y_shape = y,
                .kept = product};
    for (nb::handle shape : parameters) entry.parameters.push_back(nb::cast<Dimensions>(shape));
    if (has_bias_) entry.bias_shape = nb::cast<nb::tuple>(parameters[parameters.size() - 1]);
    if (entries_.size() >= kMostEntries) entries_.clear();
    entries_.insert(entries_.begin(), std::make_shared<const Entry>(std::move(entry)));
  }

  /// y; `tensors` begin with the parameters.
  nb::object forward(nb::handle x, nb::tuple tensors, nb::object bias) {
    if (reader_->is_watched()) return nb::none();
    const auto samples = reader_->read(x);
    Arrays<const float> values;
    if (!samples || !read_parameters(tensors, values)) return nb::none();
    if (has_bias_) {
      const auto of_bias = reader_->read(bias);
      if (!of_bias) return nb::none();
      values.push(*of_bias);
    }
    const EntryRef entry = find(samples->shape, values);
    if (entry == nullptr) return nb::none();
    nb::object y = entry->x == entry->y ? reader_->make(x) : TensorReader::make(x, entry->y_shape);
    const auto result = reader_->read(y);
    if (!result) return nb::none();
    const nb::gil_scoped_release released;
    (*entry->product)(samples->data, values.data(), result->data);
    return y;
  }

  /// The gradients of the bias, x and the tensors as far as they are needed, in a list with None for others.
  /// `saved` are x and the tensors.
  nb::object gradients(nb::handle dy, nb::tuple saved, nb::tuple needed) {
    if (reader_->is_watched()) return nb::none();
    const auto samples = reader_->read(saved[0]), of_y = reader_->read(dy);
    Arrays<const float> values;
    if (!samples || !of_y || !read_parameters(saved, values, 1)) return nb::none();
    const EntryRef entry = find(samples->shape, values);
    if (entry == nullptr || !std::ranges::equal(of_y->shape, entry->y)) return nb::none();
    if (has_bias_) values.push({});  // its values do not matter

    nb::list results;
    for (size_t i = 0; i < needed.size(); ++i) results.append(nb::none());
    bool of_parameters = has_bias_ && is_true(needed[0]);
    for (size_t i = 0; i < parameters_; ++i) of_parameters |= is_true(needed[2 + i]);
    float* dx = nullptr;
    if (is_true(needed[1])) {
      results[1] = reader_->make(saved[0]);
      const auto made = reader_->read(results[1]);
      if (!made) return nb::none();
      dx = made->data;
    }
    Arrays<float> gradients;
    std::vector<nb::object> made;
    for (size_t i = 0; of_parameters && i < entry->parameters.size(); ++i) {
      made.push_back(i < parameters_ ? reader_->make(saved[1 + i])
                                     : TensorReader::make(dy, entry->bias_shape));
      const auto gradient = reader_->read(made.back());
      if (!gradient) return nb::none();
      gradients.push(*gradient);
      const size_t at = i < parameters_ ? 2 + i : 0;
      if (is_true(needed[at])) results[at] = made.back();
    }
    const nb::gil_scoped_release released;
    entry->product->gradients(samples->data, of_y->data, values.data(), dx, gradients.data());
    return results;
  }

 private:
  static constexpr size_t kMostEntries = 64;

  struct Entry {
    uint32_t threads;
    Dimensions x, y;
    std::vector<Dimensions> parameters = {};
    const StructuredProduct* product;
    nb::tuple y_shape, bias_shape = {};
    nb::object kept;
  };

  /// Shared with calls at once, from which another thread may take the turn.
  using EntryRef = std::shared_ptr<const Entry>;

  /// Addresses of parameters, and the shapes of those that were read.
  template <class T>
  class Arrays {
   public:
    void push(const FloatTensor& tensor) {
      shapes_[count_] = tensor.shape;
      data_[count_++] = tensor.data;
    }
    std::span<T* const> data() const { return {data_.data(), count_}; }
    std::span<const std::span<const int64_t>> shapes() const { return {shapes_.data(), count_}; }

   private:
    std::array<T*, kMostParameters> data_;
    std::array<std::span<const int64_t>, kMostParameters> shapes_;
    size_t count_ = 0;
  };

  static bool is_true(nb::handle flag) { return flag.ptr() == Py_True; }

  bool read_parameters(const nb::tuple& tensors, Arrays<const float>& values, size_t first = 0) const {
    for (size_t i = 0; i < parameters_; ++i) {
      const auto value = reader_->read(tensors[first + i]);
      if (!value) return false;
      values.push(*value);
    }
    return true;
  }

  /// The product for these shapes; callers of gradients have no bias at hand.
  EntryRef find(std::span<const int64_t> x, const Arrays<const float>& values) {
    const auto matches = [&](const EntryRef& of) {
      const Entry& entry = *of;
      const auto shapes = values.shapes();
      return entry.threads == default_threads() && std::ranges::equal(entry.x, x) &&
             std::equal(shapes.begin(), shapes.end(), entry.parameters.begin(),
                        [](const auto& a, const auto& b) { return std::ranges::equal(a, b); });
    };
    const auto found = std::ranges::find_if(entries_, matches);
    if (found == entries_.end()) return nullptr;
    std::rotate(entries_.begin(), found, found + 1);  // the next call is likely to be the same
    return entries_.front();
  }

  nb::object kept_reader_;
  const TensorReader* reader_;
  size_t parameters_;
  bool has_bias_;
  std::vector<EntryRef> entries_;
};

}  // namespace

void bind_structured_calls(nb::module_& m) {
  nb::class_<StructuredCalls>(m, "StructuredCalls", "Structured products of tensors, found by their shapes.")
      .def(nb::init<nb::object, size_t, bool>(), "reader"_a, "parameters"_a, "has_bias"_a)
      .def("add", &StructuredCalls::add, "product"_a, "x"_a, "y"_a, "parameters"_a,
           nb::sig("def add(self, product: object, x: tuple[int, ...], y: tuple[int, ...], "
                   "parameters: list[tuple[int, ...]]) -> None"))
      .def(
          "forward", &StructuredCalls::forward, "x"_a, "tensors"_a, "bias"_a.none(),
          nb::sig("def forward(self, x: object, tensors: tuple[object, ...], bias: object | None) -> object"))
      .def("gradients", &StructuredCalls::gradients, "dy"_a, "saved"_a, "needed"_a,
           nb::sig("def gradients(self, dy: object, saved: tuple[object, ...], needed: tuple[bool, ...]) -> "
                   "list[object] | None"));
}

}  // namespace tessera::python
