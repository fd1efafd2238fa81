// Runs the cases of `tessera spmm`: planned, built, compiled, run, verified, measured.
#pragma once

#include <tessera/sparse.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "io/weights.h"
#include "machine/model/machine.h"
#include "studies/spmm/case.h"
#include "studies/spmm/product.h"
#include "studies/spmm/request.h"

namespace tessera::studies::spmm {

/// Runs cases one after another, keeping data that successive cases share: the matrix, its packed form, the
/// time of the dense product.
class SpmmRunner {
 public:
  explicit SpmmRunner(const SpmmRequest& request);

  /// Uses this machine for cases that name it, instead of the one found by its name.
  void use(const machine::Machine& machine) { machines_.insert_or_assign(machine.name, machine); }

  /// Throws UsageError for an invalid case, before any case runs.
  void check(const SpmmCase& what);

  SpmmResult run(const SpmmCase& what);

  /// The result of a case that could not run.
  SpmmResult failed(const SpmmCase& what, std::string why) const;

 private:
  uint32_t m() const { return file_ ? file_->matrix.pattern.rows : *request_.m; }
  uint32_t k() const { return file_ ? file_->matrix.pattern.cols : *request_.k; }
  const machine::Machine& machine_of(const SpmmCase& what);
  const ops::ForcedKnobs& knobs_of(const SpmmCase& what) const;
  const SparseMatrix& matrix_of(const SpmmCase& what);
  void compare_with_dense(const SpmmCase& what, SpmmResult& result);

  const SpmmRequest& request_;
  std::optional<io::Weights> file_;
  std::optional<SparseMatrix> matrix_;
  std::optional<SpmmCase> matrix_is_of_;
  ProductRuns products_;
  std::map<std::string, machine::Machine> machines_;
  std::map<std::tuple<std::string, Precision, ProductKind, uint32_t>, double> dense_seconds_;
};

}  // namespace tessera::studies::spmm
