// AT_DISPATCH_*: the lambda is compiled once per element type, with `scalar_t` naming it.
#pragma once

#include <pkb_slim/types.h>

#define AT_DISPATCH_CASE(which, ...)                               \
  case which: {                                                    \
    using scalar_t [[maybe_unused]] = typename ::pkb_slim::TypeOf<which>::type; \
    return __VA_ARGS__();                                          \
  }
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                              \
  [&] {                                                                                                  \
    const auto& the_type = TYPE;                                                                         \
    const ::pkb_slim::ScalarType the_scalar_type = ::pkb_slim::dispatched(the_type);                     \
    switch (the_scalar_type) {                                                                           \
      __VA_ARGS__                                                                                        \
      default:                                                                                           \
        ::pkb_slim::fail(::pkb_slim::ErrorKind::not_implemented, "", '"', NAME, "\" not implemented for '", \
                         ::pkb_slim::toString(the_scalar_type), "'");                                    \
    }                                                                                                    \
  }()

namespace pkb_slim {
inline ScalarType dispatched(ScalarType type) { return type; }
}  // namespace pkb_slim

#define PKB_SLIM_FLOATS(...)                            \
  AT_DISPATCH_CASE(::pkb_slim::ScalarType::Double, __VA_ARGS__) \
  AT_DISPATCH_CASE(::pkb_slim::ScalarType::Float, __VA_ARGS__)
#define PKB_SLIM_INTEGERS(...)                        \
  AT_DISPATCH_CASE(::pkb_slim::ScalarType::Byte, __VA_ARGS__) \
  AT_DISPATCH_CASE(::pkb_slim::ScalarType::Char, __VA_ARGS__) \
  AT_DISPATCH_CASE(::pkb_slim::ScalarType::Int, __VA_ARGS__)  \
  AT_DISPATCH_CASE(::pkb_slim::ScalarType::Long, __VA_ARGS__) \
  AT_DISPATCH_CASE(::pkb_slim::ScalarType::Short, __VA_ARGS__)
#define PKB_SLIM_ALL(...) PKB_SLIM_INTEGERS(__VA_ARGS__) PKB_SLIM_FLOATS(__VA_ARGS__)

#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, PKB_SLIM_FLOATS(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND(::pkb_slim::ScalarType::Half, TYPE, NAME, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND(A, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, PKB_SLIM_FLOATS(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(A, B, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(                                          \
      TYPE, NAME, PKB_SLIM_FLOATS(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__) AT_DISPATCH_CASE(B, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, PKB_SLIM_INTEGERS(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, PKB_SLIM_ALL(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(A, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, PKB_SLIM_ALL(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(A, B, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(                                     \
      TYPE, NAME, PKB_SLIM_ALL(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__) AT_DISPATCH_CASE(B, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND3(A, B, C, TYPE, NAME, ...)                                                       \
  AT_DISPATCH_SWITCH(TYPE, NAME, PKB_SLIM_ALL(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__)                        \
                                     AT_DISPATCH_CASE(B, __VA_ARGS__) AT_DISPATCH_CASE(C, __VA_ARGS__))
