// `.h5`: arrays of numbers in HDF5 files, if the library is built with HDF5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tessera::io {

/// An open file. All functions throw Error, naming the file, for missing data sets, data sets of another
/// kind, and if the library was built without HDF5.
class Hdf5File {
 public:
  static Hdf5File open(const std::string& path);
  /// A file with this content, which is copied.
  Hdf5File(std::string name, std::span<const std::byte> content);
  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&&) = delete;
  ~Hdf5File();

  const std::string& name() const { return name_; }

  /// The number of elements of a one-dimensional data set of numbers, or of lists of numbers.
  uint64_t size(const std::string& dataset) const;
  /// Reads a data set of at most `most` numbers.
  std::vector<double> numbers(const std::string& dataset, uint64_t most) const;
  /// Calls visit(i, list) for each list of a data set of lists of numbers, in order.
  void each_list(const std::string& dataset,
                 const std::function<void(uint64_t, std::span<const double>)>& visit) const;

 private:
  Hdf5File(std::string name, int64_t file) : name_(std::move(name)), file_(file) {}

  std::string name_;
  int64_t file_ = -1;
};

}  // namespace tessera::io
