#include "lower/shards.h"

#include "program/collective.h"

namespace tessera::graph {
namespace {

/// Calls visit(place in the part, place in the whole) for each element of a replica's part.
template <class Visit>
void each_element(const PartOfVariable& of, uint32_t replica, const Visit& visit) {
  for (size_t i = 0; i < of.whole.mapping.size(); ++i) {
    const program::Box& box = of.whole.mapping[i].box;
    const uint64_t begin = program::chunk_begin(box.elements(), replica, of.replicas),
                   end = program::chunk_begin(box.elements(), replica + 1, of.replicas);
    uint64_t place = of.part.mapping[i].box.col;
    for (uint64_t e = begin; e < end; ++e)
      visit(place++, (box.row + e / box.cols) * of.whole.cols + box.col + e % box.cols);
  }
}

}  // namespace

std::vector<float> take_part(const PartOfVariable& of, std::span<const float> whole, uint32_t replica) {
  std::vector<float> part(of.part.elements());
  each_element(of, replica, [&](uint64_t own, uint64_t place) { part[own] = whole[place]; });
  return part;
}

void put_part(const PartOfVariable& of, std::span<const float> part, uint32_t replica,
              std::span<float> whole) {
  each_element(of, replica, [&](uint64_t own, uint64_t place) { whole[place] = part[own]; });
}

}  // namespace tessera::graph
