// A dialect as JSON: a row's name, or an object that spells the formulas out.
#pragma once

#include <string>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

// Reads a name: any of `fp4lab dialects`, or an alias ("nvfp4", "nvfp4.2d").
// Or an object: "like", the name of the row that it modifies ("nvfp4.te" when absent), and any of
//   "rule"          nvfp4 | floor | ceil | rceil | even | tensor: all formulas of that scale rule;
//                   when absent, those of "like", or, if "scale" asks for the other kind of scales,
//                   rceil for e8m0 and nvfp4 for the rest
//   "element"       e2m1 | e2m3 | e3m2 | e4m3 | e5m2 | int4 (e0m3, the uniform grid of 4 bits)
//   "scale"         e4m3 | ue4m3 | ue5m3 | e5m2 | e8m0 | fp32 (not rounded) | bf16 (numbers)
//   "block"         [rows, cols], 1 x N or N x N with N = 8 .. 128, a multiple of 8; [0, 0]: one
//                   scale for the tensor, [1, 0]: one for each row
//   "tensor_scale"  false: no tensor scale
//   "row_scaled"    true: the tensor scale of each row instead of the tensor
//   "scale_max"     the block scale that the tensor scale aims at; the scale format's largest when
//                   absent
//   "adaptive"      none | mae | mse | abs_max: four over six
//   "target"        the value that a block's amax is mapped to, 6 for E2M1 when absent (6 * 16/17
//                   leaves head room for stochastic rounding)
//   "prescale"      elements are multiplied by it under their scale, the product is divided by it
//                   (3/4 on both operands: 16/9 after the GEMM)
//   "clip"          none | quest: scales from the block's standard deviation, not its amax
//   "unbias"        none | ms_eden: block scales corrected and rounded at random
//   "tensor_scale", "block_scale", "scale_encoding", "factor", "element_rounding", "nan",
//   "inf_scale":
//                   one stage's formula, by the label of its enumerator (dialect/labels.h)
//   "adaptive_fp16" true: four over six compares errors in FP16
//   "adaptive_decode" true: the errors are those of value*s*D, not of value*s*amax/C
//   "nan_scale", "nan_code": the byte stored for a NaN block's scale, for a NaN element
//   "signed_zeros"  keep | add_zero | never: whether a code of value 0 keeps its sign
// Throws Error at the JSON pointer of anything unknown or contradictory. Stochastic rounding is not
// part of a dialect's JSON; recipe_json.h has it. studies/dialects.md lists all keys and labels,
// from dialect_keys.cc.
Dialect ReadDialect(const Json& json, const std::string& where);

// Reads the keys of an object, all but "like", into a copy of `start`; names, version and the like
// of `start` stay. Throws Error as ReadDialect; takes stochastic roundings of elements. Marks every
// key of dialect_keys.h as known and finishes `o`.
Dialect ReadDialectKeys(JsonObject& o, const std::string& where, Dialect start);

// All fields of a dialect under the keys above, except "like", "rule" and "tensor_scale".
Json DialectFields(const Dialect& dialect);

// The name of the row with these formulas, or an object that ReadDialect reads. Stochastic rounding
// is left out.
Json ToJson(const Dialect& dialect);

}  // namespace fp4lab
