// Macros by which a family of codelets lists its codelets, with the fields and parameters of each, once.
//
//   #define TESSERA_CAST_FIELDS(X) X(in) X(out, .access = program::Access::out)
//   #define TESSERA_CAST_CODELETS(X) X(cast, TESSERA_CAST_FIELDS, TESSERA_NONE, cast_simd, 384)
//   TESSERA_DECLARE_FAMILY(cast, TESSERA_CAST_CODELETS)                   // in codelet.h
//   TESSERA_DEFINE_FAMILY(cast, TESSERA_CAST_CODELETS, TESSERA_CODELET)   // in codelet.cc
//
// An entry is the codelet's name, its fields, its parameters, its SIMD form or nullptr, its code's bytes on a
// tile, and further members of program::Codelet. It makes cast_codelet of cast_reference(), cast_simd() and
// cast_cost(). A family whose functions are in several files declares them with
// TESSERA_CAST_CODELETS(TESSERA_DECLARE_FUNCTIONS). Code uses fields[cast_field::out], so that positions
// follow from the list alone. Parameters have a name and nothing beside it; since codelets may share them,
// their positions are declared with TESSERA_POSITIONS.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

#include "program/codelet.h"

#define TESSERA_POSITION(name, ...) name,
#define TESSERA_FIELD(field, ...) program::FieldSpec{.name = #field __VA_OPT__(, ) __VA_ARGS__},
#define TESSERA_NAME(name) #name,

/// No parameters.
#define TESSERA_NONE(X)

/// The positions of a list's names, and their count.
#define TESSERA_POSITIONS(names, LIST)            \
  namespace names {                               \
  enum : size_t { LIST(TESSERA_POSITION) count }; \
  }

#define TESSERA_DECLARE_CODELET(codelet, FIELDS, ...) \
  TESSERA_POSITIONS(codelet##_field, FIELDS)          \
  extern const program::Codelet codelet##_codelet;

#define TESSERA_DECLARE_FUNCTIONS(codelet, ...)       \
  void codelet##_reference(const program::Vertex& v); \
  void codelet##_simd(const program::Vertex& v);      \
  program::PhaseTimes codelet##_cost(const program::Vertex& v, const machine::Machine& m);

#define TESSERA_DECLARE_FAMILY(family, CODELETS) \
  CODELETS(TESSERA_DECLARE_CODELET)              \
  std::span<const ListedCodelet> family##_codelets();

#define TESSERA_DEFINE_CODELET(users, codelet, FIELDS, PARAMS, fast, bytes, ...)                \
  constexpr program::FieldSpec codelet##_fields[] = {FIELDS(TESSERA_FIELD)};                    \
  constexpr std::array<std::string_view, count_of({PARAMS(TESSERA_NAME)})> codelet##_params = { \
      PARAMS(TESSERA_NAME)};                                                                    \
  constexpr program::Codelet codelet##_codelet = {.name = #codelet,                             \
                                                  .workers = program::Workers::users,           \
                                                  .fields = codelet##_fields,                   \
                                                  .params = codelet##_params,                   \
                                                  .reference = codelet##_reference,             \
                                                  .simd = fast,                                 \
                                                  .cost = codelet##_cost,                       \
                                                  .code_bytes = bytes __VA_OPT__(, ) __VA_ARGS__};

/// Definitions of codelets for any machine, for hosts, for tiles, and for single workers of a tile.
#define TESSERA_CODELET(...) TESSERA_DEFINE_CODELET(whole_tile, __VA_ARGS__)
#define TESSERA_HOST_CODELET(...) TESSERA_CODELET(__VA_ARGS__, .runs_on = program::RunsOn::hosts)
#define TESSERA_TILE_CODELET(codelet, FIELDS, PARAMS, fast, bytes, ...) \
  TESSERA_CODELET(codelet, FIELDS, PARAMS, fast, bytes,                 \
                  .runs_on = program::RunsOn::tiles __VA_OPT__(, ) __VA_ARGS__)
#define TESSERA_WORKER_CODELET(...) \
  TESSERA_DEFINE_CODELET(single_worker, __VA_ARGS__, .runs_on = program::RunsOn::tiles)

#define TESSERA_LIST_CODELET(codelet, ...) codelet##_codelet,

#define TESSERA_DEFINE_FAMILY(family, CODELETS, DEFINE)                          \
  CODELETS(DEFINE)                                                               \
  std::span<const ListedCodelet> family##_codelets() {                           \
    static constexpr ListedCodelet kListed[] = {CODELETS(TESSERA_LIST_CODELET)}; \
    return kListed;                                                              \
  }

/// Defines run_NAME(), the kernel for an instruction set, as the reference for instruction sets without
/// vectors.
#define TESSERA_RUN_REFERENCE(codelet, ...) \
  void run_##codelet(const program::Vertex& v) { codelet##_reference(v); }
#define TESSERA_EXPORT_RUN(codelet, ...) HWY_EXPORT(run_##codelet);

namespace tessera::kernels {

consteval size_t count_of(std::initializer_list<std::string_view> names) { return names.size(); }

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
