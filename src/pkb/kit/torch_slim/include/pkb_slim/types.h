// Scalar types, devices, TensorOptions and ArrayRef.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <pkb_slim/adaptor.h>
#include <pkb_slim/message.h>
#include <pkb_slim/numbers.h>

namespace pkb_slim {

enum class ScalarType : int8_t {
#define PKB_SLIM_SCALAR(type, name, number) name = number,
#include <pkb_slim/scalar_types.inc>
#undef PKB_SLIM_SCALAR
};

#define PKB_SLIM_SCALAR(type, name, number) constexpr ScalarType k##name = ScalarType::name;
#include <pkb_slim/scalar_types.inc>
#undef PKB_SLIM_SCALAR

// Defined for torch's own element types only: for any other a source gets the error of torch's headers.
template <class T>
struct ScalarOf;
template <ScalarType>
struct TypeOf;
#define PKB_SLIM_SCALAR(T, name, number)                                        \
  template <>                                                                   \
  struct ScalarOf<T> { static constexpr ScalarType value = ScalarType::name; }; \
  template <>                                                                   \
  struct TypeOf<ScalarType::name> { using type = T; };
#include <pkb_slim/scalar_types.inc>
#undef PKB_SLIM_SCALAR

inline const char* toString(ScalarType type) { return pkb_slim_scalar_name(static_cast<int>(type)); }
inline void write(std::string& to, ScalarType type) { to += toString(type); }

class TypeMeta {
 public:
  TypeMeta(ScalarType type) : type_(type) {}
  ScalarType toScalarType() const { return type_; }
  std::string name() const {
    size_t length = 0;
    const char* text = pkb_slim_type_meta_name(static_cast<int>(type_), &length);
    return std::string(text, length);
  }
  friend bool operator==(const TypeMeta& a, const TypeMeta& b) { return a.type_ == b.type_; }
  friend bool operator!=(const TypeMeta& a, const TypeMeta& b) { return a.type_ != b.type_; }

 private:
  ScalarType type_;
};
inline void write(std::string& to, const TypeMeta& meta) { to += meta.name(); }

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
using DeviceIndex = int8_t;
constexpr DeviceType kCPU = DeviceType::CPU;
constexpr DeviceType kCUDA = DeviceType::CUDA;

class Device {
 public:
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  DeviceType type() const noexcept { return type_; }
  DeviceIndex index() const noexcept { return index_; }
  bool has_index() const noexcept { return index_ != -1; }
  bool is_cuda() const noexcept { return type_ == kCUDA; }
  bool is_cpu() const noexcept { return type_ == kCPU; }
  std::string str() const {
    std::string text = pkb_slim_device_name(static_cast<int>(type_));
    return has_index() ? text + ':' + std::to_string(static_cast<int>(index_)) : text;
  }
  bool operator==(const Device& other) const noexcept { return type_ == other.type_ && index_ == other.index_; }
  bool operator!=(const Device& other) const noexcept { return !(*this == other); }

 private:
  DeviceType type_;
  DeviceIndex index_;
};
inline void write(std::string& to, const Device& device) { to += device.str(); }
inline void write(std::string& to, DeviceType type) { to += pkb_slim_device_name(static_cast<int>(type)); }

template <class T>
class ArrayRef {
 public:
  using value_type = T;
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  ArrayRef(const std::vector<T>& values) : data_(values.data()), size_(values.size()) {}
  constexpr ArrayRef(const std::initializer_list<T>& values)
      : data_(values.begin() == values.end() ? nullptr : values.begin()), size_(values.size()) {}
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T& operator[](size_t i) const { return data_[i]; }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }
  const T& at(size_t i) const {
    TORCH_CHECK(i < size_, "ArrayRef: invalid index Index = ", i, "; Length = ", size_)
    return data_[i];
  }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  bool equals(ArrayRef other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i)
      if (!(data_[i] == other.data_[i])) return false;
    return true;
  }
  friend bool operator==(const ArrayRef& a, const ArrayRef& b) { return a.equals(b); }
  friend bool operator!=(const ArrayRef& a, const ArrayRef& b) { return !a.equals(b); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
using IntArrayRef = ArrayRef<int64_t>;

template <class T>
void write(std::string& to, ArrayRef<T> list) {
  to += '[';
  for (size_t i = 0; i < list.size(); ++i) {
    if (i) to += ", ";
    write(to, list[i]);
  }
  to += ']';
}

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType type) { plain.dtype = static_cast<int>(type); }
  TensorOptions(TypeMeta meta) : TensorOptions(meta.toScalarType()) {}
  TensorOptions(Device device) { place(device); }
  TensorOptions(DeviceType type) { place(Device(type)); }
  [[nodiscard]] TensorOptions dtype(TypeMeta meta) const { return dtype(meta.toScalarType()); }
  [[nodiscard]] TensorOptions dtype(ScalarType type) const {
    TensorOptions copy = *this;
    copy.plain.dtype = static_cast<int>(type);
    return copy;
  }
  [[nodiscard]] TensorOptions device(Device device) const {
    TensorOptions copy = *this;
    copy.place(device);
    return copy;
  }
  [[nodiscard]] TensorOptions device(DeviceType type, DeviceIndex index = -1) const {
    return device(Device(type, index));
  }
  [[nodiscard]] TensorOptions requires_grad(bool value) const {
    TensorOptions copy = *this;
    copy.plain.requires_grad = value;
    return copy;
  }
  [[nodiscard]] TensorOptions pinned_memory(bool value) const {
    TensorOptions copy = *this;
    copy.plain.pinned = value;
    return copy;
  }
  Options plain;

 private:
  void place(Device device) {
    plain.device_type = static_cast<int>(device.type());
    plain.device_index = device.index();
  }
};

}  // namespace pkb_slim

namespace c10 {
using std::make_optional;
using std::nullopt;
using std::nullopt_t;
using std::optional;
using pkb_slim::ArrayRef;
using pkb_slim::Device;
using pkb_slim::DeviceIndex;
using pkb_slim::DeviceType;
using pkb_slim::IntArrayRef;
using pkb_slim::kCPU;
using pkb_slim::kCUDA;
using pkb_slim::ScalarType;
using pkb_slim::TensorOptions;
using pkb_slim::toString;
#define PKB_SLIM_SCALAR(type, name, number) using pkb_slim::k##name;
#include <pkb_slim/scalar_types.inc>
#undef PKB_SLIM_SCALAR
}  // namespace c10

namespace caffe2 {
using pkb_slim::TypeMeta;
}

namespace torch {
using Dtype = at::ScalarType;
constexpr auto kUInt8 = at::kByte;
constexpr auto kInt8 = at::kChar;
constexpr auto kInt16 = at::kShort;
constexpr auto kInt32 = at::kInt;
constexpr auto kInt64 = at::kLong;
constexpr auto kFloat16 = at::kHalf;
constexpr auto kFloat32 = at::kFloat;
constexpr auto kFloat64 = at::kDouble;
constexpr auto kU8 = kUInt8;
constexpr auto kI8 = kInt8;
constexpr auto kI16 = kInt16;
constexpr auto kI32 = kInt32;
constexpr auto kI64 = kInt64;
constexpr auto kF16 = kFloat16;
constexpr auto kF32 = kFloat32;
constexpr auto kF64 = kFloat64;
inline at::TensorOptions dtype(at::ScalarType type) { return at::TensorOptions(type); }
inline at::TensorOptions dtype(caffe2::TypeMeta meta) { return at::TensorOptions(meta); }
inline at::TensorOptions device(at::Device device) { return at::TensorOptions(device); }
}  // namespace torch
