#include "engine/profile.h"

#include "compiler/compile.h"

namespace tessera::engine {
namespace {

void enter(const std::vector<compiler::StepAccount>& account, std::vector<StepProfile>& steps) {
  for (size_t i = 0; i < account.size(); ++i) {
    steps[i].times = account[i].times;
    steps[i].cycles = account[i].cycles;
  }
}

}  // namespace

Profile empty_profile(const program::Program& program) {
  Profile profile;
  const auto name = [](const auto& steps, std::vector<StepProfile>& profiles) {
    for (const auto& step : steps) profiles.push_back({step.name, 0, {}, {}});
  };
  name(program.compute_sets(), profile.sets);
  name(program.copy_sets(), profile.copies);
  name(program.collectives(), profile.collectives);
  return profile;
}

void enter_cycles(const compiler::Executable& executable, Profile& profile, compiler::StepWatch* watch) {
  compiler::RunAccount account = compiler::cycles_of_run(executable, {}, watch);
  enter(account.sets, profile.sets);
  enter(account.copies, profile.copies);
  enter(account.collectives, profile.collectives);
  profile.supersteps = 0;
  for (const compiler::StepAccount& set : account.sets) profile.supersteps += set.times;
  profile.cycles = account.cycles;
  profile.chips = std::move(account.chips);
  profile.links = std::move(account.links);
}

Profile profile_of_cycles(const compiler::Executable& executable, compiler::StepWatch* watch) {
  Profile profile = empty_profile(*executable.program);
  enter_cycles(executable, profile, watch);
  return profile;
}

}  // namespace tessera::engine
