#include "onnx/call.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/memory.h"
#include "base/utf8.h"
#include "graph/operation.h"
#include "io/fail.h"
#include "onnx/values.h"

namespace tessera::onnx {

using graph::Value;

namespace {

std::string text_of(int64_t x, DataType type) {
  return type == DataType::u64 ? fmt::format("{}", static_cast<uint64_t>(x)) : fmt::format("{}", x);
}

/// Throws UsageError for integers that a graph cannot hold.
Value integer_constant(graph::Graph& graph, const Constant& constant, Type type) {
  const auto [least, most] = range_in_graph(constant.type);
  for (const int64_t x : constant.integers())
    if (x < least || x > most)
      refuse(
          "{} has the integer {}, which is beyond 32 bits, as integers of a graph have: compute with a "
          "smaller one",
          constant.name.empty() ? "a constant" : io::excerpt(constant.name), text_of(x, constant.type));
  return whole_numbers(graph, constant.integers(), as_shape(constant.dims), type);
}

bool may_be_table(const Constant& constant) {
  return constant.has_floats() && !constant.name.empty() && !constant.transposed;
}

/// Whether a value is used only as a table of which embeddings take rows.
bool is_table(const graph::Graph& graph, graph::ValueId id) {
  for (const graph::Node& node : graph.nodes())
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] == id && node.operation->traits.table != i) return false;
  return true;
}

std::string free_name(const graph::Graph& graph, std::string name) {
  while (graph.contains(name) || name.starts_with('%')) name = fmt::format("_{}", name);
  return name;
}

}  // namespace

Known known(ConstantPointer constant) {
  Known known{constant->type, constant->dims, {}, {}};
  known.constant = std::move(constant);
  return known;
}

Known known(Value value, DataType type) {
  return {type, Dims(value.shape().begin(), value.shape().end()), {}, value};
}

void Context::require_left(uint64_t elements) const {
  if (elements > left)
    refuse("what is computed of constants has too many elements: see ImportOptions::most_computed");
}

void Context::spend(uint64_t elements) {
  require_left(elements);
  left -= elements;
}

void Context::count_work(double steps) {
  if (!(steps <= work))
    refuse("computing it of constants takes too many steps: see ImportOptions::most_computed");
  work -= steps;
}

void Context::require_memory(uint64_t bytes, std::string_view what) const {
  if (bytes > memory)
    throw Error(fmt::format(
        "with inputs of these shapes {} takes {} of memory, and {} are available: use smaller shapes, or a "
        "computer with more memory",
        what, base::bytes_text(bytes), base::bytes_text(memory)));
}

void Context::require_room(const Dims& padded, DataType type) const {
  const uint64_t elements = elements_of(padded);
  if (elements > UINT32_MAX) refuse("{} has more than 2^32 - 1 elements", to_string(padded));
  if (weights == nullptr) require_left(elements);
  require_memory(2 * elements * size_of(graph_type_of(type)), "its result with its padding");
}

Value Context::value_of(const ConstantPointer& constant) {
  const Type type = graph_type_of(constant->type);
  const auto key = std::pair(constant.get(), type);
  if (const auto found = constants.find(key); found != constants.end()) return found->second;
  held.push_back(constant);
  const auto add = [&] {
    if (constant->has_floats() && weights != nullptr && !constant->name.empty() && constant->size() > 1) {
      const std::string name = weights->name_of(constant->name, *constant);
      return graph.parameter(free_name(graph, name), as_shape(constant->dims),
                             {graph::Initial::Kind::values, 0, std::get<Floats>(constant->values)}, type);
    }
    if (constant->has_floats()) return graph.constant("", as_shape(constant->dims), constant->floats(), type);
    return integer_constant(graph, *constant, type);
  };
  return constants.emplace(key, add()).first->second;
}

