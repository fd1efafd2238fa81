#include "arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tessera::python {
namespace {

constexpr std::string_view kBegin =
    "(): incompatible function arguments. The following argument types are supported:\n";

// The few ways in which nanobind calls functions, each behind a function of ours.
constexpr size_t kMost = 16;
std::array<vectorcallfunc, kMost> originals;
size_t known_originals = 0;

std::string without(std::string text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part))
    text.erase(at, part.size());
  return text;
}

std::string between(const std::string& text, size_t begin, std::string_view end) {
  return text.substr(begin, std::min(text.find(end, begin), text.size()) - begin);
}

/// "(a: int, b: float = 1)" from "f(a: int, b: float = 1) -> int", without the parameter for the object
/// itself.
std::string parameters_of(const std::string& signature) {
  std::string text = signature.substr(signature.find('('));
  text = text.substr(0, text.rfind(") ->") + 1);
  for (const char* self : {"(self, ", "(cls: object, ", "(self", "(cls: object"})
    if (text.starts_with(self)) return "(" + text.substr(std::string_view(self).size());
  return text;
}

/// nanobind's text in one sentence; unchanged if it is another text. `first` is the first argument.
std::string explained(const std::string& text, PyObject* first) {
  const size_t begin = text.find(kBegin);
  if (begin == std::string::npos) return text;
  std::string name = text.substr(0, begin);
  std::string given = between(text, std::min(text.find("Invoked with types: "), text.size()), "\n");
  given = without(without(std::move(given), "Invoked with types: "), "tessera._tessera.");
  if (name == "__init__" || name == "__new__") {
    const size_t rest = given.find(", ");
    given = rest == std::string::npos ? "" : given.substr(rest + 2);
    const PyTypeObject* type = PyType_Check(first) ? reinterpret_cast<PyTypeObject*>(first) : Py_TYPE(first);
    name = type->tp_name;
    name = name.substr(name.rfind('.') + 1);
  }
  std::vector<std::string> taken;
  for (size_t line = begin + kBegin.size(); line < text.size() && text[line] == ' ';
       line = std::min(text.find('\n', line), text.size()) + 1)
    taken.push_back(parameters_of(without(between(text, line, "\n"), "tessera._tessera.")));
  return fmt::format("{}() takes {}; given are ({})", name, fmt::join(taken, " or "), given);
}

void explain(PyObject* first) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const std::string text = nb::str(nb::handle(value)).c_str();
  const std::string clear = explained(text, first);
  if (clear == text) return PyErr_Restore(type, value, trace);
  Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
  PyErr_SetString(PyExc_TypeError, clear.c_str());
}

template <size_t i>
PyObject* call(PyObject* function, PyObject* const* arguments, size_t number, PyObject* names) {
  PyObject* result = originals[i](function, arguments, number, names);
  if (result == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) != 0)
    explain(PyVectorcall_NARGS(number) > 0 ? arguments[0] : function);
  return result;
}

template <size_t... i>
constexpr std::array<vectorcallfunc, sizeof...(i)> calls_of(std::index_sequence<i...>) {
  return {call<i>...};
}
constexpr auto kCalls = calls_of(std::make_index_sequence<kMost>());

void explain_function(nb::handle function) {
  const Py_ssize_t offset = Py_TYPE(function.ptr())->tp_vectorcall_offset;
  auto& called = *reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(function.ptr()) + offset);
  for (size_t i = 0; i < known_originals; ++i)
    if (called == kCalls[i]) return;
  size_t i = 0;
  while (i < known_originals && originals[i] != called) ++i;
  if (i == kMost) throw std::logic_error("nanobind calls functions in more ways than expected");
  if (i == known_originals) originals[known_originals++] = called;
  called = kCalls[i];
}

bool is_function(nb::handle value) {
  const std::string_view type = Py_TYPE(value.ptr())->tp_name;
  return type == "nanobind.nb_func" || type == "nanobind.nb_method";
}

void explain_members(nb::handle of) {
  for (nb::handle value : of.attr("__dict__").attr("values")()) {
    if (is_function(value)) explain_function(value);
    if (PyType_Check(value.ptr()) != 0 && nb::type_check(value)) explain_members(value);
    for (const char* accessor : {"fget", "fset", "__func__"})
      if (const nb::object function = nb::getattr(value, accessor, nb::none()); is_function(function))
        explain_function(function);
  }
}

}  // namespace

void explain_wrong_arguments(nb::module_& module) { explain_members(module); }

}  // namespace tessera::python
