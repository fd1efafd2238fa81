// A dense weight on a host: in panels of output features.
#pragma once

#include <optional>

#include "lower/weight.h"
#include "ops/layout.h"

namespace tessera::graph {

class HostDenseWeight : public LinearWeight {
 public:
  explicit HostDenseWeight(const TensorType& type)
      : type_(type.type), panels_{type.shape.at(0), type.shape.at(1)} {}

  ops::OperandLayout layout() const override { return ops::panel_layout(panels_); }
  Type type() const override { return type_; }
  Type gradient_type() const override { return type_; }
  Type activation_type() const override { return type_; }
  ValueLayout activations() const override { return kRows; }
  bool takes_mask() const override { return true; }
  bool can_add() const override { return true; }
  program::StepId add(const ops::Builder& builder, const LinearCall& call) override;
  std::optional<program::StepId> add_updating(const ops::Builder& builder, const LinearCall& call,
                                              const LinearUpdate& update) override;

 private:
  Type type_;
  ops::PanelLayout panels_;
};

}  // namespace tessera::graph
