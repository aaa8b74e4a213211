// The extension module fp4lab._core: the library's functions on plain arrays, names and numbers.
// The package's Python files give them their public form.
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <stdexcept>

#include "arrays.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/interrupt.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/version.h"

namespace fp4lab::python {
namespace {

// The bits of an array of another library, by DLPack: (bits as unsigned integers, code of the type,
// bits and lanes of an element). The result shares the array's memory.
nb::object FromDlpack(const nb::ndarray<nb::ro>& array) {
  const nb::dlpack::dtype type = array.dtype();
  if (array.device_type() != nb::device::cpu::value) {
    throw nb::type_error("is not in the memory of the CPU");
  }
  const unsigned bits = type.bits * type.lanes;
  const std::uint8_t width = bits == 4 ? 8 : static_cast<std::uint8_t>(bits);
  const nb::dlpack::dtype raw{static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt), width, 1};
  std::vector<std::size_t> shape;
  std::vector<std::int64_t> strides;
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape.push_back(array.shape(i));
    strides.push_back(array.stride(i));
  }
  if (bits == 4) {  // two elements a byte, the even one in the low nibble: rows of whole bytes
    std::int64_t expected = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      if (shape[i] != 1 && strides[i] != expected) throw nb::type_error("has FP4 with gaps");
      expected *= static_cast<std::int64_t>(shape[i]);
    }
    if (shape.empty() || shape.back() % 2 != 0) throw nb::type_error("has FP4 rows of odd length");
    shape.back() /= 2;
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= static_cast<std::int64_t>(shape[i]);
    }
  }
  const nb::object owner = nb::cast(array);
  nb::ndarray<nb::numpy, nb::ro> view(array.data(), shape.size(), shape.data(), owner,
                                      strides.data(), raw);
  return nb::make_tuple(view, static_cast<int>(type.code), static_cast<int>(type.bits),
                        static_cast<int>(type.lanes));
}

std::optional<FloatingPointState> EnterIeee() {
  const FloatingPointState before = ReadFloatingPointState();
  if (IsIeee(before)) return std::nullopt;
  SetIeeeState();
  return before;
}

void LeaveIeee(const std::optional<FloatingPointState>& state) {
  if (state) WriteFloatingPointState(*state);
}

// Between two looks for signals: short for a person, long beside taking the interpreter's lock.
constexpr std::chrono::milliseconds kBetweenLooks{20};

// Runs Python's handlers of the signals that have come, in the main thread, which alone may run
// them. Throws what a handler raises: KeyboardInterrupt after Ctrl-C.
void CheckSignals() {
  thread_local const bool is_main = gettid() == getpid();
  if (!is_main) return;
  static std::chrono::steady_clock::time_point next_look;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look) return;
  next_look = now + kBetweenLooks;
  const nb::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace
}  // namespace fp4lab::python

NB_MODULE(_core, m) {
  namespace nb = nanobind;
  using namespace fp4lab;  // NOLINT: the module is the library's
  const nb::exception<Error> error(m, "Error", PyExc_ValueError);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const std::logic_error& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    }
  });
  m.attr("version") = std::string(kVersion);
  m.def("threads", [] { return Threads(); });
  m.def("set_threads", [](int threads) { SetThreads(threads); });
  m.def("from_dlpack", &python::FromDlpack, nb::arg("array").noconvert());
  SetInterruptCheck(&python::CheckSignals);
  // Python's arithmetic between two calls (fp4lab._ieee). enter_ieee() sets the state and returns
  // the one before, None if that is right; leave_ieee(state) sets that one again.
  nb::class_<FloatingPointState>(m, "FloatingPointState");
  m.def("enter_ieee", &python::EnterIeee);
  m.def("leave_ieee", &python::LeaveIeee, nb::arg("state").none());
  python::Bindings bindings(m);
  python::BindCheckpoint(bindings);
  python::BindTables(bindings);
  python::BindQuantize(bindings);
  python::BindStatistics(bindings);
  python::BindJudge(bindings);
  python::BindProducts(bindings);
  python::BindAttention(bindings);
  python::BindLinear(bindings);
  python::BindParity(bindings);
}
