// Verification of functions and calls: the variables that functions touch, and the operands of calls.
#pragma once

#include "program/program.h"

namespace tessera::program {

/// Throws the Error of an unsound program for an argument that does not belong to exactly one function or
/// lies partly in the shared space, a body that touches another function's argument or writes an argument
/// that is declared as read only, a call whose operands do not match the arguments, and operands that overlap
/// each other or a variable that the function touches itself, where either is written. Steps and functions
/// must have been found to exist, without recursion.
void verify_calls(const Program& program);

}  // namespace tessera::program
