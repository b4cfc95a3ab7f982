// Modules and their functions: overloads, names, defaults, and the messages that pybind11 gives.
#pragma once

#include <torch/csrc/Exceptions.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct NamedValue {
  std::string name;
  PyObject* value;
};

struct Overload {
  std::vector<NamedValue> parameters;
  bool named;
  std::string signature;  // from the opening parenthesis
  std::string doc;
  pkb_slim::Invoke invoke;
  void* callee;
};

struct Overloaded {
  std::string name;
  std::string doc;
  std::vector<Overload> overloads;
  PyMethodDef method;
};

constexpr char kRecord[] = "pkb_slim.function";

std::string repr_of(PyObject* object) {
  PyObject* text = PyObject_Repr(object);
  const char* utf8 = text ? PyUnicode_AsUTF8(text) : nullptr;
  std::string result = utf8 ? utf8 : "<repr raised Error>";
  Py_XDECREF(text);
  PyErr_Clear();
  return result;
}

void set_error(const pkb_slim::Error& error) {
  PyObject* const types[] = {
      PyExc_RuntimeError, PyExc_IndexError, PyExc_ValueError, PyExc_TypeError, PyExc_NotImplementedError};
  if (error.origin()) torch::translate_exception_to_python(error.origin());
  else PyErr_SetString(types[static_cast<int>(error.kind())], error.what());
}

// The exception under way as Python's, by pybind11's table.
void set_error() {
  try {
    throw;
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (const pkb_slim::Error& error) {
    set_error(error);
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(std::current_exception());
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::domain_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::length_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::range_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::overflow_error& error) {
    PyErr_SetString(PyExc_OverflowError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "Caught an unknown exception!");
  }
}

// The arguments of a call in the order of the parameters; false where they do not go together.
bool arrange(
    const Overload& overload, PyObject* const* given, Py_ssize_t positional, PyObject* names, std::vector<Object>& to) {
  const Py_ssize_t arity = static_cast<Py_ssize_t>(overload.parameters.size());
  const Py_ssize_t keywords = names ? PyTuple_GET_SIZE(names) : 0;
  if (positional > arity || (keywords && !overload.named)) return false;
  to.assign(overload.parameters.size(), nullptr);
  for (Py_ssize_t i = 0; i < positional; ++i) to[i] = given[i];
  for (Py_ssize_t k = 0; k < keywords; ++k) {
    Py_ssize_t i = positional;
    while (i < arity && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), overload.parameters[i].name.c_str()))
      ++i;
    if (i == arity) return false;  // unknown, or given by its place already
    to[i] = given[positional + k];
  }
  for (Py_ssize_t i = positional; i < arity; ++i) {
    if (!to[i]) to[i] = overload.parameters[i].value;
    if (!to[i]) return false;
  }
  return true;
}

void set_misfit(const Overloaded& function, PyObject* const* given, Py_ssize_t positional, PyObject* names) {
  std::string text =
      function.name + "(): incompatible function arguments. The following argument types are supported:\n";
  size_t number = 0;
  for (const Overload& overload : function.overloads)
    text += "    " + std::to_string(++number) + ". " + overload.signature + "\n";
  text += "\nInvoked with: ";
  for (Py_ssize_t i = 0; i < positional; ++i) text += (i ? ", " : "") + repr_of(given[i]);
  const Py_ssize_t keywords = names ? PyTuple_GET_SIZE(names) : 0;
  if (keywords) text += positional ? "; kwargs: " : "kwargs: ";
  for (Py_ssize_t k = 0; k < keywords; ++k) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, k));
    text += std::string(k ? ", " : "") + (name ? name : "?") + "=" + repr_of(given[positional + k]);
  }
  PyErr_SetString(PyExc_TypeError, text.c_str());
}

PyObject* dispatch(PyObject* self, PyObject* const* given, Py_ssize_t positional, PyObject* names) {
  const auto& function = *static_cast<Overloaded*>(PyCapsule_GetPointer(self, kRecord));
  try {
    std::vector<Object> arguments;
    // Several overloads: first those that fit without a conversion.
    for (bool convert : {false, true}) {
      if (!convert && function.overloads.size() == 1) continue;
      for (const Overload& overload : function.overloads) {
        Object result = nullptr;
        if (!arrange(overload, given, positional, names, arguments)) continue;
        if (overload.invoke(overload.callee, arguments.data(), convert, &result) != 0) continue;
        if (!result && !PyErr_Occurred()) {
          PyErr_SetString(PyExc_TypeError, "Unable to convert function return value to a Python type!");
        }
        return plain(result);
      }
    }
    set_misfit(function, given, positional, names);
  } catch (...) {
    set_error();
  }
  return nullptr;
}

