// From the lengths of sequences to packs and the inputs of a training step.
//   example_pack [FILE]      lengths: .npy of integers or text; without it, a few synthetic ones
#include <tessera/packing.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "arguments.h"

namespace {

int run(const example::Arguments& arguments) {
  namespace pack = tessera::pack;
  const std::vector<uint32_t> synthetic = {300, 120, 500, 90, 210, 512, 30, 180, 60, 400};
  const pack::Lengths lengths = arguments.has("FILE") ? pack::read_lengths(arguments.text("FILE"))
                                                      : pack::Lengths(std::span<const uint32_t>(synthetic));

  const pack::Input input = pack::count(lengths, 512, pack::Overlong::split);
  const pack::Packing packing = pack::plan(input.histogram);
  const pack::PackIndex index = pack::index_packs(packing, input, lengths, {.shuffle = 1});
  std::printf("%llu packs, at least %llu needed, %.2f %% of their tokens used\n",
              static_cast<unsigned long long>(packing.packs()),
              static_cast<unsigned long long>(packing.lower_bound()), 100 * packing.efficiency());

  if (packing.packs() == 0) return 0;
  const std::vector<uint32_t> in_pack = pack::entry_lengths(index, lengths, 0);
  const std::vector<int32_t> boundaries = pack::cu_seqlens(in_pack);  // for attention without padding
  std::vector<int32_t> positions(512);
  pack::position_ids(in_pack, positions);  // begin at 0 in each sequence
  for (size_t i = 0; i < in_pack.size(); ++i)
    std::printf("sequence %llu has tokens %d to %d of pack 0\n",
                static_cast<unsigned long long>(index.sequence[index.offsets[0] + i]), boundaries[i],
                boundaries[i + 1] - 1);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run({.program = "example_pack", .takes_file = true}, argc, argv, run);
}
