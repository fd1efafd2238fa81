// Ctrl-C for commands that first save what they have.
#pragma once

namespace tessera::cli {

/// While an object of this class exists, SIGINT and SIGTERM only record the request to stop; a second signal
/// has its previous effect.
class Interruption {
 public:
  /// `last` names the work that is still finished after a signal.
  explicit Interruption(const char* last = "step");
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  /// The signal that was received; 0: none.
  static int pending();
};

}  // namespace tessera::cli
