// How a family states its codelets: the fields and parameters of each, once and in order, and the list of
// all.
//
//   #define TESSERA_CAST_FIELDS(X) X(in) X(out, .access = program::Access::out)
//   namespace cast_field { enum : size_t { TESSERA_CAST_FIELDS(TESSERA_POSITION) count }; }
//   constexpr program::FieldSpec kFields[] = {TESSERA_CAST_FIELDS(TESSERA_FIELD)};
//
// Code says fields[cast_field::out], so that positions follow from the list and stand nowhere else. The same
// goes for parameters, which have a name and nothing beside it.
#pragma once

#include <cassert>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "program/codelet.h"

#define TESSERA_POSITION(name, ...) name,
#define TESSERA_FIELD(field, ...) program::FieldSpec{.name = #field __VA_OPT__(, ) __VA_ARGS__},
#define TESSERA_NAME(name) #name,

namespace tessera::kernels {

/// A codelet as its family lists it. Without reference and cost it does not compile.
struct ListedCodelet {
  consteval ListedCodelet(const program::Codelet& listed) : codelet(&listed) {
    if (listed.reference == nullptr) throw "a codelet needs a reference";
    if (listed.cost == nullptr) throw "a codelet needs a cost";
    if (listed.fields.size() > program::kMaxFields) throw "a codelet has too many fields";
    if (listed.params.size() > program::kMaxParams) throw "a codelet has too many parameters";
  }

  const program::Codelet* codelet;
};

/// Fields or parameters of a vertex in the codelet's order, each given with its position, in any order:
/// in_order<cast_field::count, Field>({{cast_field::out, y}, {cast_field::in, x}}).
template <size_t count, class T>
std::vector<T> in_order(std::initializer_list<std::pair<size_t, T>> given) {
  assert(given.size() == count);
  std::vector<T> ordered(count);
  for (const auto& [position, item] : given) ordered[position] = item;
  return ordered;
}

}  // namespace tessera::kernels
