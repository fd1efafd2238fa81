// The parts of the structures of programs and executables, for archives.
#pragma once

#include <limits>

#include "compiler/archive.h"
#include "compiler/executable.h"

namespace tessera::compiler {

template <>
inline constexpr Type kLast<Type> = Type::f64;
template <>
inline constexpr program::Role kLast<program::Role> = program::Role::argument;
template <>
inline constexpr program::Access kLast<program::Access> = program::Access::inout;
template <>
inline constexpr program::Purpose kLast<program::Purpose> = program::Purpose::metadata;
template <>
inline constexpr program::CollectiveKind kLast<program::CollectiveKind> = program::CollectiveKind::all_gather;
template <>
inline constexpr program::CollectiveAlgorithm kLast<program::CollectiveAlgorithm> =
    program::CollectiveAlgorithm::tree;
template <>
inline constexpr program::Phase kLast<program::Phase> = program::Phase::control;
template <>
inline constexpr Store kLast<Store> = Store::contents;

}  // namespace tessera::compiler

namespace tessera::program {

template <class A>
void describe(A& a, Box& x) {
  a(x.row, x.rows, x.col, x.cols);
}
template <class A>
void describe(A& a, MappedBox& x) {
  a(x.box, x.tile);
}
template <class A>
void describe(A& a, PhaseTimes& x) {
  a(x.at);
}

/// The size of constants and state contents follows from their shape.
template <class A>
void describe(A& a, Variable& x) {
  a(x.name, x.type, x.rows, x.cols, x.role, x.mapping, x.purpose);
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

template <class A>
void describe(A& a, BoxSeries::Step& x) {
  a(x.row, x.col);
}
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

template <class A>
void describe(A& a, RuntimeRow& x) {
  a(x.index, x.stride);
}
template <class A>
void describe(A& a, Field& x) {
  a(x.variable, x.boxes, x.row);
}
template <class A>
void describe(A& a, Param& x) {
  a(x.value, x.table);
}

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
template <class A>
void describe(A& a, VertexGroup& x) {
  a(x.codelet, x.first_tile, x.tiles, x.per_tile, x.fields, x.params);
}
template <class A>
void describe(A& a, ComputeSet& x) {
  a(x.name, x.phase, x.groups, x.ordered);
}

template <class A>
void describe(A& a, CopyGroup& x) {
  a(x.from, x.to, x.count, x.source, x.target, x.source_rows, x.source_offset, x.target_offset);
}
template <class A>
void describe(A& a, CopySet& x) {
  a(x.name, x.groups);
}

template <class A>
void describe(A& a, Exchanged& x) {
  a(x.whole, x.part, x.buffer);
}
template <class A>
void describe(A& a, Collective& x) {
  a(x.name, x.kind, x.algorithm);
  bool adds = x.add != nullptr;
  a(adds);
  if (adds) a(x.add);
  a(x.variables);
}
template <class A>
void describe(A& a, LinkLoad& x) {
  a(x.from, x.to, x.bytes);
}
template <class A>
void describe(A& a, TiedChips& x) {
  a(x.chips, x.cycles);
}

template <class A>
void describe(A& a, Sequence& x) {
  a(x.steps);
}
template <class A>
void describe(A& a, Execute& x) {
  a(x.set);
}
template <class A>
void describe(A& a, Copy& x) {
  a(x.set);
}
template <class A>
void describe(A& a, Collect& x) {
  a(x.collective);
}
template <class A>
void describe(A& a, Repeat& x) {
  a(x.count, x.body, x.counter);
}
template <class A>
void describe(A& a, While& x) {
  a(x.test, x.condition, x.body);
}
template <class A>
void describe(A& a, If& x) {
  a(x.condition, x.then, x.otherwise);
}
template <class A>
void describe(A& a, CallOperand& x) {
  a(x.variable, x.box);
}
template <class A>
void describe(A& a, Call& x) {
  a(x.function, x.operands);
}
template <class A>
void describe(A& a, Argument& x) {
  a(x.variable, x.access);
}
template <class A>
void describe(A& a, Function& x) {
  a(x.name, x.body, x.arguments);
}

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

template <class A>
void describe(A& a, Place& x) {
  a(x.offset, x.space, x.stride, x.store, x.moves);
}
template <class A>
void describe(A& a, Transfer& x) {
  a(x.from, x.to, x.rows, x.cols, x.type, x.runtime);
}
template <class A>
void describe(A& a, RuntimeRows::End& x) {
  a(x.row, x.variable, x.room);
}
template <class A>
void describe(A& a, RuntimeRows& x) {
  a(x.from, x.to);
}
template <class A>
void describe(A& a, Balance& x) {
  a(x.least, x.mean, x.most);
}
template <class A>
void describe(A& a, ChipCycles& x) {
  a(x.chip, x.cycles);
}
template <class A>
void describe(A& a, CollectiveCost& x) {
  a(x.cycles, x.bytes, x.links);
}
template <class A>
void describe(A& a, ExchangeCost& x) {
  a(x.cycles, x.tiles, x.bytes, x.tied, x.links);
}
template <class A>
void describe(A& a, Exchange& x) {
  a(x.transfers, x.runtime_rows, x.cost);
}
template <class A>
void describe(A& a, CompiledVertex& x) {
  a(x.group, x.index, x.first_place);
}
template <class A>
void describe(A& a, CompiledSet& x) {
  a(x.before, x.after, x.tiles, x.tile_begin, x.vertices, x.places, x.tile_cycles, x.balance, x.chip_cycles);
}
template <class A>
void describe(A& a, TileMemory& x) {
  a(x.bytes, x.purposes, x.end);
}
template <class A>
void describe(A& a, MemoryReport& x) {
  a(x.tiles, x.shared, x.total_bytes, x.max_tile_bytes, x.tile_capacity_bytes, x.overflow_bytes,
    x.fullest_tile, x.total, x.fullest, x.total_purposes, x.fullest_purposes);
}
template <class A>
void describe(A& a, ArenaAddresses& x) {
  a(x.base, x.cut, x.gap);
}
template <class A>
void describe(A& a, PassRecord& x) {
  a(x.name, x.did, x.seconds);
}

/// Everything except the program, the machine and what follows from them.
template <class A>
void describe(A& a, Executable& x) {
  a(x.sets, x.copies, x.collectives, x.mapped, x.arena_bytes, x.addresses, x.set_cycles, x.memory, x.passes);
}

}  // namespace tessera::compiler
