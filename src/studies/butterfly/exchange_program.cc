#include "studies/butterfly/exchange_program.h"

#include <numeric>
#include <vector>

namespace tessera::studies::butterfly {

using program::BoxSeries;
using program::Role;

program::Program exchange_program(uint32_t tiles, uint32_t distance, uint32_t senders, uint32_t words) {
  std::vector<program::MappedBox> from, to;
  for (uint32_t s = 0; s < senders; ++s) {
    from.push_back({{s, 1, 0, words}, s});
    to.push_back({{s, 1, 0, words}, (s + distance) % tiles});
  }
  program::Program p;
  p.add({"sent", Type::u32, senders, words, Role::input, std::move(from), {}});
  p.add({"received", Type::u32, senders, words, Role::output, std::move(to), {}});
  const BoxSeries rows = BoxSeries::stepped({0, 1, 0, words}, {1, 0});
  p.set_main(p.copy({"exchange",
                     {{.from = 0,
                       .to = 1,
                       .count = senders,
                       .source = rows,
                       .target = rows,
                       .source_rows = {},
                       .source_offset = {},
                       .target_offset = {}}}}));
  return p;
}

bool moves_every_element(const bound::BoundProgram& program) {
  const bound::NamedOperand& sent = program.operands()[0];
  std::vector<uint32_t> data(uint64_t{sent.rows} * sent.cols), arrived(data.size());
  std::iota(data.begin(), data.end(), 1U);
  program.run(bound::Arrays(program).add(data.data()).add(arrived.data()));
  return arrived == data;
}

}  // namespace tessera::studies::butterfly
