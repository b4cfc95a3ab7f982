// at::BFloat16, at::Half, c10::complex and the 8-bit floats: the same bits as torch's, with the arithmetic in float.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define PKB_SLIM_BOTH __host__ __device__
#else
#define PKB_SLIM_BOTH
#endif

namespace pkb_slim {

template <class To, class From>
PKB_SLIM_BOTH inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "sizes differ");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

PKB_SLIM_BOTH inline uint16_t bfloat16_bits(float value) {
  if (value != value) return 0x7fc0;
  uint32_t bits = same_bits<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#ifdef __CUDACC__
PKB_SLIM_BOTH inline uint16_t half_bits(float value) { return same_bits<uint16_t>(__float2half(value)); }
PKB_SLIM_BOTH inline float half_value(uint16_t bits) { return __half2float(same_bits<__half>(bits)); }
#else
inline uint16_t half_bits(float value) {
  uint32_t bits = same_bits<uint32_t>(value), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (rest >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (rest < 0x38800000u) {  // subnormal: adding one half puts the bits where they belong, rounded to even
    uint32_t small = same_bits<uint32_t>(same_bits<float>(rest) + 0.5f) - 0x3f000000u;
    return static_cast<uint16_t>(sign | small);
  }
  return static_cast<uint16_t>(sign | ((rest - 0x38000000u + 0xfffu + ((rest >> 13) & 1u)) >> 13));
}
inline float half_value(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return same_bits<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  if (rest >= 0x400u) return same_bits<float>(sign | ((rest << 13) + 0x38000000u));
  float small = static_cast<float>(rest) * 5.9604644775390625e-8f;
  return sign ? -small : small;
}
#endif

struct alignas(2) BFloat16 {
  uint16_t x;
  struct from_bits_t {};
  PKB_SLIM_BOTH static constexpr from_bits_t from_bits() { return from_bits_t(); }
  BFloat16() = default;
  PKB_SLIM_BOTH constexpr BFloat16(unsigned short bits, from_bits_t) : x(bits) {}
  PKB_SLIM_BOTH inline BFloat16(float value) : x(bfloat16_bits(value)) {}
  PKB_SLIM_BOTH inline operator float() const { return same_bits<float>(static_cast<uint32_t>(x) << 16); }
#ifdef __CUDACC__
  PKB_SLIM_BOTH inline BFloat16(const __nv_bfloat16& value) : x(same_bits<uint16_t>(value)) {}
  explicit PKB_SLIM_BOTH inline operator __nv_bfloat16() const { return same_bits<__nv_bfloat16>(x); }
#endif
};

struct alignas(2) Half {
  uint16_t x;
  struct from_bits_t {};
  PKB_SLIM_BOTH static constexpr from_bits_t from_bits() { return from_bits_t(); }
  Half() = default;
  PKB_SLIM_BOTH constexpr Half(uint16_t bits, from_bits_t) : x(bits) {}
  PKB_SLIM_BOTH inline Half(float value) : x(half_bits(value)) {}
  PKB_SLIM_BOTH inline operator float() const { return half_value(x); }
#ifdef __CUDACC__
  PKB_SLIM_BOTH inline Half(const __half& value) : x(same_bits<uint16_t>(value)) {}
  PKB_SLIM_BOTH inline operator __half() const { return same_bits<__half>(x); }
#endif
};

#define PKB_SLIM_OPERATOR(T, op)                                                                                \
  PKB_SLIM_BOTH inline T operator op(const T& a, const T& b) { return static_cast<float>(a) op static_cast<float>(b); } \
  PKB_SLIM_BOTH inline T& operator op##=(T& a, const T& b) { return a = a op b; }                              \
  PKB_SLIM_BOTH inline float operator op(T a, float b) { return static_cast<float>(a) op b; }                  \
  PKB_SLIM_BOTH inline float operator op(float a, T b) { return a op static_cast<float>(b); }                  \
  PKB_SLIM_BOTH inline double operator op(T a, double b) { return static_cast<double>(a) op b; }               \
  PKB_SLIM_BOTH inline double operator op(double a, T b) { return a op static_cast<double>(b); }               \
  PKB_SLIM_BOTH inline T operator op(T a, int b) { return a op static_cast<T>(static_cast<float>(b)); }        \
  PKB_SLIM_BOTH inline T operator op(int a, T b) { return static_cast<T>(static_cast<float>(a)) op b; }        \
  PKB_SLIM_BOTH inline T operator op(T a, int64_t b) { return a op static_cast<T>(static_cast<float>(b)); }    \
  PKB_SLIM_BOTH inline T operator op(int64_t a, T b) { return static_cast<T>(static_cast<float>(a)) op b; }
#define PKB_SLIM_OPERATORS(T)                                                                          \
  PKB_SLIM_OPERATOR(T, +) PKB_SLIM_OPERATOR(T, -) PKB_SLIM_OPERATOR(T, *) PKB_SLIM_OPERATOR(T, /)      \
  PKB_SLIM_BOTH inline T operator-(const T& a) { return -static_cast<float>(a); }                      \
  PKB_SLIM_BOTH inline float& operator+=(float& a, const T& b) { return a += static_cast<float>(b); }  \
  PKB_SLIM_BOTH inline float& operator-=(float& a, const T& b) { return a -= static_cast<float>(b); }  \
  PKB_SLIM_BOTH inline float& operator*=(float& a, const T& b) { return a *= static_cast<float>(b); }  \
  PKB_SLIM_BOTH inline float& operator/=(float& a, const T& b) { return a /= static_cast<float>(b); }
PKB_SLIM_OPERATORS(BFloat16)
PKB_SLIM_OPERATORS(Half)
#undef PKB_SLIM_OPERATORS
#undef PKB_SLIM_OPERATOR

template <class T>
struct alignas(2 * sizeof(T)) complex {
  using value_type = T;
  T real_ = T(0);
  T imag_ = T(0);
  constexpr complex() = default;
  PKB_SLIM_BOTH constexpr complex(const T& real, const T& imag = T()) : real_(real), imag_(imag) {}
  PKB_SLIM_BOTH constexpr T real() const { return real_; }
  PKB_SLIM_BOTH constexpr T imag() const { return imag_; }
  PKB_SLIM_BOTH constexpr void real(T value) { real_ = value; }
  PKB_SLIM_BOTH constexpr void imag(T value) { imag_ = value; }
  PKB_SLIM_BOTH constexpr complex& operator+=(const complex& o) { return real_ += o.real_, imag_ += o.imag_, *this; }
  PKB_SLIM_BOTH constexpr complex& operator-=(const complex& o) { return real_ -= o.real_, imag_ -= o.imag_, *this; }
};
template <class T>
PKB_SLIM_BOTH constexpr complex<T> operator+(complex<T> a, const complex<T>& b) { return a += b; }
template <class T>
PKB_SLIM_BOTH constexpr complex<T> operator-(complex<T> a, const complex<T>& b) { return a -= b; }
template <class T>
PKB_SLIM_BOTH constexpr complex<T> operator*(const complex<T>& a, const complex<T>& b) {
  return complex<T>(a.real_ * b.real_ - a.imag_ * b.imag_, a.real_ * b.imag_ + a.imag_ * b.real_);
}

// No conversion from float: what torch makes of one that is too large differs between its versions, so a source that
// needs it is built with torch's own header.
struct alignas(1) Float8_e4m3fn {
  uint8_t x;
  struct from_bits_t {};
  PKB_SLIM_BOTH static constexpr from_bits_t from_bits() { return from_bits_t(); }
  Float8_e4m3fn() = default;
  PKB_SLIM_BOTH constexpr Float8_e4m3fn(uint8_t bits, from_bits_t) : x(bits) {}
  PKB_SLIM_BOTH inline operator float() const {
    const uint32_t sign = static_cast<uint32_t>(x & 0x80u) << 24, rest = x & 0x7fu;
    if (rest == 0x7fu) return same_bits<float>(sign | 0x7fc00000u);
    const float size = rest < 8 ? static_cast<float>(rest) * 0.001953125f : same_bits<float>((rest << 20) + 0x3c000000u);
    return same_bits<float>(same_bits<uint32_t>(size) | sign);
  }
  PKB_SLIM_BOTH inline bool isnan() const { return (x & 0x7fu) == 0x7fu; }
};

struct alignas(1) Float8_e5m2 {
  uint8_t x;
  struct from_bits_t {};
  PKB_SLIM_BOTH static constexpr from_bits_t from_bits() { return from_bits_t(); }
  Float8_e5m2() = default;
  PKB_SLIM_BOTH constexpr Float8_e5m2(uint8_t bits, from_bits_t) : x(bits) {}
  PKB_SLIM_BOTH inline operator float() const { return half_value(static_cast<uint16_t>(x << 8)); }
  PKB_SLIM_BOTH inline bool isnan() const { return (x & 0x7fu) > 0x7cu; }
};

}  // namespace pkb_slim

namespace c10 {
using pkb_slim::BFloat16;
using pkb_slim::complex;
using pkb_slim::Float8_e4m3fn;
using pkb_slim::Float8_e5m2;
using pkb_slim::Half;
}  // namespace c10
namespace at {
using namespace c10;
}
namespace torch {
using namespace at;
}
