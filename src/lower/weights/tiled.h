// A weight on a tiled machine, dense or sparse, laid out by the plan of its forward product.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lower/weight.h"
#include "ops/tiles/product.h"

namespace tessera::graph {

class TiledWeight : public LinearWeight {
 public:
  TiledWeight(const ops::Builder& builder, const TensorType& type, std::string name, const WeightUse& use);

  ops::OperandLayout layout() const override { return forward().layouts.values; }
  Type type() const override { return type_; }
  Type gradient_type() const override { return type_; }
  Type activation_type() const override { return type_; }
  std::optional<PartedActivations> parted_activations(ProductKind product, uint32_t n) override;
  program::StepId add(const ops::Builder& builder, const LinearCall& call) override;
  std::vector<float> store(std::span<const float> values) const override;
  std::vector<float> load(std::span<const float> stored) const override;
  std::vector<engine::Binding> bindings() override;
  Pattern pattern() const override { return pattern_; }
  void set_pattern(const Pattern& pattern) override;

 private:
  /// Plans differ by the product and the rows of the batch.
  using Key = std::pair<ProductKind, uint32_t>;

  /// A forward product, and its gradients in its partition.
  struct Products {
    bool misfit = false;
    double seconds = 0;  ///< of all of them
    uint64_t bytes = 0;  ///< of the fullest tile, in the product that takes the most
  };

  ops::TileProductPlan plan_forward(const WeightUse& use) const;
  ops::TileProductPlan plan_beside_rows(const ops::ProductProblem& problem) const;
  ops::TileProductPlan plan_with_gradients(ops::TileProductPlan forward) const;
  ops::TileProductPlan plan_table(const WeightUse& use, ops::TileProductPlan best) const;
  Products products_in(const ops::TileProductPlan& forward, bool has_gradients) const;
  double seconds_of_rows(const ops::TileProductPlan& forward, const WeightUse& use) const;
  const ops::TileProductPlan& forward() const { return plans_.at({ProductKind::forward, n_}); }
  const ops::TileProductPlan& plan(ProductKind product, uint32_t n);
  ops::ProductProblem problem_of(ProductKind product, uint32_t n) const;
  ops::DynamicShape dynamic_shape() const;
  ops::ForcedKnobs knobs() const;

  machine::Machine machine_;
  Type type_;
  Type partials_;
  std::optional<uint64_t> rounding_;  ///< of partial sums; see TiledNumbers
  std::string name_;
  bool dense_;
  bool forward_only_;
  std::optional<uint64_t> capacity_;
  uint32_t n_;
  Pattern pattern_;
  std::map<Key, ops::TileProductPlan> plans_;
  ops::TileProductProgram order_;  ///< order of the stored values
  std::optional<ops::Operand> metadata_;
  std::optional<ops::DynamicEncoding> encoding_;
};

}  // namespace tessera::graph
