#include "engine/collective.h"

#include <array>
#include <cstring>

#include "program/collective.h"

namespace tessera::engine {
namespace {

using program::FieldView;

class CollectiveRun {
 public:
  CollectiveRun(const program::Program& program, const program::Collective& collective,
                const std::deque<RunMemory>& replicas, bool reference)
      : program_(program),
        collective_(collective),
        replicas_(replicas),
        count_(static_cast<uint32_t>(replicas.size())),
        group_(program::group_size(collective, count_)),
        add_(collective.add == nullptr                      ? nullptr
             : reference || collective.add->simd == nullptr ? collective.add->reference
                                                            : collective.add->simd) {}

  void run() const {
    if (program::reads_part(collective_.kind))
      each_own(
          [](const FieldView& part, const FieldView& chunk) { copy_elements(first(part, chunk), chunk); });
    for (const program::Round& round : program::rounds_of(collective_, count_))
      for (const program::Message& message : round.messages) pass(message, round.adds);
    if (program::writes_part(collective_.kind))
      each_own([](const FieldView& part, const FieldView& chunk) {
        copy_elements(chunk, first(part, chunk));
        std::memset(part.data + chunk.cols * size_of(part.type), 0,
                    (part.cols - chunk.cols) * size_of(part.type));
      });
  }

 private:
  FieldView chunks(const program::Exchanged& exchanged, size_t box, uint32_t replica, uint32_t first,
                   uint32_t chunks) const {
    const uint64_t elements = program_.variable(exchanged.whole).mapping[box].box.elements();
    return replicas_[replica].line(exchanged.whole, box, program::chunk_begin(elements, first, group_),
                                   program::chunk_begin(elements, first + chunks, group_));
  }

  void pass(const program::Message& message, bool adds) const {
    for (const program::Exchanged& exchanged : collective_.variables)
      for (size_t box = 0; box < program_.variable(exchanged.whole).mapping.size(); ++box) {
        const FieldView from = chunks(exchanged, box, message.from, message.first, message.chunks);
        const FieldView to = chunks(exchanged, box, message.to, message.first, message.chunks);
        if (to.empty()) continue;
        if (!adds) {
          copy_elements(from, to);
          continue;
        }
        const std::array<FieldView, 3> fields = {to, from, to};
        add_({fields, {}});
      }
  }

  /// What a chunk fills of a part.
  static FieldView first(FieldView part, const FieldView& chunk) {
    part.cols = chunk.cols;
    return part;
  }

  /// Calls visit(part, chunk) for the boxes of each replica's part and their places in the whole; chunks may
  /// be shorter.
  template <class Visit>
  void each_own(const Visit& visit) const {
    for (uint32_t replica = 0; replica < count_; ++replica)
      for (const program::Exchanged& exchanged : collective_.variables)
        for (size_t box = 0; box < program_.variable(exchanged.whole).mapping.size(); ++box) {
          const uint64_t elements = program_.variable(*exchanged.part).mapping[box].box.elements();
          if (elements == 0) continue;
          visit(replicas_[replica].line(*exchanged.part, box, 0, elements),
                chunks(exchanged, box, replica, replica % group_, 1));
        }
  }

  const program::Program& program_;
  const program::Collective& collective_;
  const std::deque<RunMemory>& replicas_;
  uint32_t count_;
  uint32_t group_;
  program::RunVertex add_;
};

}  // namespace

void run_collective(const program::Program& program, const program::Collective& collective,
                    const std::deque<RunMemory>& replicas, bool reference) {
  CollectiveRun(program, collective, replicas, reference).run();
}

}  // namespace tessera::engine
