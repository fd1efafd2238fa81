// Small HDF5 files of recordings, if the library is built with HDF5.
#pragma once

#ifdef TESSERA_HDF5
#include <hdf5.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::test {

/// Contents of a file in the form of SHD.
struct HeidelbergFile {
  std::vector<std::vector<float>> times;
  std::vector<std::vector<uint16_t>> units;
  std::vector<uint16_t> labels;
  bool half_times = true;  ///< FP16, as in the published files
};

inline void require_hdf5(int64_t result) {
  if (result < 0) throw std::runtime_error("HDF5 cannot write a file for a test");
}

template <class T>
void write_lists(hid_t group, const char* name, const std::vector<std::vector<T>>& lists, hid_t memory,
                 hid_t stored) {
  const hsize_t count = lists.size();
  std::vector<hvl_t> all;
  for (const auto& list : lists) all.push_back({list.size(), const_cast<T*>(list.data())});
  const hid_t memory_lists = H5Tvlen_create(memory), stored_lists = H5Tvlen_create(stored);
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t set = H5Dcreate2(group, name, stored_lists, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  require_hdf5(set);
  require_hdf5(H5Dwrite(set, memory_lists, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()));
  H5Dclose(set);
  H5Sclose(space);
  H5Tclose(memory_lists);
  H5Tclose(stored_lists);
}

/// The 16-bit numbers of IEEE, for which the HDF5 library has no name.
inline hid_t half_type() {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  require_hdf5(H5Tset_fields(type, 15, 10, 5, 0, 10));
  require_hdf5(H5Tset_ebias(type, 15));
  require_hdf5(H5Tset_size(type, 2));
  return type;
}

/// The bytes of a file.
inline std::string heidelberg_file(const HeidelbergFile& content) {
  [[maybe_unused]] static const herr_t stays_open = H5dont_atexit();  // see io/hdf5.cc
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  require_hdf5(H5Pset_fapl_core(access, 1 << 12, 0));
  const hid_t file = H5Fcreate("image.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
  require_hdf5(file);
  const hid_t group = H5Gcreate2(file, "spikes", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t stored = content.half_times ? half_type() : H5Tcopy(H5T_IEEE_F64LE);
  write_lists(group, "times", content.times, H5T_NATIVE_FLOAT, stored);
  write_lists(group, "units", content.units, H5T_NATIVE_UINT16, H5T_STD_U16LE);
  const hsize_t count = content.labels.size();
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t set = H5Dcreate2(file, "labels", H5T_STD_U16LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  require_hdf5(set);
  require_hdf5(H5Dwrite(set, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, content.labels.data()));
  H5Dclose(set);
  H5Sclose(space);
  H5Tclose(stored);
  H5Gclose(group);
  H5Fflush(file, H5F_SCOPE_GLOBAL);
  std::string image(static_cast<size_t>(H5Fget_file_image(file, nullptr, 0)), '\0');
  require_hdf5(H5Fget_file_image(file, image.data(), image.size()));
  H5Fclose(file);
  H5Pclose(access);
  return image;
}

}  // namespace tessera::test
#endif
