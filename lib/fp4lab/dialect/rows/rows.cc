// The table of dialects. The specification of a row is its fields; the formulas are
// the structs of the stages' headers (dialect.h names them).
#include "fp4lab/dialect/rows/rows.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/kept.h"

namespace fp4lab {
namespace {

const std::vector<Dialect>& Table() {
  static const std::vector<Dialect> table = [] {
    std::vector<Dialect> rows;
    AddTransformerEngine(&rows);
    AddFourOverSix(&rows);
    AddOtherNvfp4(&rows);
    AddMicroscaling(&rows);
    AddInference(&rows);
    AddFp8(&rows);
    AddFp8Blocks(&rows);
    return rows;
  }();
  return table;
}

struct Alias {
  std::string_view alias, name;
};
constexpr std::array kAliases = {
    Alias{"nvfp4", "nvfp4.te"},
    Alias{"nvfp4.2d", "nvfp4.te.2d"},
    Alias{"te", "nvfp4.te"},
    Alias{"te.2d", "nvfp4.te.2d"},
    Alias{"transformer-engine", "nvfp4.te"},
    Alias{"cutlass", "nvfp4.cutlass"},
    Alias{"flashinfer", "nvfp4.flashinfer"},
    Alias{"torchao", "nvfp4.torchao"},
    Alias{"nvfp4.torchao.training", "nvfp4.torchao"},
    Alias{"modelopt", "nvfp4.modelopt"},
    Alias{"compressed-tensors", "nvfp4.compressed-tensors"},
    Alias{"nvfp4.vllm.triton", "nvfp4.compressed-tensors.triton"},
    Alias{"fouroversix", "nvfp4.fouroversix"},
    Alias{"quartet2", "nvfp4.quartet2"},
    Alias{"qwix", "nvfp4.qwix"},
    Alias{"ggml", "nvfp4.ggml"},
    Alias{"llama.cpp", "nvfp4.ggml"},
    Alias{"universal", "nvfp4.universal"},
    Alias{"mlx", "nvfp4.mlx"},
    Alias{"comfyui", "nvfp4.comfyui"},
    Alias{"comfy-kitchen", "nvfp4.comfyui"},
    Alias{"auto-round", "nvfp4.auto-round"},
    Alias{"sageattention3", "nvfp4.sageattention3"},
    Alias{"amdfp4", "amdfp4.quark"},
};

}  // namespace

std::span<const Dialect> Dialects() { return Table(); }

const Dialect* FindDialect(std::string_view name) {
  for (const Alias& a : kAliases) {
    if (a.alias == name) name = a.name;
  }
  const auto row = std::find_if(Table().begin(), Table().end(),
                                [&](const Dialect& d) { return d.name == name; });
  return row == Table().end() ? FindKept(name) : &*row;
}

Dialect WithOwnRounding(Dialect dialect) {
  const Dialect* row = FindDialect(dialect.name);
  const bool own = row != nullptr && !IsStochastic(*row);
  dialect.rounding = own ? row->rounding : ElementRounding::kNearestEven;
  return dialect;
}

Dialect Canonical(const Dialect& dialect) {
  const IeeeArithmetic ieee;
  const auto row = std::find_if(Table().begin(), Table().end(),
                                [&](const Dialect& d) { return SameFormulas(d, dialect); });
  if (row != Table().end()) return *row;
  Dialect unnamed = dialect;
  unnamed.name = unnamed.version = unnamed.source = unnamed.note = {};
  return unnamed;
}

}  // namespace fp4lab
