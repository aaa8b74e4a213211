// The Python module fp4lab._xla.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "environment.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/base/version.h"
#include "handlers.h"
#include "journal.h"

namespace nb = nanobind;

namespace fp4lab::handlers {
namespace {

nb::dict Registrations() {
  nb::dict targets;
  for (const NamedHandler& h : kHandlers) {
    targets[nb::str(h.name.data(), h.name.size())] =
        nb::capsule(reinterpret_cast<void*>(h.handler), "xla._CUSTOM_CALL_TARGET");
  }
  return targets;
}

nb::list Records() {
  nb::list calls;
  for (const RecordedCall& call : TakeRecords()) {
    nb::dict buffers;
    for (const RecordedBuffer& b : call.buffers) {
      buffers[b.name.c_str()] =
          nb::make_tuple(b.dtype, nb::tuple(nb::cast(b.shape)),
                         nb::bytes(reinterpret_cast<const char*>(b.bytes.data()), b.bytes.size()));
    }
    calls.append(nb::make_tuple(call.op, call.attributes, buffers));
  }
  return calls;
}

}  // namespace
}  // namespace fp4lab::handlers

NB_MODULE(_xla, m) {
  using namespace fp4lab::handlers;
  m.doc() = "XLA FFI handlers on libfp4lab.";
  m.attr("version") = nb::str(fp4lab::kVersion.data(), fp4lab::kVersion.size());
  fp4lab::PinSimdTargetFromEnvironment();
  m.def("registrations", &Registrations, "FFI target name -> capsule, for platform cpu");
  m.def("counts", &Counts, "Calls so far: description -> number");
  m.def("clear_counts", &ClearCounts);
  m.def("set_recording", &SetRecording, nb::arg("on"));
  m.def("records", &Records,
        "Takes the recorded calls: (op, attributes, {name: (dtype, shape, bytes)})");
  m.def("set_threads", &SetHandlerThreads, nb::arg("threads").none(),
        "Threads of one call; None: OpenMP's number");
  m.def("simd_target", &fp4lab::ActiveSimdTarget);
}