Value Context::weight_of(const ConstantPointer& matrix, bool transposed, uint32_t rows,
                         const std::string& name, const ConvolutionGroups& of) {
  if (matrix->transposed) return weight_of(matrix->transposed, !transposed, rows, name, of);
  if (weights == nullptr) {
    const Value value = value_of(matrix);
    return transposed ? transpose(value) : value;
  }
  const auto key = std::pair(matrix.get(), transposed);
  if (const auto found = weight_values.find(key); found != weight_values.end()) return found->second.value;
  held.push_back(matrix);
  const std::string layer = weights->name_of(matrix->name.empty() ? name : matrix->name, *matrix);
  const std::string own = layer + (transposed ? ".transposed" : "");
  const WeightForms::Form& form = weights->form_of(layer, *matrix, transposed, rows, *options, {}, of);
  const Type type = graph_type_of(matrix->type);
  const size_t layer_at = layers.size();
  layers.push_back(form.choice);
  const auto add = [&] {
    if (form.pattern) return graph.sparse_parameter(free_name(graph, own), *form.pattern, form.initial, type);
    const auto as_value = constants.find({matrix.get(), type});
    if (!transposed && as_value != constants.end()) return as_value->second;
    const Value value = graph.parameter(free_name(graph, own),
                                        {form.choice.zeros.rows, form.choice.zeros.cols}, form.initial, type);
    if (!transposed) constants.emplace(std::pair(matrix.get(), type), value);
    return value;
  };
  return weight_values.emplace(key, WeightValue{add(), layer_at}).first->second.value;
}

Value Context::table_of(const ConstantPointer& matrix) {
  if (weights == nullptr || !may_be_table(*matrix)) return value_of(matrix);
  const std::string layer = weights->name_of(matrix->name, *matrix);
  const std::optional<uint32_t> rows = weights->rows_of_table(layer);
  return rows ? weight_of(matrix, false, *rows, layer) : value_of(matrix);
}

bool Context::note_tables() const {
  bool is_any = false;
  for (const auto& [of, weight] : weight_values) {
    const auto& [matrix, transposed] = of;
    const graph::TensorType& type = weight.value.type();
    const auto dense = constants.find({matrix, type.type});
    if (transposed || !type.pattern || dense == constants.end() || !may_be_table(*matrix) ||
        !is_table(graph, dense->second.id))
      continue;
    weights->note_table(layers[weight.layer].name, layers[weight.layer].rows);
    is_any = true;
  }
  return is_any;
}

std::vector<Value> Context::weights_of(const ConstantPointer& stack, bool transposed, uint32_t rows,
                                       const std::string& name) {
  constexpr uint64_t kMostGroups = 1024;  // each an operation to compile; more than models have experts
  const std::vector<float>& values = stack->floats();
  const auto groups = static_cast<uint64_t>(stack->dims[0]), size = values.size() / groups;
  if (weights == nullptr || groups < 2 || groups > kMostGroups) return {};
  const auto key = std::pair(stack.get(), transposed);
  if (const auto found = weights_of_groups.find(key); found != weights_of_groups.end()) return found->second;
  held.push_back(stack);
  const std::string layer = weights->name_of(stack->name.empty() ? name : stack->name, *stack);
  std::vector<const WeightForms::Form*> forms;
  for (uint64_t i = 0; i < groups; ++i) {
    Constant matrix{stack->type, {stack->dims[1], stack->dims[2]}};
    const auto begin = values.begin() + static_cast<int64_t>(i * size);
    matrix.values = std::make_shared<const std::vector<float>>(begin, begin + static_cast<int64_t>(size));
    forms.push_back(&weights->form_of(layer, matrix, transposed, rows, *options, i));
    if (!forms.back()->pattern) return {};
  }
  std::vector<Value>& made = weights_of_groups[key];
  for (const WeightForms::Form* form : forms) {
    layers.push_back(form->choice);
    const std::string own = form->choice.name + (transposed ? ".transposed" : "");
    made.push_back(graph.sparse_parameter(free_name(graph, own), *form->pattern, form->initial,
                                          graph_type_of(stack->type)));
  }
  return made;
}

