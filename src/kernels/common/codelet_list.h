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

#include <span>

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

}  // namespace tessera::kernels
