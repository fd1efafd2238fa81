#include "io/safetensors_header.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "io/fail.h"

namespace tessera::io {
namespace {

using Json = nlohmann::json;

// Handles the parser's events directly, so that no document is built. The only accepted structure: {name:
// {"dtype": string, "shape": [numbers], "data_offsets": [2 numbers]}, …,  "__metadata__": {string: string,
// …}}.
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  HeaderHandler(const std::string& name, TensorMetadata* metadata) : name_(name), metadata_(metadata) {}

  std::vector<TensorInfo> take_tensors() { return std::move(tensors_); }

  bool start_object(size_t) override {
    if (section_ == Section::outside) return enter(Section::file);
    if (section_ == Section::file) {
      if (key_ == "__metadata__") return enter(Section::metadata);
      tensors_.push_back({.name = key_, .dtype = {}, .shape = {}});
      seen_ = {};
      return enter(Section::tensor);
    }
    unexpected("an object");
  }

  bool end_object() override {
    if (section_ == Section::tensor) finish_tensor();
    return enter(section_ == Section::file ? Section::outside : Section::file);
  }

  bool start_array(size_t) override {
    if (section_ == Section::tensor && key_ == "shape") return enter(Section::shape);
    if (section_ == Section::tensor && key_ == "data_offsets") return enter(Section::offsets);
    unexpected("an array");
  }

  bool end_array() override { return enter(Section::tensor); }

  bool key(std::string& key) override {
    key_ = std::move(key);
    if (section_ == Section::tensor) note_key();
    return true;
  }

  bool string(std::string& value) override {
    if (section_ == Section::metadata) {
      if (metadata_ != nullptr) (*metadata_)[key_] = std::move(value);
      return true;
    }
    if (section_ != Section::tensor || key_ != "dtype") unexpected("a string");
    tensors_.back().dtype = std::move(value);
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (section_ == Section::shape) {
      tensors_.back().shape.push_back(value);
    } else if (section_ == Section::offsets && offsets_ < 2) {
      (offsets_ == 0 ? tensors_.back().begin : tensors_.back().end) = value;
      ++offsets_;
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(int64_t) override { unexpected("a negative number"); }
  bool number_float(double, const std::string&) override { unexpected("a fraction"); }
  bool binary(Json::binary_t&) override { unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    fail(name_, "the header is not valid JSON at byte {} of it", position);
  }

 private:
  enum class Section { outside, file, metadata, tensor, shape, offsets };

  bool enter(Section section) {
    section_ = section;
    return true;
  }

  void note_key() {
    constexpr const char* kKeys[] = {"dtype", "shape", "data_offsets"};
    for (size_t i = 0; i < std::size(kKeys); ++i) {
      if (key_ != kKeys[i]) continue;
      if (seen_[i]) fail(name_, "tensor {} has {} twice", tensor(), kKeys[i]);
      seen_[i] = true;
      if (i == 2) offsets_ = 0;
      return;
    }
    fail(name_, "tensor {} has an unknown key {}", tensor(), excerpt(key_));
  }

  void finish_tensor() const {
    if (seen_[0] && seen_[1] && seen_[2] && offsets_ == 2) return;
    fail(name_, "tensor {} lacks a dtype, a shape or two data_offsets", tensor());
  }

  std::string tensor() const { return excerpt(tensors_.back().name); }

  [[noreturn]] void unexpected(const char* what) const {
    fail(name_, "the header has {} where it may not be, after key {}", what, excerpt(key_));
  }

  const std::string& name_;
  TensorMetadata* metadata_;
  Section section_ = Section::outside;
  std::string key_;
  std::vector<TensorInfo> tensors_;
  std::array<bool, 3> seen_{};
  size_t offsets_ = 0;
};

}  // namespace

std::vector<TensorInfo> parse_safetensors_header(const std::string& name, std::string_view text,
                                                 TensorMetadata* metadata) {
  HeaderHandler handler(name, metadata);
  Json::sax_parse(text.begin(), text.end(), &handler);
  return handler.take_tensors();
}

}  // namespace tessera::io
