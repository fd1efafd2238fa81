#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/structured.h>

#include <algorithm>
#include <memory>

namespace tessera {
namespace {

/// The samples between maps: [map][batch · its outputs], for all but the last map.
class Between {
 public:
  explicit Between(const std::vector<StructuredProduct>& maps) {
    for (size_t i = 0; i + 1 < maps.size(); ++i)
      samples_.push_back(
          std::make_unique_for_overwrite<float[]>(size_t{maps[i].batch()} * outputs_of(maps[i].structure())));
  }

  float* after(size_t map) const { return samples_[map].get(); }

 private:
  std::vector<std::unique_ptr<float[]>> samples_;
};

/// Applies the first `count` maps; the last of the chain writes y.
void run(const std::vector<StructuredProduct>& maps, size_t count, const float* x,
         std::span<const float* const> parameters, const Between& between, float* y) {
  for (size_t i = 0, begin = 0; i < count; begin += maps[i++].parameters().size())
    maps[i](i == 0 ? x : between.after(i - 1), parameters.subspan(begin, maps[i].parameters().size()),
            i + 1 == maps.size() ? y : between.after(i));
}

void require_count(size_t have, size_t want, std::string_view what) {
  if (have != want)
    throw UsageError(fmt::format("the maps have {} parameters; given are {} {}", want, have, what));
}

}  // namespace

StructuredChain::StructuredChain(std::span<const Structure> maps, uint32_t batch,
                                 const StructuredOptions& options) {
  if (maps.empty()) throw UsageError("a chain of no maps; give at least one");
  for (size_t i = 0; i < maps.size(); ++i) {
    if (i > 0 && inputs_of(maps[i]) != outputs_of(maps[i - 1]))
      throw UsageError(fmt::format("map {} of the chain, a {}, has {} inputs; the one before has {} outputs",
                                   i, name_of(maps[i]), inputs_of(maps[i]), outputs_of(maps[i - 1])));
    StructuredOptions of_map = options;
    of_map.bias = options.bias && i + 1 == maps.size();
    maps_.emplace_back(maps[i], batch, of_map);
    std::ranges::copy(maps_.back().parameters(), std::back_inserter(parameters_));
  }
}

void StructuredChain::operator()(const float* x, std::span<const float* const> parameters, float* y) const {
  require_count(parameters.size(), parameters_.size(), "parameters");
  run(maps_, maps_.size(), x, parameters, Between(maps_), y);
}

void StructuredChain::gradients(const float* x, const float* dy, std::span<const float* const> parameters,
                                float* dx, std::span<float* const> parameter_gradients) const {
  require_count(parameters.size(), parameters_.size(), "parameters");
  if (!parameter_gradients.empty())
    require_count(parameter_gradients.size(), parameters_.size(), "parameter gradients");
  if (dx == nullptr && parameter_gradients.empty()) return;
  const Between outputs(maps_), output_gradients(maps_);
  run(maps_, maps_.size() - 1, x, parameters, outputs, nullptr);
  size_t end = parameters_.size();
  for (size_t i = maps_.size(); i-- > 0;) {
    const size_t count = maps_[i].parameters().size();
    end -= count;
    maps_[i].gradients(
        i == 0 ? x : outputs.after(i - 1), i + 1 == maps_.size() ? dy : output_gradients.after(i),
        parameters.subspan(end, count), i == 0 ? dx : output_gradients.after(i - 1),
        parameter_gradients.empty() ? parameter_gradients : parameter_gradients.subspan(end, count));
  }
}

}  // namespace tessera
