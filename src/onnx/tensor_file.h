// Tensors of model files as constants.
#pragma once

#include <string>

#include "onnx/constant.h"
#include "onnx/wire.pb.h"

namespace tessera::onnx {

/// The folder with the files of external data.
struct DataFolder {
  std::string path = {};
  bool is_known = false;
};

/// Reads a tensor, whose data may be in another file of the folder. Throws Error, naming the tensor, for a
/// type that cannot be read, data of another size than its shape says, and external data that is missing, too
/// short or outside the folder.
ConstantPointer read_tensor(const wire::TensorProto& tensor, const DataFolder& folder);

/// Reads a sparse tensor in coordinates, as a dense one.
ConstantPointer read_sparse_tensor(const wire::SparseTensorProto& tensor, const DataFolder& folder);

}  // namespace tessera::onnx
