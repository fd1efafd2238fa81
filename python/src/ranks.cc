// Ranks whose messages Python sends, through torch.distributed.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <tessera/communicator.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings.h"
#include "ranks/agreement.h"
#include "ranks/cores.h"

namespace tessera::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

nb::object bytes_at(const std::byte* data, size_t bytes) {
  // What is sent is only read; a view that says so would be refused as a tensor.
  char* characters = const_cast<char*>(reinterpret_cast<const char*>(data));
  return nb::steal(PyMemoryView_FromMemory(characters, static_cast<Py_ssize_t>(bytes), PyBUF_WRITE));
}

class PythonCommunicator final : public Communicator {
 public:
  PythonCommunicator(uint32_t rank, uint32_t size, std::chrono::milliseconds longest_wait,
                     nb::object exchange, nb::object abort)
      : rank_(rank),
        size_(size),
        longest_wait_(longest_wait),
        exchange_(std::move(exchange)),
        abort_(std::move(abort)) {}

  ~PythonCommunicator() override {
    if (!nb::is_alive()) {  // nothing may be done any more
      exchange_.release();
      abort_.release();
      return;
    }
    const nb::gil_scoped_acquire locked;
    exchange_.reset();
    abort_.reset();
  }

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return size_; }
  std::chrono::milliseconds longest_wait() const override { return longest_wait_; }

  void exchange(std::span<const Outgoing> sent, std::span<const Incoming> received) override {
    if (gettid() != getpid()) return exchange_here(sent, received);
    // Python's main thread would handle Ctrl-C within the exchange, which would end halfway.
    const nb::gil_scoped_acquire locked;  // so that it can be released, whether or not it was held
    const nb::gil_scoped_release released;
    std::async(std::launch::async, [&] { exchange_here(sent, received); }).get();
  }

  void abort(const std::string& message) noexcept override {
    const nb::gil_scoped_acquire locked;
    try {
      abort_(message.c_str());
    } catch (...) {
      // The others notice that nothing more comes.
    }
  }

 private:
  void exchange_here(std::span<const Outgoing> sent, std::span<const Incoming> received) {
    const nb::gil_scoped_acquire locked;
    try {
      nb::list to, from;
      for (const Outgoing& message : sent)
        to.append(nb::make_tuple(message.to, bytes_at(message.bytes.data(), message.bytes.size())));
      for (const Incoming& message : received)
        from.append(nb::make_tuple(message.from, bytes_at(message.bytes.data(), message.bytes.size())));
      exchange_(to, from);
    } catch (const nb::python_error& error) {
      throw RankError(nb::str(error.value()).c_str());
    }
  }

  const uint32_t rank_;
  const uint32_t size_;
  const std::chrono::milliseconds longest_wait_;
  nb::object exchange_, abort_;
};

/// The message of an error, or its type, as KeyboardInterrupt has no message.
std::string message_of(const nb::python_error& error) {
  const std::string message = nb::str(error.value()).c_str();
  return message.empty() ? nb::str(error.type().attr("__name__")).c_str() : message;
}

/// What each rank does for itself, as ranks::do_on_each(): this rank has its own error, the others one that
/// quotes it.
nb::object do_on_each(Communicator& communicator, const nb::callable& work) {
  nb::object result;
  std::exception_ptr own;
  const auto call = [&] {
    const nb::gil_scoped_acquire locked;
    try {
      result = work();
    } catch (const nb::python_error& error) {
      own = std::current_exception();
      throw std::runtime_error(message_of(error));
    }
  };
  const nb::gil_scoped_release released;  // as messages to the other ranks take Python meanwhile
  try {
    ranks::do_on_each(&communicator, call);
  } catch (...) {
    if (own) std::rethrow_exception(own);
    throw;
  }
  return result;
}

}  // namespace

void bind_ranks(nb::module_& m) {
  nb::class_<Communicator>(m, "Communicator", "The ranks that divide the replicas of a session among them.");
  m.def(
      "communicator",
      [](uint32_t rank, uint32_t size, double longest_wait, nb::object exchange, nb::object abort,
         bool divides_cores) -> std::shared_ptr<Communicator> {
        const std::chrono::milliseconds wait(std::llround(longest_wait * 1000));
        auto made =
            std::make_shared<PythonCommunicator>(rank, size, wait, std::move(exchange), std::move(abort));
        ranks::divide_cores(*made, divides_cores);
        return made;
      },
      "rank"_a, "size"_a, "longest_wait"_a, "exchange"_a, "abort"_a, "divides_cores"_a,
      nb::sig("def communicator(rank: int, size: int, longest_wait: float, exchange: object, abort: object, "
              "divides_cores: bool) -> Communicator"),
      "A communicator of functions: exchange(sent, received) with lists of (rank, memoryview), which waits "
      "for `longest_wait` seconds, and abort(message). The ranks divide the cores of their computer if "
      "`divides_cores`.");
  m.def(
      "do_on_each", &do_on_each, "ranks"_a, "work"_a,
      nb::sig("def do_on_each(ranks: Communicator, work: object) -> object"),
      "The result of work(), which each rank calls for itself, and which must not use the ranks. If it fails "
      "on one of them, it fails on all.");
}

}  // namespace tessera::python
