// cub's functions of whole arrays. A call without storage says how much it wants and does nothing else.
#pragma once

namespace cub {
namespace emu_parts {
template <class F>
inline cudaError_t device(void* storage, size_t& bytes, cudaStream_t stream, F work) {
  if (!storage) return bytes = 256, cudaSuccess;
  if (bytes < 256) return cudaErrorInvalidValue;
  return emu::later(stream, std::move(work)), cudaSuccess;
}
template <class T> using value_t = std::remove_cv_t<std::remove_reference_t<decltype(*std::declval<T&>())>>;
template <class T> struct Limits : std::numeric_limits<T> { static_assert(std::numeric_limits<T>::is_specialized, "not emulated"); };

// The bits of a key, so that their order as a number is the key's: what radix sorts compare. -0 and +0 are equal.
template <class K>
inline uint64_t ordered(const K& key, int begin, int end) {
  constexpr int BITS = 8 * sizeof(K);
  using Word = std::conditional_t<sizeof(K) == 8, uint64_t, std::conditional_t<sizeof(K) == 4, uint32_t,
               std::conditional_t<sizeof(K) == 2, uint16_t, uint8_t>>>;
  uint64_t bits = emu::bits<Word>(key);
  constexpr uint64_t SIGN = 1ull << (BITS - 1), ALL = SIGN | (SIGN - 1);
  if constexpr (std::is_integral_v<K>) {
    if (std::is_signed_v<K>) bits ^= SIGN;
  } else {
    if (bits == SIGN) bits = 0;
    bits ^= bits & SIGN ? ALL : SIGN;
  }
  return end - begin >= 64 ? bits : bits >> begin & ((1ull << (end - begin)) - 1);
}
template <class K, class V>
inline void sort(const K* keys, K* keys_out, const V* values, V* values_out, int64_t n, int begin, int end, bool down) {
  emu::touched(keys, n, false), emu::touched(keys_out, n, true);
  if (values_out) emu::touched(values, n, false), emu::touched(values_out, n, true);
  std::vector<int64_t> order(n);
  std::vector<uint64_t> words(n);
  for (int64_t i = 0; i < n; ++i) order[i] = i, words[i] = ordered(keys[i], begin, end);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return down ? words[b] < words[a] : words[a] < words[b]; });
  std::vector<K> sorted(n);
  for (int64_t i = 0; i < n; ++i) sorted[i] = keys[order[i]];
  std::copy(sorted.begin(), sorted.end(), keys_out);
  if (!values_out) return;
  std::vector<V> moved(n);
  for (int64_t i = 0; i < n; ++i) moved[i] = values[order[i]];
  std::copy(moved.begin(), moved.end(), values_out);
}
}  // namespace emu_parts

#define EMU_SORTS(WAY, DOWN)                                                                                           \
  template <class K, class N>                                                                                          \
  static cudaError_t SortKeys##WAY(void* s, size_t& bytes, const K* in, K* out, N n, int begin = 0,                    \
                                   int end = 8 * sizeof(K), cudaStream_t stream = nullptr) {                           \
    return emu_parts::device(s, bytes, stream, [=] { emu_parts::sort<K, char>(in, out, nullptr, nullptr, n, begin, end, DOWN); }); \
  }                                                                                                                    \
  template <class K, class V, class N>                                                                                 \
  static cudaError_t SortPairs##WAY(void* s, size_t& bytes, const K* in, K* out, const V* values, V* values_out, N n, int begin = 0, \
                                    int end = 8 * sizeof(K), cudaStream_t stream = nullptr) {                          \
    return emu_parts::device(s, bytes, stream, [=] { emu_parts::sort(in, out, values, values_out, n, begin, end, DOWN); }); \
  }
struct DeviceRadixSort {
  EMU_SORTS(, false)
  EMU_SORTS(Descending, true)
};
#undef EMU_SORTS

#define EMU_SORTS(WAY, DOWN)                                                                                           \
  template <class K, class B, class E>                                                                                 \
  static cudaError_t SortKeys##WAY(void* s, size_t& bytes, const K* in, K* out, int64_t, int64_t segments, B first, E last, \
                                   int begin = 0, int end = 8 * sizeof(K), cudaStream_t stream = nullptr) {            \
    return emu_parts::device(s, bytes, stream, [=] {                                                                   \
      for (int64_t g = 0; g < segments; ++g)                                                                           \
        emu_parts::sort<K, char>(in + first[g], out + first[g], nullptr, nullptr, last[g] - first[g], begin, end, DOWN); \
    });                                                                                                                \
  }                                                                                                                    \
  template <class K, class V, class B, class E>                                                                        \
  static cudaError_t SortPairs##WAY(void* s, size_t& bytes, const K* in, K* out, const V* values, V* values_out, int64_t, \
                                    int64_t segments, B first, E last, int begin = 0, int end = 8 * sizeof(K),         \
                                    cudaStream_t stream = nullptr) {                                                   \
    return emu_parts::device(s, bytes, stream, [=] {                                                                   \
      for (int64_t g = 0; g < segments; ++g)                                                                           \
        emu_parts::sort(in + first[g], out + first[g], values + first[g], values_out + first[g], last[g] - first[g], begin, end, DOWN); \
    });                                                                                                                \
  }