void Context::leave(const Constant& weight, const std::string& name, std::string_view reason) {
  if (weights == nullptr || !weight.has_floats() || weight.size() == 0 || weight.dims.size() < 2) return;
  const std::string& own = weight.name.empty() ? name : weight.name;
  const auto is_same = [&](const LayerChoice& layer) { return layer.name == own && layer.reason == reason; };
  if (std::ranges::none_of(layers, is_same)) layers.push_back(left_dense(own, weight, reason));
}

void Context::note_copies() {
  std::set<std::string> multiplied;
  for (const auto& [of, weight] : weight_values) {
    LayerChoice& layer = layers[weight.layer];
    multiplied.insert(layer.name);
    const auto dense = constants.find({of.first, weight.value.type().type});
    if (dense != constants.end() && dense->second.id != weight.value.id)
      layer.copy_bytes = layer.is_sparse ? layer.zeros.sparse_bytes : weight.value.type().bytes();
  }
  std::erase_if(layers, [&](const LayerChoice& layer) {
    return layer.reason == name_of(NoGain::not_a_product) && multiplied.contains(layer.name);
  });
}

Call::Call(Context& in, const wire::NodeProto& of, std::vector<std::optional<Known>> inputs, int64_t set,
           const DataFolder& folder)
    : context(in), graph(in.graph), node(of), opset(set), inputs_(std::move(inputs)), folder_(folder) {}

const Known& Call::operator[](size_t i) const {
  if (!has(i)) refuse("its input {} is missing", i);
  return *inputs_[i];
}

Value Call::value_of(const Known& of) const {
  if (of.constant) return context.value_of(of.constant);
  const graph::Shape shape = as_shape(of.dims);
  if (of.value->shape() == shape) return *of.value;
  return reshape(*of.value, shape);
}

Value Call::bound(size_t i, Bound side) const {
  const Known& given = (*this)[i];
  return given.constant && !given.constant->has_floats() ? value_of(known(in_range(*given.constant, side)))
                                                         : value_of(given);
}

std::optional<Value> Call::value_if(size_t i) const {
  return has(i) ? std::optional(value(i)) : std::nullopt;
}

const Constant& Call::constant(size_t i) const {
  const Known& input = (*this)[i];
  if (!input.constant)
    refuse("its input {} depends on the model's inputs; it has to be constant for inputs of given shapes", i);
  return *input.constant;
}

const std::vector<int64_t>& Call::integers(size_t i) const {
  const Constant& input = constant(i);
  if (input.has_floats()) refuse("its input {} is {}; it has to be integers", i, name_of(input.type));
  return input.integers();
}

int64_t Call::integer_of(size_t i) const {
  const std::vector<int64_t>& numbers = integers(i);
  if (numbers.size() != 1) refuse("its input {} has {} elements; it has to be a scalar", i, numbers.size());
  return numbers[0];
}

double Call::number_of(size_t i) const {
  const Constant& input = constant(i);
  if (input.size() != 1) refuse("its input {} has {} elements; it has to be a scalar", i, input.size());
  return input.number(0);
}

void Call::require_truth(size_t i) const {
  const DataType type = (*this)[i].type;
  if (type != DataType::boolean)
    refuse("its input {} is {}; it has to be truth values: cast it to bool", i, name_of(type));
}

void Call::require_numbers() const {
  for (size_t i = 0; i < size(); ++i)
    if (has(i) && inputs_[i]->type == DataType::boolean)
      refuse("its input {} has truth values: cast them to numbers", i);
}

void Call::require_one_kind(size_t i, size_t j) const {
  const DataType a = (*this)[i].type, b = (*this)[j].type;
  if ((a == DataType::boolean) != (b == DataType::boolean))
    refuse("it is given {} and {}", name_of(a), name_of(b));
}