std::string signature_of(const pkb_slim::Function& function) {
  std::string text = "(";
  for (size_t i = 0; i < function.arity; ++i) {
    const pkb_slim::Parameter& parameter = function.parameters[i];
    text += i ? ", " : "";
    text += (parameter.name ? std::string(parameter.name) : "arg" + std::to_string(i)) + ": " + parameter.type;
    if (parameter.default_value) text += " = " + repr_of(plain(parameter.default_value));
  }
  return text + ") -> " + function.result;
}

void write_doc(Overloaded& function) {
  std::string text;
  const bool several = function.overloads.size() > 1;
  if (several) text = function.name + "(*args, **kwargs)\nOverloaded function.\n\n";
  size_t number = 0;
  for (const Overload& overload : function.overloads) {
    if (number++) text += "\n";
    if (several) text += std::to_string(number) + ". ";
    text += function.name + overload.signature + "\n";
    if (!overload.doc.empty()) text += "\n" + overload.doc + "\n";
  }
  function.doc = text;
  function.method.ml_doc = function.doc.c_str();
}

pkb_slim::FillModule fill_module = nullptr;

int execute(PyObject* module) {
  try {
    fill_module(module);
    return 0;
  } catch (...) {
    set_error();
    return -1;
  }
}

}  // namespace

extern "C" {

void* pkb_slim_module(const char* name, pkb_slim::FillModule fill) {
  static PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(&execute)}, {0, nullptr}};
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, name, nullptr, 0, nullptr, slots, nullptr, nullptr, nullptr};
  fill_module = fill;
  return PyModuleDef_Init(&definition);
}

void pkb_slim_module_doc(Object module, const char* text) {
  if (PyModule_SetDocString(plain(module), text) != 0) throw pybind11::error_already_set();
}

void pkb_slim_define(Object module, const pkb_slim::Function* function) {
  Overload overload;
  overload.named = function->arity > 0 && function->parameters[0].name != nullptr;
  for (size_t i = 0; i < function->arity; ++i) {
    const pkb_slim::Parameter& parameter = function->parameters[i];
    overload.parameters.push_back({parameter.name ? parameter.name : "", plain(parameter.default_value)});
  }
  overload.signature = signature_of(*function);
  overload.doc = function->doc ? function->doc : "";
  overload.invoke = function->invoke;
  overload.callee = function->callee;

  PyObject* known = PyObject_HasAttrString(plain(module), function->name)
                        ? PyObject_GetAttrString(plain(module), function->name) : nullptr;
  PyObject* self = known && PyCFunction_Check(known) ? PyCFunction_GET_SELF(known) : nullptr;
  if (self && PyCapsule_IsValid(self, kRecord)) {
    auto& record = *static_cast<Overloaded*>(PyCapsule_GetPointer(self, kRecord));
    record.overloads.push_back(std::move(overload));
    write_doc(record);
    Py_DECREF(known);
    return;
  }
  Py_XDECREF(known);
  auto* record = new Overloaded{function->name, "", {}, {}};
  record->overloads.push_back(std::move(overload));
  record->method.ml_name = record->name.c_str();
  record->method.ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&dispatch));
  record->method.ml_flags = METH_FASTCALL | METH_KEYWORDS;
  write_doc(*record);
  PyObject* capsule = PyCapsule_New(record, kRecord, nullptr);
  PyObject* of_module = PyModule_GetNameObject(plain(module));
  PyObject* callable = capsule && of_module ? PyCFunction_NewEx(&record->method, capsule, of_module) : nullptr;
  const int failed = callable ? PyModule_AddObjectRef(plain(module), function->name, callable) : -1;
  Py_XDECREF(callable);
  Py_XDECREF(of_module);
  Py_XDECREF(capsule);
  if (failed) throw pybind11::error_already_set();
}

}  // extern "C"
