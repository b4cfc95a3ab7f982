// TORCH_CHECK and its like: a message out of parts, as an output stream would write them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>

#include <pkb_slim/error.h>

namespace pkb_slim {

inline void write(std::string& to, const char* text) { to += text; }
inline void write(std::string& to, const std::string& text) { to += text; }
inline void write(std::string& to, char letter) { to += letter; }
inline void write(std::string& to, signed char letter) { to += static_cast<char>(letter); }
inline void write(std::string& to, unsigned char letter) { to += static_cast<char>(letter); }
inline void write(std::string& to, bool value) { to += value ? '1' : '0'; }
template <class T>
std::enable_if_t<std::is_integral<T>::value> write(std::string& to, T value) { to += std::to_string(value); }
template <class T>
std::enable_if_t<std::is_enum<T>::value && std::is_convertible<T, long long>::value> write(std::string& to, T value) {
  to += std::to_string(static_cast<long long>(value));
}
template <class T>
std::enable_if_t<std::is_floating_point<T>::value> write(std::string& to, T value) {
  char text[64];
  snprintf(text, sizeof text, "%g", static_cast<double>(value));
  to += text;
}

template <class... Parts>
std::string message(const Parts&... parts) {
  std::string text;
  (write(text, parts), ...);
  return text;
}

template <class... Parts>
[[noreturn]] void fail(ErrorKind kind, const char* condition, const Parts&... parts) {
  if constexpr (sizeof...(Parts) == 0) {
    throw Error(message("Expected ", condition, " to be true, but got false.  (Could this error message be improved?  "
                        "If so, please report an enhancement request to PyTorch.)"), kind);
  } else {
    throw Error(message(parts...), kind);
  }
}

}  // namespace pkb_slim

namespace c10 {
using pkb_slim::Error;
template <class... Parts>
std::string str(const Parts&... parts) { return pkb_slim::message(parts...); }
}  // namespace c10
namespace at {
using namespace c10;
}
namespace torch {
using namespace at;
}

#define PKB_SLIM_CHECK(kind, condition, ...) \
  if (__builtin_expect(!(condition), 0)) {   \
    ::pkb_slim::fail(::pkb_slim::ErrorKind::kind, #condition, ##__VA_ARGS__); \
  }
#define TORCH_CHECK(condition, ...) PKB_SLIM_CHECK(runtime, condition, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) PKB_SLIM_CHECK(value, condition, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) PKB_SLIM_CHECK(type, condition, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) PKB_SLIM_CHECK(index, condition, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) PKB_SLIM_CHECK(not_implemented, condition, ##__VA_ARGS__)
#define AT_ERROR(...) \
  do { ::pkb_slim::fail(::pkb_slim::ErrorKind::runtime, "", ##__VA_ARGS__); } while (false)
