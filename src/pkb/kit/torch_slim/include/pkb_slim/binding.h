// PYBIND11_MODULE and m.def over the adaptor: which Python arguments fit which C++ types, as pybind11 decides it.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <pkb_slim/tensor.h>

namespace pkb_slim {

// Not defined for a type that is not offered: such a source is built with torch's own headers.
template <class T, class = void>
struct Caster;

template <class T>
constexpr bool is_letter =
    std::is_same<T, char>::value || std::is_same<T, wchar_t>::value || std::is_same<T, char16_t>::value ||
    std::is_same<T, char32_t>::value;

template <class T>
struct Caster<T, std::enable_if_t<std::is_integral<T>::value && !std::is_same<T, bool>::value && !is_letter<T>>> {
  using Wide = std::conditional_t<std::is_signed<T>::value, int64_t, uint64_t>;
  static std::string name(bool result) { return pkb_slim_python_name(Name::integer, result); }
  static bool load(Object from, bool convert, T& value) {
    Wide wide = 0;
    bool fits;
    if constexpr (std::is_signed<T>::value) fits = pkb_slim_load_signed(from, convert, &wide);
    else fits = pkb_slim_load_unsigned(from, convert, &wide);
    value = static_cast<T>(wide);
    return fits && static_cast<Wide>(value) == wide;
  }
  static Object cast(T value) {
    if constexpr (std::is_signed<T>::value) return pkb_slim_from_signed(value);
    else return pkb_slim_from_unsigned(value);
  }
};

template <class T>
struct Caster<T, std::enable_if_t<std::is_floating_point<T>::value>> {
  static std::string name(bool result) { return pkb_slim_python_name(Name::floating, result); }
  static bool load(Object from, bool convert, T& value) {
    double wide = 0;
    bool fits = pkb_slim_load_double(from, convert, &wide);
    value = static_cast<T>(wide);
    return fits;
  }
  static Object cast(T value) { return pkb_slim_from_double(static_cast<double>(value)); }
};

template <>
struct Caster<bool> {
  static std::string name(bool) { return "bool"; }
  static bool load(Object from, bool convert, bool& value) { return pkb_slim_load_bool(from, convert, &value); }
  static Object cast(bool value) { return pkb_slim_from_bool(value); }
};

template <>
struct Caster<std::string> {
  static std::string name(bool) { return "str"; }
  static bool load(Object from, bool, std::string& value) {
    const char* text = nullptr;
    size_t length = 0;
    if (!pkb_slim_load_text(from, &text, &length)) return false;
    value.assign(text, length);
    return true;
  }
  static Object cast(const std::string& value) { return pkb_slim_from_text(value.data(), value.size()); }
};

template <>
struct Caster<Tensor> {
  static std::string name(bool) { return "torch.Tensor"; }
  static bool load(Object from, bool, Tensor& value) {
    Handle handle = nullptr;
    if (!pkb_slim_load_tensor(from, &handle)) return false;
    value = Tensor::own(handle);
    return true;
  }
  static Object cast(const Tensor& value) { return pkb_slim_from_tensor(value.handle()); }
};

template <class T>
struct Caster<std::optional<T>> {
  static std::string name(bool result) { return Caster<T>::name(result) + " | None"; }
  static bool load(Object from, bool convert, std::optional<T>& value) {
    if (pkb_slim_is_none(from)) return true;
    T inner{};
    if (!Caster<T>::load(from, convert, inner)) return false;
    value = std::move(inner);
    return true;
  }
  static Object cast(const std::optional<T>& value) { return value ? Caster<T>::cast(*value) : pkb_slim_none(); }
};

template <class T>
struct Caster<std::vector<T>, std::enable_if_t<!std::is_same<T, bool>::value>> {
  static std::string name(bool result) {
    return (result ? "list[" : "collections.abc.Sequence[") + Caster<T>::name(result) + "]";
  }
  static bool load(Object from, bool convert, std::vector<T>& value) {
    Object items = pkb_slim_load_sequence(from, convert);
    if (!items) return false;
    bool fits = true;
    const size_t length = pkb_slim_tuple_length(items);
    value.resize(length);
    for (size_t i = 0; fits && i < length; ++i) fits = Caster<T>::load(pkb_slim_tuple_item(items, i), convert, value[i]);
    pkb_slim_drop(items);
    return fits;
  }
  static Object cast(const std::vector<T>& value) {
    std::vector<Object> items;
    for (const T& item : value) items.push_back(Caster<T>::cast(item));
    return pkb_slim_from_items(items.data(), items.size(), true);
  }
};

template <class... T>
struct TupleCaster {
  static std::string name(bool result) {
    std::string text;
    ((text += (text.empty() ? "" : ", ") + Caster<T>::name(result)), ...);
    return "tuple[" + text + "]";
  }
  template <class Tuple, size_t... I>
  static Object cast(const Tuple& value, std::index_sequence<I...>) {
    Object items[] = {Caster<T>::cast(std::get<I>(value))...};
    return pkb_slim_from_items(items, sizeof...(T), false);
  }
};
template <class... T>
struct Caster<std::tuple<T...>, std::enable_if_t<(sizeof...(T) > 0)>> : TupleCaster<T...> {
  static Object cast(const std::tuple<T...>& value) {
    return TupleCaster<T...>::cast(value, std::index_sequence_for<T...>());
  }
};
template <class A, class B>
struct Caster<std::pair<A, B>> : TupleCaster<A, B> {
  static Object cast(const std::pair<A, B>& value) {
    return TupleCaster<A, B>::cast(value, std::index_sequence_for<A, B>());
  }
};

struct None {};
template <>
struct Caster<None> {
  static Object cast(None) { return pkb_slim_none(); }
};

// py::tuple as a result.
class PyTuple {
 public:
  template <class... T>
  static PyTuple of(const T&... items) {
    Object all[] = {Caster<T>::cast(items)..., nullptr};
    return PyTuple(pkb_slim_from_items(all, sizeof...(T), false));
  }
  PyTuple(PyTuple&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ~PyTuple() {
    if (object_) pkb_slim_drop(object_);
  }
  Object release() { return std::exchange(object_, nullptr); }

 private:
  explicit PyTuple(Object object) : object_(object) {}
  Object object_;
};
template <>
struct Caster<PyTuple> {
  static std::string name(bool) { return "tuple"; }
  static Object cast(PyTuple value) { return value.release(); }
};

struct NamedDefault {
  const char* name;
  Object value;
};
struct Argument {
  explicit constexpr Argument(const char* text) : name(text) {}
  template <class T>
  NamedDefault operator=(const T& value) const {
    return {name, Caster<T>::cast(value)};
  }
  NamedDefault operator=(const char* value) const { return {name, Caster<std::string>::cast(value)}; }
  const char* name;
};

struct Extras {
  const char* doc = nullptr;
  std::vector<Parameter> parameters;
  void add(const char* text) { doc = text; }
  void add(const Argument& argument) { parameters.push_back({argument.name, nullptr, nullptr}); }
  void add(const NamedDefault& given) { parameters.push_back({given.name, nullptr, given.value}); }
};
template <class T>
constexpr bool is_parameter = std::is_same<T, Argument>::value || std::is_same<T, NamedDefault>::value;

template <class F, class R, class... A>
struct Bound {
  template <size_t... I>
  static int call(F& function, Object* arguments, bool convert, Object* result, std::index_sequence<I...>) {
    [[maybe_unused]] std::tuple<std::decay_t<A>...> values;
    if (!(Caster<std::decay_t<A>>::load(arguments[I], convert, std::get<I>(values)) && ...)) return 1;
    if constexpr (std::is_void<R>::value) {
      function(static_cast<A&&>(std::get<I>(values))...);
      *result = pkb_slim_none();
    } else {
      *result = Caster<std::decay_t<R>>::cast(function(static_cast<A&&>(std::get<I>(values))...));
    }
    return 0;
  }
  static int invoke(void* callee, Object* arguments, bool convert, Object* result) {
    return call(*static_cast<F*>(callee), arguments, convert, result, std::index_sequence_for<A...>());
  }
  template <class... Extra>
  static void define(Object module, const char* name, F function, const Extra&... extra) {
    constexpr size_t named = (size_t(0) + ... + size_t(is_parameter<Extra>));
    static_assert(named == 0 || named == sizeof...(A), "py::arg for every parameter, or for none");
    Extras extras;
    (extras.add(extra), ...);
    extras.parameters.resize(sizeof...(A), Parameter{nullptr, nullptr, nullptr});
    const std::string types[] = {Caster<std::decay_t<A>>::name(false)..., std::string()};
    for (size_t i = 0; i < sizeof...(A); ++i) extras.parameters[i].type = types[i].c_str();
    std::string result = "None";
    if constexpr (!std::is_void<R>::value) result = Caster<std::decay_t<R>>::name(true);
    Function record{name, extras.doc, result.c_str(), extras.parameters.data(), sizeof...(A), &invoke, nullptr};
    record.callee = new F(std::move(function));  // lives as long as the module, which is for ever
    pkb_slim_define(module, &record);
  }
};

template <class F>
struct CallOperator;
template <class C, class R, class... A>
struct CallOperator<R (C::*)(A...)> {
  template <class F>
  using Bind = Bound<F, R, A...>;
};
template <class C, class R, class... A>
struct CallOperator<R (C::*)(A...) const> : CallOperator<R (C::*)(A...)> {};

class Module {
 public:
  explicit Module(Object object) : object_(object) {}
  template <class R, class... A, class... Extra>
  Module& def(const char* name, R (*function)(A...), const Extra&... extra) {
    Bound<R (*)(A...), R, A...>::define(object_, name, function, extra...);
    return *this;
  }
  template <class F, class... Extra, std::enable_if_t<std::is_class<std::decay_t<F>>::value, int> = 0>
  Module& def(const char* name, F&& function, const Extra&... extra) {
    using Plain = std::decay_t<F>;
    CallOperator<decltype(&Plain::operator())>::template Bind<Plain>::define(
        object_, name, std::forward<F>(function), extra...);
    return *this;
  }
  struct Doc {
    Object module;
    void operator=(const char* text) const { pkb_slim_module_doc(module, text); }
  };
  Doc doc() const { return Doc{object_}; }