struct DeviceSegmentedRadixSort {
  EMU_SORTS(, false)
  EMU_SORTS(Descending, true)
};
#undef EMU_SORTS

struct DeviceReduce {
  template <class In, class Out, class N, class Op, class T>
  static cudaError_t Reduce(void* s, size_t& bytes, In in, Out out, N n, Op op, T initial, cudaStream_t stream = nullptr) {
    return emu_parts::device(s, bytes, stream, [=] {
      emu::touched(in, n, false), emu::touched(out, 1, true);
      T sum = initial;
      for (N i = 0; i < n; ++i) sum = op(sum, in[i]);
      *out = sum;
    });
  }
  template <class In, class Out, class N>
  static cudaError_t Sum(void* s, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    return Reduce(s, bytes, in, out, n, emu_parts::Plus(), emu_parts::value_t<Out>{}, stream);
  }
  template <class In, class Out, class N>
  static cudaError_t Max(void* s, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    using T = emu_parts::value_t<In>;
    return Reduce(s, bytes, in, out, n, [](T a, T b) { return a < b ? b : a; }, emu_parts::Limits<T>::lowest(), stream);
  }
  template <class In, class Out, class N>
  static cudaError_t Min(void* s, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    using T = emu_parts::value_t<In>;
    return Reduce(s, bytes, in, out, n, [](T a, T b) { return b < a ? b : a; }, emu_parts::Limits<T>::max(), stream);
  }
};

struct DeviceScan {
  template <class In, class Out, class Op, class N>
  static cudaError_t InclusiveScan(void* s, size_t& bytes, In in, Out out, Op op, N n, cudaStream_t stream = nullptr) {
    return emu_parts::device(s, bytes, stream, [=] {
      emu::touched(in, n, false), emu::touched(out, n, true);
      emu_parts::value_t<In> sum{};
      for (N i = 0; i < n; ++i) out[i] = sum = i ? op(sum, in[i]) : in[i];
    });
  }
  template <class In, class Out, class Op, class T, class N>
  static cudaError_t ExclusiveScan(void* s, size_t& bytes, In in, Out out, Op op, T initial, N n, cudaStream_t stream = nullptr) {
    return emu_parts::device(s, bytes, stream, [=] {
      emu::touched(in, n, false), emu::touched(out, n, true);
      T sum = initial;
      for (N i = 0; i < n; ++i) { const T next = op(sum, in[i]); out[i] = sum, sum = next; }
    });
  }
  template <class In, class Out, class N>
  static cudaError_t InclusiveSum(void* s, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    return InclusiveScan(s, bytes, in, out, emu_parts::Plus(), n, stream);
  }
  template <class In, class Out, class N>
  static cudaError_t ExclusiveSum(void* s, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    return ExclusiveScan(s, bytes, in, out, emu_parts::Plus(), emu_parts::value_t<In>{}, n, stream);
  }
};

struct DeviceSelect {
  template <class In, class Flags, class Out, class Count>
  static cudaError_t Flagged(void* s, size_t& bytes, In in, Flags flags, Out out, Count count, int64_t n, cudaStream_t stream = nullptr) {
    return emu_parts::device(s, bytes, stream, [=] {
      int64_t kept = 0;
      for (int64_t i = 0; i < n; ++i)
        if (flags[i]) out[kept++] = in[i];
      emu::touched(in, n, false), emu::touched(flags, n, false), emu::touched(out, kept, true), emu::touched(count, 1, true);
      *count = kept;
    });
  }
  template <class In, class Out, class Count, class Op>
  static cudaError_t If(void* s, size_t& bytes, In in, Out out, Count count, int64_t n, Op keep, cudaStream_t stream = nullptr) {
    return emu_parts::device(s, bytes, stream, [=] {
      int64_t kept = 0;
      for (int64_t i = 0; i < n; ++i)
        if (keep(in[i])) out[kept++] = in[i];
      emu::touched(in, n, false), emu::touched(out, kept, true), emu::touched(count, 1, true);
      *count = kept;
    });
  }
};
}  // namespace cub
