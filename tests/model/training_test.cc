// Training steps compared with float64, step by step.
#include <gtest/gtest.h>

#include "networks.h"

namespace tessera::model {
namespace {

constexpr uint32_t kSteps = 6;

struct Setting {
  const char* name;
  const char* machine;
  Layers layers;
  TrainingOptions options;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) { return out << setting.name; }

const Setting kSettings[] = {
    {"host_dense_sgd", "host", Layers::dense, {Sgd{}, {}}},
    {"host_dense_momentum", "host", Layers::dense, {Sgd{.momentum = 0.9}, {}}},
    {"host_dense_nesterov_clipped",
     "host",
     Layers::dense,
     {Sgd{.momentum = 0.9, .decay = 0.01, .nesterov = true}, 0.5}},
    {"host_dense_adamw",
     "host",
     Layers::dense,
     {Adam{.epsilon = 1e-3, .decay = 0.01, .decoupled = true}, {}}},
    {"host_sparse_momentum", "host", Layers::sparse, {Sgd{.momentum = 0.9}, {}}},
    {"host_sparse_adam_clipped", "host", Layers::sparse, {Adam{.epsilon = 1e-3}, 0.5}},
    {"host_dynamic_momentum_clipped", "host", Layers::dynamic, {Sgd{.momentum = 0.9}, 0.5}},
    {"host_dense_micro_batches", "host", Layers::dense, {Sgd{.momentum = 0.9}, 0.5, 3}},
    {"host_sparse_micro_batches", "host", Layers::sparse, {Adam{.epsilon = 1e-3}, {}, 4}},
    {"bow_dense_micro_batches", "bow", Layers::dense, {Sgd{.momentum = 0.9}, {}, 2}},
    {"bow_dense_momentum", "bow", Layers::dense, {Sgd{.momentum = 0.9}, {}}},
    {"bow_sparse_adam_clipped", "bow", Layers::sparse, {Adam{.epsilon = 1e-3}, 0.5}},
    {"bow_dynamic_momentum", "bow", Layers::dynamic, {Sgd{.momentum = 0.9}, {}}},
};

class Training : public testing::TestWithParam<Setting> {};

TEST_P(Training, AgreesWithFloat64) {
  const Setting& setting = GetParam();
  Classifier network(setting.layers, setting.options.micro_batches == 1);
  add_training(network.loss, setting.options);
  Session session(network.graph, Machine::find(setting.machine, 2));
  WideArrays state = widened(initial_state(network.graph));
  for (uint32_t step = 1; step <= kSteps; ++step) {
    const WideArrays inputs = network.inputs(step);
    const double expected = evaluate(network.graph, inputs, state).at("loss")[0];
    ASSERT_NEAR(session.run(narrowed(inputs)).at("loss")[0], expected, 1e-5 * std::max(1.0, expected))
        << "step " << step;
  }
  for (const auto& [name, values] : session.state())
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], state.at(name)[i], 1e-4 * std::max(1.0, std::abs(state.at(name)[i])))
          << name << ", element " << i;
}

INSTANTIATE_TEST_SUITE_P(Model, Training, testing::ValuesIn(kSettings),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::model
