// The FFI targets of the module, by name; te_* are Transformer Engine's.
#pragma once

#include <array>
#include <string_view>

#include "xla/ffi/api/c_api.h"

extern "C" {
XLA_FFI_Error* Fp4labTeQuantize(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* Fp4labTeRhtAmax(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* Fp4labTeGemm(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* Fp4labTeGroupedQuantize(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* Fp4labTeGroupedQuantizeV2(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* Fp4labTeGroupedGemm(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* Fp4labTeGroupedGemmV2(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* Fp4labTeGroupSizes(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* Fp4labRht(XLA_FFI_CallFrame* frame);
}

namespace fp4lab::handlers {

struct NamedHandler {
  std::string_view name;
  XLA_FFI_Handler* handler;
};
inline constexpr std::array kHandlers = {
    NamedHandler{"te_dbias_quantize_ffi", Fp4labTeQuantize},
    NamedHandler{"te_rht_amax_ffi", Fp4labTeRhtAmax},
    NamedHandler{"te_gemm_v2_ffi", Fp4labTeGemm},
    NamedHandler{"te_grouped_quantize_ffi", Fp4labTeGroupedQuantize},
    NamedHandler{"te_grouped_quantize_v2_ffi", Fp4labTeGroupedQuantizeV2},
    NamedHandler{"te_grouped_gemm_ffi", Fp4labTeGroupedGemm},
    NamedHandler{"te_grouped_gemm_v2_ffi", Fp4labTeGroupedGemmV2},
    NamedHandler{"te_grouped_gemm_d2h_group_sizes_ffi", Fp4labTeGroupSizes},
    NamedHandler{"rht_ffi", Fp4labRht},
};

}  // namespace fp4lab::handlers
