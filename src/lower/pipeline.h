// Pipelines in a program: the passes of micro-batches through stages, in the order of a schedule.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "graph/loop.h"
#include "graph/pipeline_actions.h"
#include "graph/routes.h"
#include "graph/stages.h"
#include "lower/event_order.h"
#include "lower/lowering.h"

namespace tessera::graph {

/// Notes which steps of a loop's body are passes of micro-batches through stages, one micro-batch at a time,
/// if the stages lie on several chips.
class SequentialPasses {
 public:
  SequentialPasses(Lowering& around, Lowering& body, const LoopForm& form);

  /// Lowers the operations of the body.
  void lower();
  /// Steps that are added to the body from now on are part of the pass through the stage of a node; or of
  /// none.
  void begin(std::optional<uint32_t> node);

 private:
  bool are_of_one_pass(uint32_t a, uint32_t b) const;

  Lowering& around_;
  Lowering& body_;
  bool is_followed_;
  std::optional<uint32_t> node_ = {};  ///< of the present pass
  size_t first_ = 0;                   ///< its first step
};

/// Lowers a loop whose passes go through the stages of its body as its pipeline says. Every pass through a
/// stage is a function; results that other passes take are arguments, which lie in buffers for as many
/// micro-batches as the schedule keeps in flight, and are passed by address. The program follows the list of
/// actions of the schedule; its beginning, a repeated part and its end call the same functions.
class PipelineLowering {
 public:
  PipelineLowering(Lowering& around, const Node& node, const LoopForm& form, Lowering& body);

  void lower();

 private:
  /// A pass through a stage.
  struct LoweredPass {
    StagePart part;
    std::vector<ValueId> takes = {};           ///< results of other passes
    std::vector<ValueId> gives = {};           ///< results that other passes take
    std::vector<size_t> outputs = {};          ///< positions of the loop's outputs that it computes; after
                                               ///< add_sums(), of those that `finish` gives
    std::optional<ops::Operand> counter = {};  ///< its next micro-batch
    std::optional<ops::Operand> present = {};  ///< the micro-batch that `compute` works on
    ops::Function compute = {};
    ops::Function finish = {};  ///< gives what was not added before, and counts the micro-batch
    /// For a pass that is recomputed: set the present micro-batch, for the first time and again.
    std::optional<ops::Function> begin = {}, begin_again = {};
  };
  using BufferKey = std::pair<ValueId, uint32_t>;  ///< value, and part of the chips
  /// What is sent to other chips after a pass, which gives or takes it. Parts of a host have the same
  /// buffers: the ranks that run them get what they are about to take at a call of a function without steps.
  struct Sending {
    size_t pass = 0;
    uint32_t to = 0;  ///< part of the chips, or of the program
    std::vector<ValueId> values = {};
    ops::Function function = {};
  };
  /// What the program does for an action, and for those after it that have no event of their own.
  struct Event {
    enum class Kind : uint8_t { pass, again, send } kind = Kind::pass;
    size_t index = 0;  ///< of the pass or the sending
    uint32_t micro_batch = 0;
    size_t action = 0;  ///< position in the list
  };
  enum class Direction : uint8_t { taken, given };
  /// The events in which a micro-batch of a value has to be kept.
  struct KeptInterval {
    uint32_t micro_batch = 0;
    size_t first = 0, last = 0;
  };
  /// The events that are repeated.
  struct Repeated {
    size_t first = 0, length = 0, count = 0;
  };

  void find_passes();
  void find_routes(const std::vector<StagePart>& parts);
  void place_given();
  void lower(LoweredPass& pass);
  void begin_micro_batches(LoweredPass& pass);
  void take_rows(const LoweredPass& pass);
  /// A variable for a value on a part of the chips, with the mapping that the value has where it is computed.
  ops::Operand like(ValueId id, uint32_t place, program::Role role, bool streaming = false);
  ops::Operand own_argument(ValueId id, const LoweredPass& pass);
  void add_sums(LoweredPass& pass);
  void keep_outputs(const LoweredPass& pass);
  void give(size_t output, const ops::Builder& builder);
  ops::Operand after_each(const LoweredPass& pass);
  void count(const LoweredPass& pass);
  void add_beginnings();
  void add_sendings();
  void leave_out_empty_passes();
  void list_events();
  std::optional<Event> event_of(size_t action, const RouteIndex& routes);
  size_t end_of_actions(size_t event) const;
  void order_by_time();
  std::vector<TimedEvent> timed_events() const;
  uint64_t work_of(const LoweredPass& pass) const;
  std::vector<KeptInterval> kept(const BufferKey& key) const;
  static bool suffice(const std::vector<KeptInterval>& all, uint32_t slots);
  static uint32_t slots_of(const std::vector<KeptInterval>& all, uint32_t unit);
  void place_buffers();
  bool is_offloaded(const BufferKey& key, uint32_t slots) const;
  Repeated find_repeated() const;
  void emit();
  program::StepId emit(const Event& event);
  /// What an event takes or gives, and where that lies.
  std::vector<BufferKey> keys_of(const Event& event, Direction direction) const;
  void stream(const std::vector<BufferKey>& keys, uint32_t micro_batch, bool fetches,
              std::vector<program::StepId>& steps) const;
  ops::Operand slot(const BufferKey& key, uint32_t micro_batch) const;
  /// Where passes find a micro-batch of a value: in its slot, or in the place to which it is fetched.
  ops::Operand on_tiles(const BufferKey& key, uint32_t micro_batch) const;

  const ops::Builder& builder(const LoweredPass& pass) const {
    return body_.builder_of_stage(pass.part.stage);
  }
  uint32_t place_of(const LoweredPass& pass) const { return body_.place_of_stage(pass.part.stage); }
  Lowered::PassStep pass_step(const Event& event, uint32_t next) const;
  bool is_recomputed(const LoweredPass& pass) const {
    return !pass.part.is_backward() && form_.pipeline.recomputed.contains(pass.part.stage);
  }
  LoweredPass* find_pass(uint32_t stage, PassKind kind);
  LoweredPass* first_backward_pass(uint32_t stage);
  uint32_t origin_of(const Sending& sending) const { return place_of(passes_[sending.pass]); }
  size_t pass_of(ValueId id) const { return body_.parts_[*body_.graph_.info(id).node]; }
  /// The part of the chips on which a value is computed.
  uint32_t home_of(ValueId id) const { return place_of(passes_[pass_of(id)]); }

  Lowering& around_;
  const Node& node_;
  const LoopForm& form_;
  Lowering& body_;
  PipelineSchedule schedule_;
  std::vector<LoweredPass> passes_;
  std::map<ValueId, ops::Operand> given_;         ///< the argument as which a pass gives a result
  std::map<uint32_t, ops::Operand> tables_;       ///< by part of the chips: the micro-batch after each
  std::map<BufferKey, program::CopyGroup> rows_;  ///< of an input for a micro-batch
  std::vector<Lowering::PlannedCopy> stacks_;     ///< to be sent to outputs at the end
  std::vector<PassRoute> routes_;
  std::vector<Sending> sendings_;  ///< by route
  ActionList list_;
  std::vector<Event> events_;
  /// Where a value lies on a part of the chips, for each of the micro-batches that are kept there.
  std::map<BufferKey, std::vector<ops::Operand>> buffers_;
  std::map<BufferKey, ops::Operand> fetched_;  ///< of buffers in streaming memory: a micro-batch on the tiles
  uint32_t unit_ = 1;  ///< number of micro-batches after which the slots of all buffers repeat
};

}  // namespace tessera::graph
