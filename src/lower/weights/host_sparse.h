// A sparse weight on a host: packed values, with the index on top.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/window.h"
#include "lower/weight.h"
#include "ops/sparse/host/adjoint.h"
#include "ops/sparse/host/weight.h"

namespace tessera::graph {

class HostSparseWeight : public LinearWeight {
 public:
  HostSparseWeight(const TensorType& type, const std::string& name);

  ops::OperandLayout layout() const override;
  Type type() const override { return weight_->type(); }
  Type gradient_type() const override { return Type::f32; }
  Type activation_type() const override { return Type::f32; }
  Type activation_type_of(const ops::Builder& builder, const LinearCall& call) const override;
  bool can_add() const override { return true; }
  bool gradient_has_gaps() const override { return weight_->is_dynamic() && weight_->has_blocks(); }
  program::StepId add(const ops::Builder& builder, const LinearCall& call) override;
  program::StepId add_taking(const ops::Builder& builder, const RowsCall& call) override;
  program::StepId add_summing(const ops::Builder& builder, const RowsCall& call) override;
  std::vector<float> store(std::span<const float> values) const override { return pack(*weight_, values); }
  std::vector<float> load(std::span<const float> stored) const override { return unpack(*weight_, stored); }
  std::vector<engine::Binding> bindings() override;
  Pattern pattern() const override { return weight_->pattern(); }
  void set_pattern(const Pattern& pattern) override;

 private:
  /// The weight of the adjoint of a convolution, and its index in the program.
  struct Adjoint {
    sparse::AdjointPlaces places;
    std::shared_ptr<ops::AdjointWeight> weight;
    ops::WeightIndex index;
  };

  Adjoint& adjoint_with(const sparse::AdjointPlaces& places);
  program::StepId add_adjoint(const ops::Builder& builder, const LinearCall& call,
                              const ops::AdjointTaps& taps);
  program::StepId add_folded(const ops::Builder& builder, const LinearCall& call);

  std::string name_;
  std::shared_ptr<ops::PackedWeight> weight_;
  ops::WeightIndex index_;
  std::list<Adjoint> adjoints_;
  std::vector<ProductKind> products_;
};

}  // namespace tessera::graph
