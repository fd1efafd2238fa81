// Errors at the public boundary.
#pragma once

#include <stdexcept>
#include <string>

namespace tessera {

/// Anything that the caller can cause and act on. The message says what, which value, why, and
/// what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The call itself is malformed: an unknown option, a shape that does not match, a value out of
/// range. The command-line tool exits with status 2 on it, and with 1 on any other error.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace tessera