const wire::AttributeProto* Call::attribute(std::string_view name) const {
  for (const wire::AttributeProto& each : node.attribute()) {
    if (each.name() != name) continue;
    if (!each.ref_attr_name().empty()) refuse("its attribute '{}' is a caller's, and nothing calls it", name);
    return &each;
  }
  return nullptr;
}

int64_t Call::integer(std::string_view name, std::optional<int64_t> otherwise) const {
  const wire::AttributeProto* found = attribute(name);
  if (found == nullptr && !otherwise) refuse("its attribute '{}' is missing", name);
  if (found != nullptr && !found->has_i()) refuse("its attribute '{}' is not an integer", name);
  return found != nullptr ? found->i() : *otherwise;
}

double Call::number(std::string_view name, std::optional<double> otherwise) const {
  const wire::AttributeProto* found = attribute(name);
  if (found == nullptr && !otherwise) refuse("its attribute '{}' is missing", name);
  if (found != nullptr && !found->has_f()) refuse("its attribute '{}' is not a number", name);
  return found != nullptr ? found->f() : *otherwise;
}

std::string Call::text(std::string_view name, const std::string& otherwise) const {
  const wire::AttributeProto* found = attribute(name);
  if (found == nullptr) return otherwise;
  const bool is_other =
      found->has_i() || found->has_f() || found->ints_size() > 0 || found->floats_size() > 0;
  if (is_other) refuse("its attribute '{}' is not a text", name);
  if (!base::is_utf8(found->s())) refuse("its attribute '{}' is not UTF-8", name);
  return found->s();
}

std::optional<std::vector<int64_t>> Call::integers_if(std::string_view name) const {
  const wire::AttributeProto* found = attribute(name);
  if (found == nullptr) return {};
  const bool is_other = found->has_i() || found->has_f() || found->has_s() || found->floats_size() > 0;
  if (is_other) refuse("its attribute '{}' is not a list of integers", name);
  return std::vector<int64_t>(found->ints().begin(), found->ints().end());
}

std::optional<std::vector<int64_t>> Call::integers_of(size_t input, std::string_view name) const {
  if (has(input)) return integers(input);
  return integers_if(name);
}

std::string Call::weight_name() const {
  return (node.output_size() > 0 ? node.output(0) : node.name()) + ".weight";
}

size_t Call::dimension(int64_t axis, size_t rank) {
  const auto count = static_cast<int64_t>(rank);
  if (axis < -count || axis >= count) refuse("there is no dimension {} of {}", axis, rank);
  return static_cast<size_t>(axis < 0 ? axis + count : axis);
}

std::vector<size_t> Call::dimensions(std::vector<int64_t> axes, size_t count, size_t rank) {
  if (axes.empty()) {
    axes.resize(count);
    std::iota(axes.begin(), axes.end(), 0);
  }
  std::vector<size_t> dims;
  for (const int64_t axis : axes) {
    const size_t dim = dimension(axis, rank);
    if (std::ranges::count(dims, dim) > 0) refuse("its axes name dimension {} twice", dim);
    dims.push_back(dim);
  }
  return dims;
}

size_t Call::axis(size_t rank, std::optional<int64_t> otherwise) const {
  return dimension(integer("axis", otherwise), rank);
}

std::vector<int64_t> Call::permutation(size_t rank) const {
  std::vector<int64_t> order = integers_if("perm").value_or(std::vector<int64_t>{});
  if (order.empty()) {
    order.resize(rank);
    std::iota(order.rbegin(), order.rend(), 0);
  }
  std::vector<int64_t> sorted = order;
  std::ranges::sort(sorted);
  bool is_permutation = sorted.size() == rank;
  for (size_t i = 0; is_permutation && i < rank; ++i) is_permutation = sorted[i] == static_cast<int64_t>(i);
  if (!is_permutation)
    refuse("its order {} does not name each of {} dimensions once", to_string(order), rank);
  return order;
}

}  // namespace tessera::onnx
