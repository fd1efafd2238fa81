// Descriptions of the structures of programs and executables, for archives.
#pragma once

#include <limits>

#include "compiler/archive.h"
#include "compiler/executable.h"

namespace tessera::compiler {

/// Describes a structure by its members, all of them, in their order.
#define TESSERA_PARTS(Structure, ...) \
  template <class A>                  \
  void describe(A& a, Structure& x) { \
    auto& [__VA_ARGS__] = x;          \
    a(__VA_ARGS__);                   \
  }

#define TESSERA_LAST(Enum, last) \
  template <>                    \
  inline constexpr Enum kLast<Enum> = Enum::last;

TESSERA_LAST(Type, f64)
TESSERA_LAST(program::Role, argument)
TESSERA_LAST(program::Access, inout)
TESSERA_LAST(program::Purpose, metadata)
TESSERA_LAST(program::CollectiveKind, scatter)
TESSERA_LAST(program::CollectiveAlgorithm, tree)
TESSERA_LAST(program::Phase, control)
TESSERA_LAST(Store, argument)

}  // namespace tessera::compiler

namespace tessera::program {

TESSERA_PARTS(Box, row, rows, col, cols)
TESSERA_PARTS(MappedBox, box, tile)
TESSERA_PARTS(PhaseTimes, at)

/// The size of constants and state contents follows from their shape.
template <class A>
void describe(A& a, Variable& x) {
  a(x.name, x.type, x.rows, x.cols, x.role, x.mapping, x.purpose, x.streaming);
  bool has_contents = x.contents != nullptr;
  a(has_contents);
  if (!has_contents) return;
  if constexpr (A::kReads) {
    if (x.elements() > std::numeric_limits<uint64_t>::max() / size_of(x.type))
      throw Error("it has too long a constant");
    a.require(x.bytes());
    auto bytes = std::make_shared<std::vector<std::byte>>(x.bytes());
    a.raw(bytes->data(), bytes->size());
    x.contents = {bytes, bytes->data()};
  } else {
    a.raw(x.contents.get(), x.bytes());
  }
}

TESSERA_PARTS(BoxSeries::Step, row, col)
template <class A>
void describe(A& a, BoxSeries& x) {
  Box first = x.first();
  BoxSeries::Step outer = x.outer();
  BoxSeries::Step inner = x.inner();
  uint32_t inner_count = x.inner_count();
  std::vector<Box> table = x.boxes();
  a(first, outer, inner_count, inner, table);
  if constexpr (A::kReads)
    x = table.empty() ? BoxSeries::grid(first, outer, inner_count, inner)
                      : BoxSeries::table(std::move(table));
}

TESSERA_PARTS(RuntimeRow, index, stride)
TESSERA_PARTS(Field, variable, boxes, row)
TESSERA_PARTS(Param, value, table)

/// Codelets are stored by name.
template <class A>
void describe(A& a, const Codelet*& x) {
  std::string name(x != nullptr ? x->name : "");
  a(name);
  if constexpr (A::kReads) {
    x = a.find_codelet(name);
    if (x == nullptr) throw Error(fmt::format("it runs a codelet '{}', which this build lacks", name));
  }
}
TESSERA_PARTS(VertexGroup, codelet, first_tile, tiles, per_tile, fields, params)
TESSERA_PARTS(ComputeSet, name, phase, groups, ordered)
TESSERA_PARTS(CopyGroup, from, to, count, source, target, source_rows, source_offset, target_offset)
TESSERA_PARTS(CopySet, name, groups)
TESSERA_PARTS(Exchanged, whole, part, buffer)
template <class A>
void describe(A& a, Collective& x) {
  a(x.name, x.kind, x.algorithm);
  bool adds = x.add != nullptr;
  a(adds);
  if (adds) a(x.add);
  a(x.variables, x.group);
}
TESSERA_PARTS(LinkLoad, from, to, bytes)
TESSERA_PARTS(TiedChips, chips, cycles)
TESSERA_PARTS(Sequence, steps)
TESSERA_PARTS(Execute, set)
TESSERA_PARTS(Copy, set, beside)
TESSERA_PARTS(Collect, collective, beside)
TESSERA_PARTS(Repeat, count, body, counter)
TESSERA_PARTS(While, test, condition, body)
TESSERA_PARTS(If, condition, then, otherwise)
TESSERA_PARTS(CallOperand, variable, box)
TESSERA_PARTS(Call, function, operands)
TESSERA_PARTS(Argument, variable, access)
TESSERA_PARTS(Function, name, body, arguments)

/// Programs are built by adding elements: one list per kind.
template <class A>
void describe(A& a, Program& x) {
  const auto list = [&](const auto& items) {
    auto copy = items;
    a(copy);
    if constexpr (A::kReads)
      for (auto& item : copy) x.add(std::move(item));
  };
  list(x.variables());
  list(x.compute_sets());
  list(x.copy_sets());
  list(x.collectives());
  list(x.functions());
  list(x.steps());
  StepId main = x.main();
  a(main);
  x.set_main(main);
  uint32_t replicas = x.replicas();
  a(replicas);
  x.set_replicas(replicas);
}

}  // namespace tessera::program

namespace tessera::compiler {

TESSERA_PARTS(BoxAddress, offset, space, stride, store, moves)
TESSERA_PARTS(Transfer, from, to, rows, cols, type, runtime)
TESSERA_PARTS(RuntimeRows::End, row, variable, room)
TESSERA_PARTS(RuntimeRows, from, to)
TESSERA_PARTS(Balance, least, mean, most)
TESSERA_PARTS(ChipCycles, chip, cycles)
TESSERA_PARTS(CollectiveCost, cycles, under_way, chips, bytes, links)
TESSERA_PARTS(ExchangeCost, cycles, tiles, bytes, tied, links)
TESSERA_PARTS(Exchange, transfers, runtime_rows, cost)
TESSERA_PARTS(CompiledVertex, group, index, first_place)
TESSERA_PARTS(CompiledSet, before, after, tiles, tile_begin, vertices, places, tile_cycles, balance,
              chip_cycles)
TESSERA_PARTS(TileMemory, bytes, purposes, end)
TESSERA_PARTS(MemoryReport, tiles, shared, total_bytes, max_tile_bytes, tile_capacity_bytes, overflow_bytes,
              fullest_tile, total, fullest, total_purposes, fullest_purposes, streaming_bytes,
              streaming_capacity_bytes)
TESSERA_PARTS(ArenaAddresses, base, cut, gap)
TESSERA_PARTS(PassRecord, name, did, seconds)

/// All of an executable except the program, the machine and what follows from these.
template <class A>
void describe(A& a, Executable& x) {
  a(x.sets, x.copies, x.collectives, x.mapped, x.arena_bytes, x.addresses, x.set_cycles, x.memory, x.passes);
}

}  // namespace tessera::compiler
