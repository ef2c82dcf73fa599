// The functions of the kernel as Python functions: a tensor is read through DLPack's exchange table,
// and no dispatcher, boxing or matching of schemas comes between, which takes longer than one decode
// step's rotation. On Python's limited API, so one library serves every version.
#if __has_include(<Python.h>) && !defined(ROPEWALK_WITHOUT_PYTHON)
#define Py_LIMITED_API 0x030a0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/dlpack.h>

#if DLPACK_MAJOR_VERSION == 1 && DLPACK_MINOR_VERSION >= 2
#include "functions.h"

#include <exception>
#include <tuple>
#include <utility>

namespace ropewalk {
namespace {

const DLPackExchangeAPI* exchange = nullptr;
PyTypeObject* tensor = nullptr;

struct PythonError {};  // is set

ScalarType type_of(const DLDataType& type) {
  if (type.lanes == 1 && type.code == kDLFloat) {
    if (type.bits == 64) return ScalarType::Double;
    if (type.bits == 32) return ScalarType::Float;
    if (type.bits == 16) return ScalarType::Half;
  }
  if (type.lanes == 1 && type.code == kDLBfloat && type.bits == 16) return ScalarType::BFloat16;
  if (type.lanes == 1 && type.code == kDLInt && type.bits == 64) return ScalarType::Long;
  return ScalarType::Undefined;
}

// --- from Python -----------------------------------------------------------------------------------

template <class T> struct From;

template <> struct From<const View&> {
  using type = View;
  static View read(PyObject* given) {
    STD_TORCH_CHECK(Py_TYPE(given) == tensor || PyType_IsSubtype(Py_TYPE(given), tensor),
                    "a tensor is wanted");
    DLTensor found;
    if (exchange->dltensor_from_py_object_no_sync(given, &found) != 0) {
      PyErr_Clear();
      STD_TORCH_CHECK(false, "a tensor that is not plain memory");
    }
    STD_TORCH_CHECK(found.device.device_type == kDLCPU, "the CPU kernel takes CPU tensors");
    const char* data = static_cast<const char*>(found.data);
    return View{found.ndim, found.shape, found.strides,
                data == nullptr ? nullptr : data + found.byte_offset, type_of(found.dtype)}
        .whole();
  }
};

template <> struct From<const MaybeView&> {
  using type = MaybeView;
  static MaybeView read(PyObject* given) {
    if (given == Py_None) return std::nullopt;
    return From<const View&>::read(given);
  }
};

template <> struct From<int64_t> {
  using type = int64_t;
  static int64_t read(PyObject* given) {
    const long long value = PyLong_AsLongLong(given);
    if (value == -1 && PyErr_Occurred()) throw PythonError{};
    return value;
  }
};

template <> struct From<double> {
  using type = double;
  static double read(PyObject* given) {
    const double value = PyFloat_AsDouble(given);
    if (value == -1 && PyErr_Occurred()) throw PythonError{};
    return value;
  }
};

// Other Python threads may go on while much is turned; for little, to let them costs too much.
struct Apart {
  PyThreadState* state;
  explicit Apart(const View& x) : state(x.elements() > kGrain ? PyEval_SaveThread() : nullptr) {}
  ~Apart() noexcept(false) {  // a Python that ends unwinds its threads from here
    if (state != nullptr) PyEval_RestoreThread(state);
  }
};

// --- the functions ---------------------------------------------------------------------------------

template <auto function> struct Direct;
template <class... T, void (*function)(T...)> struct Direct<function> {
  static PyObject* call(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count != sizeof...(T))
      return PyErr_Format(PyExc_TypeError, "%zd arguments, not %zd", sizeof...(T), count);
    try {
      turn(given, std::index_sequence_for<T...>{});
    } catch (const PythonError&) {
      return nullptr;
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      return nullptr;
    }
    Py_IncRef(Py_None);
    return Py_None;
  }

  template <size_t... I> static void turn(PyObject* const* given, std::index_sequence<I...>) {
    const std::tuple<typename From<T>::type...> read{From<T>::read(given[I])...};
    const Apart apart(std::get<0>(read));
    function(std::get<I>(read)...);
  }
};

template <auto function> PyMethodDef method(const char* name) {
  const auto call = reinterpret_cast<void (*)()>(&Direct<function>::call);
  return {name, reinterpret_cast<PyCFunction>(call), METH_FASTCALL, nullptr};
}

PyMethodDef methods[] = {
    method<rotate>("rotate"),
    method<rotate_qk>("rotate_qk"),
    method<rotate_qk_>("rotate_qk_"),
    method<rotate_by>("rotate_by"),
    method<rotate_qk_by>("rotate_qk_by"),
    method<phase_tables>("phase_tables"),
    method<advise>("advise"),
};

}  // namespace
}  // namespace ropewalk

// A dict of the functions, for torch.Tensor and its exchange table; a Python error where that table
// is of another kind.
extern "C" __attribute__((visibility("default"))) PyObject* ropewalk_direct(PyObject* type,
                                                                            PyObject* table) {
  using namespace ropewalk;
  const void* found = PyCapsule_GetPointer(table, "dlpack_exchange_api");
  if (found == nullptr) return nullptr;
  const auto* offered = static_cast<const DLPackExchangeAPI*>(found);
  if (offered->header.version.major != DLPACK_MAJOR_VERSION ||
      offered->dltensor_from_py_object_no_sync == nullptr)
    return PyErr_Format(PyExc_RuntimeError, "another DLPack exchange table than version 1");
  exchange = offered;
  tensor = reinterpret_cast<PyTypeObject*>(type);
  PyObject* made = PyDict_New();
  for (PyMethodDef& method : methods) {
    PyObject* function = made == nullptr ? nullptr : PyCFunction_NewEx(&method, nullptr, nullptr);
    const bool kept =
        function != nullptr && PyDict_SetItemString(made, method.ml_name, function) == 0;
    if (function != nullptr) Py_DecRef(function);
    if (!kept) {
      if (made != nullptr) Py_DecRef(made);
      return nullptr;
    }
  }
  return made;
}
#endif
#endif
