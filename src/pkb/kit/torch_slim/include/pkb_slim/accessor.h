// at::TensorAccessor: indices of a tensor whose element type and number of dimensions are known.
#pragma once

#include <pkb_slim/types.h>

namespace pkb_slim {

template <class T, size_t N>
class TensorAccessor {
 public:
  TensorAccessor(T* data, const int64_t* sizes, const int64_t* strides) : data_(data), sizes_(sizes), strides_(strides) {}
  IntArrayRef sizes() const { return IntArrayRef(sizes_, N); }
  IntArrayRef strides() const { return IntArrayRef(strides_, N); }
  int64_t size(size_t d) const { return sizes_[d]; }
  int64_t stride(size_t d) const { return strides_[d]; }
  T* data() const { return data_; }
  decltype(auto) operator[](int64_t i) const {
    if constexpr (N == 1) return (data_[strides_[0] * i]);
    else return TensorAccessor<T, N - 1>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }

 private:
  T* data_;
  const int64_t *sizes_, *strides_;
};

}  // namespace pkb_slim

namespace at {
using pkb_slim::TensorAccessor;
}
