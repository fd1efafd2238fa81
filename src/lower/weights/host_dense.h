// A dense weight on a host: in panels of output features.
#pragma once

#include <vector>

#include "lower/weight.h"
#include "ops/dense/host/panels.h"

namespace tessera::graph {

class HostDenseWeight : public LinearWeight {
 public:
  explicit HostDenseWeight(const TensorType& type)
      : type_(type.type), panels_{type.shape.at(0), type.shape.at(1)} {}

  ops::OperandLayout layout() const override { return {.rows = panels_.rows(), .cols = panels_.cols()}; }
  Type type() const override { return type_; }
  Type gradient_type() const override { return type_; }
  Type activation_type() const override { return type_; }
  ValueLayout activations() const override { return kRows; }
  std::optional<uint32_t> panel_rows() const override { return ops::PanelLayout::kRows; }
  std::optional<kernels::ElementOrder> order() const override {
    constexpr uint32_t kPanel = ops::PanelLayout::kRows;
    return kernels::ElementOrder{kPanel * panels_.k, kPanel, 1, panels_.k};
  }
  bool takes_mask() const override { return true; }
  bool takes_windows() const override { return true; }
  bool can_add() const override { return true; }
  program::StepId add(const ops::Builder& builder, const LinearCall& call) override;
  std::optional<program::StepId> add_updating(const ops::Builder& builder, const LinearCall& call,
                                              const LinearUpdate& update) override;
  ops::Operand matrix_of(const ops::Builder& builder, const ops::Operand& stored,
                         const ops::OperandLayout& wants, std::vector<program::StepId>& steps) const override;
  ops::Operand stored_of(const ops::Builder& builder, const ops::Operand& matrix,
                         const ops::OperandLayout& has, std::vector<program::StepId>& steps) const override;
  std::vector<float> store(std::span<const float> values) const override;
  std::vector<float> load(std::span<const float> stored) const override;

 private:
  program::CopyGroup panels_to_columns(program::VariableId panels, program::VariableId columns) const;
  ops::Operand columns(const ops::Builder& builder, const ops::Operand& like) const;
  ops::OperandLayout transposed() const;

  Type type_;
  ops::PanelLayout panels_;
};

}  // namespace tessera::graph
