// Ctrl-C for commands that first save what they have.
#pragma once

namespace tessera::cli {

/// While it lives, SIGINT and SIGTERM only take note of the request to stop; a second one has the effect that
/// they had before.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  /// The signal that came; 0: none.
  static int pending();
};

}  // namespace tessera::cli
