// Python objects to C++ values and back, by pybind11's rules.
#pragma once

#include <torch/csrc/autograd/python_variable.h>

#include <pybind11/pybind11.h>

#include <cstring>

namespace {

using pkb_slim::Object;

PyObject* plain(Object object) { return static_cast<PyObject*>(object); }

// The name that pybind11 gives a C++ type: "text", or "@as an argument@as a result@".
std::string python_name(const char* text, bool result) {
  if (*text != '@') return text;
  const char* middle = std::strchr(text + 1, '@');
  if (!middle) return text;
  return result ? std::string(middle + 1, std::strcspn(middle + 1, "@")) : std::string(text + 1, middle);
}

// What remains once a plain conversion has failed: a number of another type, through its own method, once.
PyObject* as_number(PyObject* object, bool convert, PyObject* (*method)(PyObject*)) {
  PyErr_Clear();
  if (!convert || !PyNumber_Check(object)) return nullptr;
  PyObject* number = method(object);
  PyErr_Clear();
  return number;
}

bool can_be_integer(PyObject* object, bool convert) {
  return !PyFloat_Check(object) && (convert || PyLong_Check(object) || PyIndex_Check(object));
}

bool is_numpy_bool(PyObject* object) {
  const char* name = Py_TYPE(object)->tp_name;
  return !std::strcmp(name, "numpy.bool") || !std::strcmp(name, "numpy.bool_");
}

}  // namespace

extern "C" {

const char* pkb_slim_python_name(pkb_slim::Name which, bool result) {
  static const std::string names[] = {
      python_name(pybind11::detail::make_caster<int>::name.text, false),
      python_name(pybind11::detail::make_caster<int>::name.text, true),
      python_name(pybind11::detail::make_caster<double>::name.text, false),
      python_name(pybind11::detail::make_caster<double>::name.text, true),
  };
  return names[2 * static_cast<int>(which) + result].c_str();
}

bool pkb_slim_load_signed(Object from, bool convert, int64_t* value) {
  if (!can_be_integer(plain(from), convert)) return false;
  *value = PyLong_AsLong(plain(from));
  if (*value != -1 || !PyErr_Occurred()) return true;
  PyObject* number = as_number(plain(from), convert, PyNumber_Long);
  const bool fits = number && pkb_slim_load_signed(number, false, value);
  Py_XDECREF(number);
  return fits;
}

bool pkb_slim_load_unsigned(Object from, bool convert, uint64_t* value) {
  if (!can_be_integer(plain(from), convert)) return false;
  PyObject* index = PyNumber_Index(plain(from));
  *value = index ? PyLong_AsUnsignedLong(index) : static_cast<uint64_t>(-1);
  Py_XDECREF(index);
  if (*value != static_cast<uint64_t>(-1) || !PyErr_Occurred()) return true;
  PyObject* number = as_number(plain(from), convert, PyNumber_Long);
  const bool fits = number && pkb_slim_load_unsigned(number, false, value);
  Py_XDECREF(number);
  return fits;
}

bool pkb_slim_load_double(Object from, bool convert, double* value) {
  if (!convert && !PyFloat_Check(plain(from))) return false;
  *value = PyFloat_AsDouble(plain(from));
  if (*value != -1.0 || !PyErr_Occurred()) return true;
  PyObject* number = as_number(plain(from), convert, PyNumber_Float);
  const bool fits = number && pkb_slim_load_double(number, false, value);
  Py_XDECREF(number);
  return fits;
}

bool pkb_slim_load_bool(Object from, bool convert, bool* value) {
  PyObject* object = plain(from);
  if (object == Py_True || object == Py_False) return *value = object == Py_True, true;
  if (!convert && !is_numpy_bool(object)) return false;
  if (object == Py_None) return *value = false, true;
  const PyNumberMethods* number = Py_TYPE(object)->tp_as_number;
  const int truth = number && number->nb_bool ? number->nb_bool(object) : -1;
  PyErr_Clear();
  *value = truth == 1;
  return truth == 0 || truth == 1;
}

bool pkb_slim_load_text(Object from, const char** text, size_t* length) {
  PyObject* object = plain(from);
  if (PyUnicode_Check(object)) {
    Py_ssize_t size = 0;
    *text = PyUnicode_AsUTF8AndSize(object, &size);
    *length = static_cast<size_t>(size);
    if (!*text) PyErr_Clear();
    return *text != nullptr;
  }
  if (PyBytes_Check(object)) {
    *text = PyBytes_AS_STRING(object);
    *length = static_cast<size_t>(PyBytes_GET_SIZE(object));
    return true;
  }
  if (PyByteArray_Check(object)) {
    *text = PyByteArray_AS_STRING(object);
    *length = static_cast<size_t>(PyByteArray_GET_SIZE(object));
    return true;
  }
  return false;
}

bool pkb_slim_load_tensor(Object from, Handle* handle) {
  return guarded([&] {
    if (!THPVariable_Check(plain(from))) return false;
    *handle = given(THPVariable_Unpack(plain(from)));
    return true;
  });
}

Object pkb_slim_load_sequence(Object from, bool convert) {
  PyObject* object = plain(from);
  if (PySequence_Check(object)) {
    if (PyUnicode_Check(object) || PyBytes_Check(object)) return nullptr;
  } else {
    const bool iterable = PyGen_Check(object) || PyAnySet_Check(object) || PyDictKeys_Check(object) ||
                          PyDictValues_Check(object) || PyDictItems_Check(object) ||
                          PyObject_TypeCheck(object, &PyMap_Type) || PyObject_TypeCheck(object, &PyZip_Type);
    if (!convert || !iterable) return nullptr;
  }
  PyObject* items = PySequence_Tuple(object);
  if (!items) throw pybind11::error_already_set();
  return items;
}

size_t pkb_slim_tuple_length(Object tuple) { return static_cast<size_t>(PyTuple_GET_SIZE(plain(tuple))); }
Object pkb_slim_tuple_item(Object tuple, size_t i) { return PyTuple_GET_ITEM(plain(tuple), i); }
bool pkb_slim_is_none(Object object) { return plain(object) == Py_None; }
void pkb_slim_drop(Object object) { Py_XDECREF(plain(object)); }
Object pkb_slim_none() { return Py_NewRef(Py_None); }
Object pkb_slim_from_signed(int64_t value) { return PyLong_FromLongLong(value); }
Object pkb_slim_from_unsigned(uint64_t value) { return PyLong_FromUnsignedLongLong(value); }
Object pkb_slim_from_double(double value) { return PyFloat_FromDouble(value); }
Object pkb_slim_from_bool(bool value) { return PyBool_FromLong(value); }
Object pkb_slim_from_text(const char* text, size_t length) {
  return PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(length), nullptr);
}
Object pkb_slim_from_tensor(Handle handle) {
  return guarded([&] { return THPVariable_Wrap(borrowed(handle)); });
}

Object pkb_slim_from_items(Object* items, size_t n, bool list) {
  const Py_ssize_t length = static_cast<Py_ssize_t>(n);
  PyObject* result = list ? PyList_New(length) : PyTuple_New(length);
  bool whole = result != nullptr;
  for (Py_ssize_t i = 0; i < length; ++i) {
    PyObject* item = plain(items[i]);
    whole = whole && item;
    if (!result) Py_XDECREF(item);
    else if (list) PyList_SET_ITEM(result, i, item);
    else PyTuple_SET_ITEM(result, i, item);
  }
  if (!whole) Py_CLEAR(result);
  return result;
}

}  // extern "C"
