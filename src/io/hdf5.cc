#include "io/hdf5.h"

#include <utility>

#include "base/memory.h"
#include "io/fail.h"

#ifdef TESSERA_HDF5
#include <hdf5.h>

#include <algorithm>
#include <mutex>
#endif

namespace tessera::io {

#ifdef TESSERA_HDF5
namespace {

// The library is not made for several threads.
std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

/// One thread in the library, which prints no errors meanwhile.
class InLibrary {
 public:
  InLibrary() : lock_(library_mutex()) {
    // Otherwise, when a program ends, the library tries in vain to close what damaged files have left open,
    // and prints errors.
    [[maybe_unused]] static const herr_t stays_open = H5dont_atexit();
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  InLibrary(const InLibrary&) = delete;
  InLibrary& operator=(const InLibrary&) = delete;
  ~InLibrary() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }

 private:
  std::lock_guard<std::recursive_mutex> lock_;
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

/// An identifier with the function that closes it.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }

  hid_t get() const { return id_; }
  bool is_open() const { return id_ >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

/// A data set of one dimension.
struct Dataset {
  Dataset(const std::string& file_name, hid_t file, const std::string& dataset_name)
      : name(file_name),
        what(dataset_name),
        id(H5Dopen2(file, dataset_name.c_str(), H5P_DEFAULT), H5Dclose),
        space(id.is_open() ? H5Dget_space(id.get()) : -1, H5Sclose),
        type(id.is_open() ? H5Dget_type(id.get()) : -1, H5Tclose) {
    if (!id.is_open()) fail(name, "no data set {} in this file", what);
    if (!space.is_open() || !type.is_open()) fail(name, "the data set {} is damaged", what);
    const int dimensions = H5Sget_simple_extent_ndims(space.get());
    if (dimensions != 1) fail(name, "the data set {} has {} dimensions; 1 is expected", what, dimensions);
    if (H5Sget_simple_extent_dims(space.get(), &size, nullptr) != 1)
      fail(name, "the data set {} is damaged", what);
  }

  void require_numbers(hid_t of) const {
    const H5T_class_t kind = H5Tget_class(of);
    if (kind != H5T_INTEGER && kind != H5T_FLOAT) fail(name, "the data set {} is not of numbers", what);
  }

  /// Reads elements [first, first + count).
  void read(hsize_t first, hsize_t count, hid_t memory_type, void* to) const {
    const Handle memory(H5Screate_simple(1, &count, nullptr), H5Sclose);
    const bool ok = memory.is_open() &&
                    H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &first, nullptr, &count, nullptr) >= 0 &&
                    H5Dread(id.get(), memory_type, memory.get(), space.get(), H5P_DEFAULT, to) >= 0;
    if (!ok)
      fail(name, "elements {} to {} of the data set {} cannot be read: the file may be damaged", first,
           first + count - 1, what);
  }

  const std::string& name;
  const std::string& what;
  Handle id, space, type;
  hsize_t size = 0;
};

/// Lists in memory of the library.
class Lists {
 public:
  Lists(hsize_t count, hid_t type)
      : lists_(count), type_(type), space_(H5Screate_simple(1, &count, nullptr), H5Sclose) {}
  Lists(const Lists&) = delete;
  Lists& operator=(const Lists&) = delete;
  ~Lists() { H5Dvlen_reclaim(type_, space_.get(), H5P_DEFAULT, lists_.data()); }

  hvl_t* data() { return lists_.data(); }
  std::span<const double> operator[](size_t i) const {
    return {static_cast<const double*>(lists_[i].p), lists_[i].len};
  }

 private:
  std::vector<hvl_t> lists_;
  hid_t type_;
  Handle space_;
};

}  // namespace

Hdf5File Hdf5File::open(const std::string& path) {
  const InLibrary in;
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file < 0) fail(path, "cannot open it as an HDF5 file; is it there, and complete?");
  return {path, file};
}

Hdf5File::Hdf5File(std::string name, std::span<const std::byte> content) : name_(std::move(name)) {
  const InLibrary in;
  const Handle properties(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  constexpr size_t kIncrement = 1 << 16;
  H5Pset_fapl_core(properties.get(), kIncrement, 0);
  H5Pset_file_image(properties.get(), const_cast<std::byte*>(content.data()), content.size());
  file_ = H5Fopen(name_.c_str(), H5F_ACC_RDONLY, properties.get());
  if (file_ < 0) fail(name_, "cannot open it as an HDF5 file; is it complete?");
}

Hdf5File::~Hdf5File() {
  if (file_ < 0) return;
  const InLibrary in;
  H5Fclose(file_);
}

uint64_t Hdf5File::size(const std::string& dataset) const {
  const InLibrary in;
  return Dataset(name_, file_, dataset).size;
}

std::vector<double> Hdf5File::numbers(const std::string& dataset, uint64_t most) const {
  const InLibrary in;
  const Dataset set(name_, file_, dataset);
  set.require_numbers(set.type.get());
  if (set.size > most)
    fail(name_, "{} numbers in the data set {}; at most {} are possible", set.size, dataset, most);
  base::require_memory(set.size * sizeof(double), name_ + ": reading " + dataset);
  std::vector<double> numbers(set.size);
  if (set.size > 0) set.read(0, set.size, H5T_NATIVE_DOUBLE, numbers.data());
  return numbers;
}

void Hdf5File::each_list(const std::string& dataset,
                         const std::function<void(uint64_t, std::span<const double>)>& visit) const {
  const InLibrary in;
  const Dataset set(name_, file_, dataset);
  if (H5Tget_class(set.type.get()) != H5T_VLEN) fail(name_, "the data set {} is not of lists", dataset);
  const Handle element(H5Tget_super(set.type.get()), H5Tclose);
  if (!element.is_open()) fail(name_, "the data set {} is damaged", dataset);
  set.require_numbers(element.get());
  const Handle type(H5Tvlen_create(H5T_NATIVE_DOUBLE), H5Tclose);
  constexpr hsize_t kTogether = 64;
  for (hsize_t first = 0; first < set.size; first += kTogether) {
    const hsize_t count = std::min(kTogether, set.size - first);
    Lists lists(count, type.get());
    set.read(first, count, type.get(), lists.data());
    for (hsize_t i = 0; i < count; ++i) visit(first + i, lists[i]);
  }
}

#else

namespace {
constexpr const char* kMissing =
    "this build of Tessera cannot read HDF5 files: the library was not found. Install it (Debian: "
    "libhdf5-dev) "
    "and build again, or convert the file to .npy events";
}

Hdf5File Hdf5File::open(const std::string& path) { fail(path, "{}", kMissing); }
Hdf5File::Hdf5File(std::string name, std::span<const std::byte>) : name_(std::move(name)) {
  fail(name_, "{}", kMissing);
}
Hdf5File::~Hdf5File() = default;
uint64_t Hdf5File::size(const std::string&) const { fail(name_, "{}", kMissing); }
std::vector<double> Hdf5File::numbers(const std::string&, uint64_t) const { fail(name_, "{}", kMissing); }
void Hdf5File::each_list(const std::string&,
                         const std::function<void(uint64_t, std::span<const double>)>&) const {
  fail(name_, "{}", kMissing);
}

#endif

Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : name_(std::move(other.name_)), file_(std::exchange(other.file_, -1)) {}

}  // namespace tessera::io
