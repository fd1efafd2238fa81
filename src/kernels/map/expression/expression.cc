#include "kernels/map/expression/expression.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/map/cast/cast.h"
#include "program/box.h"

namespace tessera::kernels {
namespace {

using program::Box;
using program::FieldView;

// A step in a word: factor, operands, type, function, kind. A result: scale, reduction, value.
constexpr int kFactorBits = 32, kOperandBits = 5, kTypeBits = 4, kFunctionBits = 8, kReductionBits = 2;

/// Takes bits from a word, the lowest first.
class BitReader {
 public:
  explicit BitReader(int64_t word) : word_(static_cast<uint64_t>(word)) {}
  uint32_t take(int bits) {
    const uint64_t value = word_ & ((uint64_t{1} << bits) - 1);
    word_ >>= bits;
    return static_cast<uint32_t>(value);
  }

 private:
  uint64_t word_;
};

class BitWriter {
 public:
  BitWriter& add(uint64_t value, int bits) {
    word_ |= value << used_;
    used_ += bits;
    return *this;
  }
  int64_t word() const { return static_cast<int64_t>(word_); }

 private:
  uint64_t word_ = 0;
  int used_ = 0;
};

uint64_t bits_of(float value) { return static_cast<uint64_t>(param_of(value)); }

int64_t word_of(const ExpressionStep& step) {
  BitWriter word;
  word.add(bits_of(step.factor), kFactorBits);
  for (const uint8_t operand : step.operands) word.add(operand, kOperandBits);
  return word.add(static_cast<uint64_t>(step.type), kTypeBits)
      .add(step.function, kFunctionBits)
      .add(static_cast<uint64_t>(step.kind), kOperandBits)
      .word();
}

ExpressionStep step_of(int64_t word) {
  BitReader reader(word);
  ExpressionStep step;
  step.factor = float_of(reader.take(kFactorBits));
  for (uint8_t& operand : step.operands) operand = static_cast<uint8_t>(reader.take(kOperandBits));
  step.type = static_cast<Type>(reader.take(kTypeBits));
  step.function = static_cast<uint8_t>(reader.take(kFunctionBits));
  step.kind = static_cast<ExpressionStep::Kind>(reader.take(kOperandBits));
  return step;
}

int64_t word_of(const ExpressionResult& result) {
  return BitWriter()
      .add(bits_of(result.scale), kFactorBits)
      .add(static_cast<uint64_t>(result.reduction), kReductionBits)
      .add(result.value, kOperandBits)
      .word();
}

ExpressionResult result_of(int64_t word) {
  BitReader reader(word);
  ExpressionResult result;
  result.scale = float_of(reader.take(kFactorBits));
  result.reduction = static_cast<Reduction>(reader.take(kReductionBits));
  result.value = static_cast<uint8_t>(reader.take(kOperandBits));
  return result;
}

/// All values of an expression fit this part of the L1 cache; more elements at once gain little.
constexpr size_t kBytes = 40 << 10;
constexpr uint32_t kMostElements = 2048;
constexpr size_t kElementBytes = 4;

/// Fetches lines while what is written to them is computed.
void fetch_to_write(std::byte* at, size_t bytes) {
  constexpr size_t kLine = 64;
  for (size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(at + i, 1);
}

bool is_contiguous(const FieldView& field, const Box& box) {
  return (field.col_stride == 1 || box.cols == 1) && (box.rows == 1 || field.row_stride == box.cols);
}

/// Evaluates an expression for boxes of at most elements().
class BoxEvaluator {
 public:
  /// Inputs that are broadcast have strides of 0.
  BoxEvaluator(const Expression& expression, std::span<const FieldView> inputs)
      : expression_(expression), inputs_(inputs) {
    const size_t values = inputs.size() + expression.steps.size();
    const auto fitting = static_cast<uint32_t>(kBytes / kElementBytes / values);
    elements_ = std::min(kMostElements, fitting / kLineSums * kLineSums);
  }

  uint32_t elements() const { return elements_; }

  /// The results of steps may be stored where they belong, by step; null: they are not.
  void run(const Box& box, const std::array<std::byte*, kMostExpressionSteps>& stored = {}) {
    const size_t count = box.elements();
    for (std::byte* const at : stored)
      if (at != nullptr) fetch_to_write(at, count * kElementBytes);
    for (size_t i = 0; i < inputs_.size(); ++i) at_[i] = elements_of(i, box);
    for (size_t i = 0; i < expression_.steps.size(); ++i) {
      std::byte* const out = stored[i] != nullptr ? stored[i] : values_of(inputs_.size() + i);
      run_step(expression_.steps[i], count, out);
      at_[inputs_.size() + i] = out;
    }
    is_filled_ = true;
    filled_ = box;
  }

  Type type_of(size_t value) const {
    return value < inputs_.size() ? inputs_[value].type : expression_.steps[value - inputs_.size()].type;
  }
  /// A value of the last box, row by row.
  const std::byte* at(size_t value) const { return at_[value]; }
  FieldView field_of(size_t value) const {
    return {const_cast<std::byte*>(at(value)), type_of(value), filled_.rows, filled_.cols, filled_.cols, 1};
  }

 private:
  void run_step(const ExpressionStep& step, size_t count, std::byte* out) const {
    const auto operand = [&](size_t i) { return at_[step.operands[i]]; };
    switch (step.kind) {
      case ExpressionStep::Kind::unary:
        return run_unary(static_cast<Unary>(step.function), step.type, step.factor, operand(0), count, out);
      case ExpressionStep::Kind::binary:
        return run_binary(static_cast<Binary>(step.function), step.type, step.factor, operand(0), operand(1),
                          count, out);
      case ExpressionStep::Kind::where:
        return run_where(step.type, operand(0), operand(1), operand(2), count, out);
      case ExpressionStep::Kind::cast:
        return run_cast(type_of(step.operands[0]), step.type, operand(0), count, out);
      case ExpressionStep::Kind::none: return;
    }
  }

  /// The elements of an input where they lie, if they are contiguous, otherwise a copy.
  const std::byte* elements_of(size_t i, const Box& box) {
    const FieldView& field = inputs_[i];
    if (is_contiguous(field, box)) return address_of(field, box.row, box.col);
    std::byte* const copy = values_of(i);
    if (!repeats(field, box)) copy_box(field, box, copy);
    return copy;
  }

  /// Whether the copy of the box before has the elements of this one.
  bool repeats(const FieldView& field, const Box& box) const {
    if (!is_filled_) return false;
    if (field.row_stride == 0)
      return box.rows <= filled_.rows && box.cols == filled_.cols &&
             (field.col_stride == 0 || box.col == filled_.col);
    return field.col_stride == 0 && box.rows == 1 && box.row == filled_.row && box.cols <= filled_.cols;
  }

  static void copy_box(const FieldView& field, const Box& box, std::byte* to) {
    const size_t bytes = size_of(field.type), row_bytes = box.cols * bytes;
    for (uint32_t r = 0; r < box.rows; ++r, to += row_bytes) {
      const std::byte* const from = address_of(field, box.row + r, box.col);
      if (field.col_stride == 1)
        std::memcpy(to, from, row_bytes);
      else if (field.col_stride == 0)
        bytes == sizeof(uint32_t) ? repeat<uint32_t>(from, to, box.cols)
                                  : repeat<uint16_t>(from, to, box.cols);
      else
        copy_strided(bytes, from, field.col_stride, to, 1, box.cols);
    }
  }

  /// Copies one element `count` times.
  template <class T>
  static void repeat(const std::byte* from, std::byte* to, uint32_t count) {
    const T element = load<T>(from);
    for (uint32_t i = 0; i < count; ++i) store(to + i * sizeof(T), element);
  }

  std::byte* values_of(size_t value) { return values_.data() + value * elements_ * kElementBytes; }

  const Expression& expression_;
  std::span<const FieldView> inputs_;
  uint32_t elements_;
  std::array<const std::byte*, kMostExpressionInputs + kMostExpressionSteps> at_ = {};
  alignas(64) std::array<std::byte, kBytes> values_;
  bool is_filled_ = false;
  Box filled_;
};

/// Calls visit(box) for boxes of at most `elements` elements that cover `all`, row after row: whole rows, or
/// pieces of a row of about equal length, multiples of kLineSums but for the last.
template <class Visit>
void for_each_box(const Box& all, uint32_t elements, const Visit& visit) {
  if (all.empty()) return;
  const uint32_t pieces = (all.cols - 1) / elements + 1;
  const uint32_t cols = pieces == 1 ? all.cols : round_up((all.cols - 1) / pieces + 1, kLineSums);
  const uint32_t rows = elements / cols;
  for (uint32_t r = 0; r < all.rows; r += rows)
    for (uint32_t c = 0; c < all.cols; c += cols)
      visit(Box{all.row + r, std::min(rows, all.rows - r), all.col + c, std::min(cols, all.cols - c)});
}

/// Calls visit(part) for the parts that are reduced at once.
template <class Visit>
void for_each_part(ReduceOver over, uint32_t rows, uint32_t cols, const Visit& visit) {
  const uint32_t part_rows = over == ReduceOver::columns ? kPartRows : rows;
  const uint32_t part_cols = over == ReduceOver::columns ? kPartCols : kPieceCols;
  for (uint32_t c = 0; c < cols; c += part_cols)
    for (uint32_t r = 0; r < rows; r += part_rows)
      visit(Box{r, std::min(part_rows, rows - r), c, std::min(part_cols, cols - c)});
}

void store_box(const std::byte* from, const FieldView& field, const Box& box) {
  const size_t bytes = size_of(field.type), row_bytes = box.cols * bytes;
  if (is_contiguous(field, box)) {
    std::memcpy(address_of(field, box.row, box.col), from, box.rows * row_bytes);
    return;
  }
  for (uint32_t r = 0; r < box.rows; ++r, from += row_bytes)
    if (std::byte* const to = address_of(field, box.row + r, box.col); field.col_stride == 1)
      std::memcpy(to, from, row_bytes);
    else
      copy_strided(bytes, from, 1, to, field.col_stride, box.cols);
}

/// The inputs, broadcast to a shape; `like` has their order of elements.
std::vector<FieldView> inputs_like(std::span<const FieldView> inputs, const FieldView& like,
                                   bool is_transposed) {
  std::vector<FieldView> all;
  for (const FieldView& input : inputs) {
    const FieldView whole = broadcast_to(input, like);
    all.push_back(is_transposed ? transposed(whole) : whole);
  }
  return all;
}

/// The shape of the largest input.
FieldView shape_of(std::span<const FieldView> inputs) {
  FieldView shape;
  for (const FieldView& input : inputs) {
    shape.rows = std::max(shape.rows, input.rows);
    shape.cols = std::max(shape.cols, input.cols);
  }
  return shape;
}

/// The columns of a part, of at most kPartCols.
void reduce_columns(const Expression& expression, BoxEvaluator& evaluator, const Box& part,
                    std::span<const FieldView> results) {
  const size_t count = expression.results.size();
  alignas(64) float sums[kMostExpressionResults][kPartCols];
  for (size_t r = 0; r < count; ++r) begin_columns(expression.results[r].reduction, part.cols, sums[r]);
  for_each_box(part, evaluator.elements(), [&](const Box& box) {
    evaluator.run(box);
    for (size_t r = 0; r < count; ++r)
      fold_columns(expression.results[r].reduction, evaluator.field_of(expression.results[r].value),
                   sums[r] + (box.col - part.col));
  });
  for (size_t r = 0; r < count; ++r) {
    FieldView row = results[r];
    row.data = address_of(row, part.row / kPartRows, part.col);
    row.rows = 1;
    row.cols = part.cols;
    store_columns(sums[r], expression.results[r].scale, row);
  }
}

/// The rows of a part, of at most kPieceCols. Boxes have whole rows, or follow one another in a row, whose
/// sums are kept.
void reduce_rows(const Expression& expression, BoxEvaluator& evaluator, const Box& part,
                 std::span<const FieldView> results) {
  alignas(64) float sums[kMostExpressionResults][kLineSums];
  alignas(64) float totals[kMostElements];
  for_each_box(part, evaluator.elements(), [&](const Box& box) {
    evaluator.run(box);
    const bool begins = box.col == part.col, ends = box.col_end() == part.col_end();
    for (size_t r = 0; r < results.size(); ++r) {
      const auto& [value, reduction, scale] = expression.results[r];
      if (begins && ends) {
        reduce_lines(reduction, evaluator.field_of(value), totals);
      } else {
        if (begins) begin_line(reduction, sums[r]);
        fold_line(reduction, evaluator.type_of(value), evaluator.at(value), box.cols, sums[r]);
        if (!ends) continue;
        totals[0] = end_line(reduction, sums[r]);
      }
      for (uint32_t row = 0; row < box.rows; ++row)
        set_number(results[r], box.row + row, part.col / kPieceCols, scale * totals[row]);
    }
  });
}

}  // namespace

size_t ExpressionStep::operand_count() const {
  switch (kind) {
    case Kind::none: return 0;
    case Kind::unary:
    case Kind::cast: return 1;
    case Kind::binary: return 2;
    case Kind::where: return 3;
  }
  return 0;
}

std::vector<int64_t> params_of(const Expression& expression) {
  std::vector<int64_t> params(kMostExpressionSteps);
  std::ranges::transform(expression.steps, params.begin(),
                         [](const ExpressionStep& step) { return word_of(step); });
  for (const ExpressionResult& result : expression.results) params.push_back(word_of(result));
  return params;
}

Expression expression_of(std::span<const int64_t> params, size_t results) {
  Expression expression;
  for (const int64_t word : params.first(kMostExpressionSteps))
    if (const ExpressionStep step = step_of(word); step.kind != ExpressionStep::Kind::none)
      expression.steps.push_back(step);
  for (const int64_t word : params.subspan(kMostExpressionSteps, results))
    expression.results.push_back(result_of(word));
  return expression;
}

void evaluate(const Expression& expression, std::span<const FieldView> fields) {
  const size_t count = expression.results.size(), inputs = fields.size() - count;
  std::vector<FieldView> results(fields.begin() + static_cast<std::ptrdiff_t>(inputs), fields.end());
  if (results[0].empty()) return;
  const bool is_transposed = results[0].row_stride == 1 && results[0].col_stride != 1;
  const std::vector<FieldView> given = inputs_like(fields.first(inputs), results[0], is_transposed);
  if (is_transposed)
    for (FieldView& result : results) result = transposed(result);
  BoxEvaluator evaluator(expression, given);
  for_each_box({0, results[0].rows, 0, results[0].cols}, evaluator.elements(), [&](const Box& box) {
    std::array<std::byte*, kMostExpressionSteps> stored = {};
    for (size_t r = 0; r < count; ++r)
      if (const size_t value = expression.results[r].value; is_contiguous(results[r], box) && value >= inputs)
        stored[value - inputs] = address_of(results[r], box.row, box.col);
    evaluator.run(box, stored);
    for (size_t r = 0; r < count; ++r)
      if (const std::byte* const from = evaluator.at(expression.results[r].value);
          from != address_of(results[r], box.row, box.col))
        store_box(from, results[r], box);
  });
}

void evaluate_reduced(const Expression& expression, ReduceOver over, std::span<const FieldView> fields) {
  const size_t inputs = fields.size() - expression.results.size();
  const FieldView shape = shape_of(fields.first(inputs));
  const std::vector<FieldView> given = inputs_like(fields.first(inputs), shape, false);
  BoxEvaluator evaluator(expression, given);
  for_each_part(over, shape.rows, shape.cols, [&](const Box& part) {
    if (over == ReduceOver::columns)
      reduce_columns(expression, evaluator, part, fields.subspan(inputs));
    else
      reduce_rows(expression, evaluator, part, fields.subspan(inputs));
  });
}

}  // namespace tessera::kernels
