#include "studies/paper/measure_session.h"

#include "base/clock.h"
#include "base/median.h"
#include "kernels/common/numbers.h"

namespace tessera::studies {

GraphArrays::GraphArrays(const graph::Session& session, const graph::Arrays& inputs) {
  for (const auto& [name, type, is_input] : session.arrays()) {
    if (is_input)
      bytes_[name] = kernels::as_type(inputs.at(name), type.type);
    else
      bytes_[name].resize(type.bytes());
  }
  for (auto& [name, bytes] : bytes_) tensors_.push_back({name, bytes.data()});
}

double run_seconds(graph::Session& session, std::span<const graph::Tensor> arrays) {
  return base::seconds_of([&] { session.run(arrays); });
}

double median_seconds(graph::Session& session, const graph::Arrays& inputs) {
  constexpr double kEnough = 0.3;
  constexpr size_t kLeast = 5;
  const GraphArrays arrays(session, inputs);
  session.run(arrays.tensors());
  std::vector<double> times;
  for (double total = 0; total < kEnough || times.size() < kLeast; total += times.back())
    times.push_back(run_seconds(session, arrays.tensors()));
  return base::median(times);
}

}  // namespace tessera::studies
