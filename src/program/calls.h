// What functions touch, and what calls may pass to them.
#pragma once

#include "program/program.h"

namespace tessera::program {

/// Throws the Error of an unsound program for an argument that is not of one function or lies partly in
/// the shared space, a body that touches another's argument or writes one that it only reads, a call whose
/// operands do not match the arguments, and operands that overlap each other or what the function touches
/// itself, where either is written. Steps and functions must have been found to exist, without recursion.
void verify_calls(const Program& program);

}  // namespace tessera::program
