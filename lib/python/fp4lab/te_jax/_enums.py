"""The module transformer_engine_jax: what Transformer Engine's Python code reads of its CUDA extension.

Names and values are those of release 2.20.2 (csrc/extensions/pybind.cpp and the headers that it includes).
"""

from __future__ import annotations

import enum
import types

_ENUMS = {
    "DType": dict(
        kByte=0, kInt32=2, kInt64=3, kFloat32=4, kFloat16=5, kBFloat16=6, kFloat8E4M3=7, kFloat8E5M2=8,
        kFloat8E8M0=9, kFloat4E2M1=10,
    ),
    "NVTE_Bias_Type": dict(NVTE_NO_BIAS=0, NVTE_PRE_SCALE_BIAS=1, NVTE_POST_SCALE_BIAS=2),
    "NVTE_Mask_Type": dict(
        NVTE_NO_MASK=0, NVTE_PADDING_MASK=1, NVTE_CAUSAL_MASK=2, NVTE_PADDING_CAUSAL_MASK=3,
        NVTE_CAUSAL_BOTTOM_RIGHT_MASK=4, NVTE_PADDING_CAUSAL_BOTTOM_RIGHT_MASK=5,
    ),
    "NVTE_QKV_Layout": dict(
        NVTE_BS3HD=5, NVTE_BSHD_BS2HD=7, NVTE_BSHD_BSHD_BSHD=9, NVTE_T3HD=10, NVTE_THD_T2HD=12,
        NVTE_THD_THD_THD=14, NVTE_QKV_Layout_NOT_SET=26,
    ),
    "NVTE_QKV_Format": dict(NVTE_SBHD=0, NVTE_BSHD=1, NVTE_THD=2, NVTE_QKV_Format_NOT_SET=8),
    "NVTE_Softmax_Type": dict(
        NVTE_VANILLA_SOFTMAX=0, NVTE_OFF_BY_ONE_SOFTMAX=1, NVTE_LEARNABLE_SOFTMAX=2
    ),
    "NVTE_Activation_Type": dict(
        GELU=0, GEGLU=1, GLU=2, SILU=3, SWIGLU=4, RELU=5, REGLU=6, QGELU=7, QGEGLU=8, SRELU=9, SREGLU=10,
        CLAMPED_SWIGLU=11,
    ),
    "NVTE_Fused_Attn_Backend": dict(NVTE_No_Backend=-1, NVTE_F16_arbitrary_seqlen=1, NVTE_FP8=2),
    "NVTE_Norm_Type": dict(LayerNorm=0, RMSNorm=1),
    "JAXX_Scaling_Mode": dict(
        NO_SCALING=0, DELAYED_TENSOR_SCALING=1, MXFP8_1D_SCALING=2, CURRENT_TENSOR_SCALING=3,
        NVFP4_1D_SCALING=4, NVFP4_2D_SCALING=5,
    ),
    "JAXX_Quantize_Layout": dict(ROWWISE=0, COLWISE=1, ROWWISE_COLWISE=2),
    "JAXX_Score_Function": dict(SIGMOID=0, SOFTMAX=1, SQRTSOFTPLUS=2),
    "JAXX_Routing_Map_Format": dict(BYTEMAP=0, BITMAP_U8=1),
    "JAXX_Collective_Op": dict(NONE=0, ALL_GATHER=1, REDUCE_SCATTER=2),
}

# Functions of fused attention, norms, activations, ... whose primitives are switched off.
_ABSENT = (
    "get_fused_attn_backend", "get_dact_dbias_quantize_workspace_sizes", "get_norm_fwd_workspace_sizes",
    "get_norm_bwd_workspace_sizes", "get_fused_attn_fwd_workspace_sizes",
    "get_fused_attn_bwd_workspace_sizes", "get_topk_workspace_sizes", "nvte_get_qkv_format",
    "initialize_cgemm_communicator", "get_cgemm_num_max_streams",
)


def _absent(name):
    def call(*_args, **_kwargs):
        raise RuntimeError(f"fp4lab.te_jax: {name} is not served on a CPU (cuBLAS and cuDNN kernels)")

    call.__name__ = name
    return call


def module(capability: int) -> types.ModuleType:
    """A new module transformer_engine_jax for a device of this compute capability."""
    m = types.ModuleType("transformer_engine_jax", __doc__)
    for name, values in _ENUMS.items():
        kind = enum.IntEnum(name, values)
        setattr(m, name, kind)
        if name.startswith(("JAXX_", "NVTE_Norm", "NVTE_Act")):  # pybind's export_values
            for value in kind:
                setattr(m, value.name, value)
    for name in _ABSENT:
        setattr(m, name, _absent(name))
    m.get_grouped_gemm_setup_workspace_size = lambda _groups: 1  # the handler needs none
    m.registrations = dict  # the targets of platform CUDA: none
    m.get_device_compute_capability = lambda _gpu=0: capability
    m.get_cuda_version = lambda: 12080
    m.get_cudnn_version = lambda: 91200
    m.get_cudnn_frontend_version = lambda: 11400
    m.get_cublasLt_version = lambda: 120800
    m.get_num_compute_streams = lambda: 1
    m.is_non_nt_fp8_gemm_supported = lambda: 100 <= capability < 120
    m.nvte_built_with_cublasmp = lambda: False
    m.is_collective_gemm_with_cublasmp = lambda: False
    m.get_dbias_quantize_workspace_sizes = lambda *_: (((1,), m.DType.kFloat32),)
    return m
