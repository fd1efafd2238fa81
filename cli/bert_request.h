// The request of `tessera train bert`.
#pragma once

#include <tessera/pretraining.h>
#include <tessera/pretraining_plan.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/ranks.h"
#include "cli/train_options.h"

namespace tessera::cli {

/// Layers of a stage, or their attention and their feed-forward parts.
struct StageLayers {
  uint32_t attention = 0;
  uint32_t feed_forward = 0;

  bool is_whole() const { return attention == feed_forward; }
  bool is_none() const { return attention + feed_forward == 0; }
};

struct BertRequest : RunOptions {
  PretrainingSettings settings = {};
  std::string size = "tiny";
  std::vector<StageLayers> stage_layers = {};  ///< of each stage; empty: they are divided equally
  StageLayers head_layers = {};
  std::optional<double> dropout = {}, attention_dropout = {};
  /// One for each phase, or one for all; no steps: as many as the epochs take.
  std::vector<uint32_t> lengths = {128}, batches = {32}, steps = {};

  std::string data = {};  ///< a file of tokens or a folder; "": synthetic text
  SyntheticText synthetic = {};

  RankOptions ranks = {};
  bool plan = false;  ///< search how to divide a step, instead of training
  uint32_t plan_estimates = PretrainingPlanOptions{}.estimates;  ///< maximum, of whole networks
  double plan_time_limit = 0;                                    ///< seconds; 0: none
  std::set<std::string> configured = {};                         ///< options that a file has given

  std::string init = {};  ///< file or folder with parameters to begin with
  std::string save = {};  ///< file for the trained parameters
  std::string trace = {};
};

void add_bert_options(CLI::App& command, BertRequest& request);

/// Throws UsageError if options conflict, before anything is read.
void check(const BertRequest& request, const CLI::App& command);

PretrainingSettings settings_of(const BertRequest& request);

TextSplit text_for(const BertRequest& request);

}  // namespace tessera::cli
