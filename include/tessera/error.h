// Errors at the public boundary.
#pragma once

#include <stdexcept>
#include <string>

namespace tessera {

/// Any error that the caller can cause and handle. The message says what is wrong, which value, why, and what
/// to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The call itself is malformed: an unknown option, mismatched shapes, a value out of range. The command-line
/// tool exits with status 2 for it, and with 1 for any other error.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace tessera
