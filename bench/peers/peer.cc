#include "peers/peer.h"

#include <algorithm>

#include "sparse/pattern.h"

namespace tessera::bench {
namespace {

/// The three products of training, one after another.
class Triple : public PreparedProduct {
 public:
  Triple(Peer& peer, Work work) {
    for (const Task task : kProducts) {
      work.task = task;
      products_.push_back(peer.prepare(work));
    }
  }

  void run(const Arrays& arrays) override {
    for (const auto& product : products_) product->run(arrays);
  }
  uint64_t gradient_size() const override { return products_.back()->gradient_size(); }
  void get_gradient(const float* dw, std::span<float> stored) const override {
    products_.back()->get_gradient(dw, stored);
  }
  uint64_t weight_bytes() const override { return products_.front()->weight_bytes(); }
  double predicted_seconds() const override {
    double seconds = 0;
    for (const auto& product : products_) seconds += product->predicted_seconds();
    return seconds;
  }

 private:
  std::vector<std::unique_ptr<PreparedProduct>> products_;
};

}  // namespace

std::string_view name_of(Task task) {
  switch (task) {
    case Task::forward: return "forward";
    case Task::input_gradient: return "input_gradient";
    case Task::sddmm: return "sddmm";
    case Task::triple: return "triple";
  }
  return "";
}

std::string forward_only(const Work& work) {
  return work.task == Task::forward ? "" : "compared in forward products only";
}

void pick_gradient(const Pattern& pattern, const float* dense, std::span<float> stored) {
  std::ranges::copy(sparse::values_at(pattern, {dense, uint64_t{pattern.rows} * pattern.cols}),
                    stored.begin());
}

std::unique_ptr<PreparedProduct> prepare(Peer& peer, const Work& work) {
  if (work.task == Task::triple) return std::make_unique<Triple>(peer, work);
  return peer.prepare(work);
}

}  // namespace tessera::bench
