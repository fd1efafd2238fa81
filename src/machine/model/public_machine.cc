#include <tessera/machine.h>

#include <utility>

#include "machine/model/machine.h"

namespace tessera {

Machine::Machine(machine::Machine model)
    : model_(std::make_shared<const machine::Machine>(std::move(model))) {}

Machine Machine::host(uint32_t threads) { return Machine(machine::host(threads)); }

Machine Machine::find(const std::string& name, uint32_t threads) {
  return Machine(machine::find(name, threads));
}

std::vector<std::string> Machine::builtin_names() { return machine::builtin_names(); }

Machine Machine::with(const std::string& key, double value) const {
  machine::Machine changed = *model_;
  machine::apply({key, value}, changed);
  return Machine(std::move(changed));
}

std::string Machine::name() const { return model_->name; }
bool Machine::is_host() const { return model_->kind == machine::Kind::host; }
uint32_t Machine::chips() const { return model_->chips; }
uint32_t Machine::tiles() const { return model_->tiles; }
uint64_t Machine::tile_bytes() const { return model_->tile_bytes; }
double Machine::clock_hz() const { return model_->clock_hz; }

}  // namespace tessera
