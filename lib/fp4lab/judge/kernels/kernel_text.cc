#include "fp4lab/judge/kernels/kernel_text.h"

#include "fp4lab/base/text/text.h"
#include "fp4lab/transform/hadamard_transform.h"

namespace fp4lab {

std::string DialectOption(const Dialect& dialect) {
  const std::string name(dialect.name);
  return " --dialect " + (name.starts_with('{') ? "'" + name + "'" : name);
}

std::string CommandOptions(const Kernel& kernel) {
  const StorageLayout& l = kernel.layout;
  const StorageLayout plain{.codes = DefaultCodeOrder(kernel.dialect.element)};
  std::string text = DialectOption(kernel.dialect);
  if (l.codes != plain.codes) text += " --codes-order " + std::string(Name(l.codes));
  if (l.scales != plain.scales) text += " --scales-order " + std::string(Named(l.scales).name);
  if (l.scale_type != ScaleTypeOf(kernel.dialect, plain) && l.scale_type != ScaleType::kByte) {
    text += " --scales-type " + std::string(Named(l.scale_type).name);
  }
  if (l.transposed) text += " --transposed";
  if (l.expanded_scales) text += " --expanded-scales";
  if (HasTensorScale(kernel.dialect) && l.tensor_scale != plain.tensor_scale) {
    text += " --tensor-scale-is " + std::string(Name(l.tensor_scale));
  }
  if (kernel.hadamard != 0) {
    text += " --hadamard " + std::to_string(kernel.hadamard);
    if (kernel.sign_mask != (kernel.hadamard == 32 ? kTeSignMask32 : kTeSignMask16)) {
      text += " --signs " + HexText(kernel.sign_mask, kernel.hadamard / 4);
    }
  }
  return text;
}

}  // namespace fp4lab