 private:
  Object object_;
};

}  // namespace pkb_slim

namespace pybind11 {
using module_ = ::pkb_slim::Module;
using arg = ::pkb_slim::Argument;
using none = ::pkb_slim::None;
using tuple = ::pkb_slim::PyTuple;
template <class... T>
tuple make_tuple(T&&... items) {
  return tuple::of<std::decay_t<T>...>(items...);
}
}  // namespace pybind11
namespace py = pybind11;

#define PYBIND11_MODULE(name, variable, ...) PKB_SLIM_MODULE(name, variable)
#define PKB_SLIM_MODULE(name, variable)                                                                       \
  __attribute__((used)) static const char pkb_slim_marker[] = "built with pkb's slim torch header";           \
  static void pkb_slim_fill_module(::pkb_slim::Module&);                                                      \
  static void pkb_slim_fill_object(::pkb_slim::Object object) {                                               \
    ::pkb_slim::Module module(object);                                                                        \
    pkb_slim_fill_module(module);                                                                             \
  }                                                                                                           \
  extern "C" __attribute__((visibility("default"))) void* PyInit_##name();                                    \
  extern "C" __attribute__((visibility("default"))) void* PyInit_##name() {                                   \
    return pkb_slim_module(#name, &pkb_slim_fill_object);                                                     \
  }                                                                                                           \
  static void pkb_slim_fill_module(::pkb_slim::Module& variable)
