// Formats of codes that are looked up in a table, and not computed: their 16 values.
#pragma once

#include <array>
#include <string_view>

namespace fp4lab {

struct CodeTable {
  std::string_view name;    // in reports
  std::string_view marker;  // the end of bitsandbytes' tensor quant_state.bitsandbytes__
  std::string_view source;
  std::array<float, 16> values;  // by code; a block's scale is its largest magnitude
};

// The values of bitsandbytes' FP4 are stored as 12 times these.
inline constexpr std::array<float, 8> kFp4Twelfths = {0, 0.0625f, 8, 12, 4, 6, 2, 3};

inline constexpr std::array kCodeTables = {
    CodeTable{
        "NF4",
        "nf4",
        "bitsandbytes/functional.py get_4bit_type (QLoRA, arXiv 2305.14314)",
        {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
         -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
         0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
         0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}},
    CodeTable{"FP4 of bitsandbytes", "fp4", "bitsandbytes/functional.py get_4bit_type",
              [] {
                std::array<float, 16> values = {};
                for (std::size_t i = 0; i < 8; ++i) {
                  values[i] = kFp4Twelfths[i] / 12.0f;
                  values[i + 8] = -values[i];
                }
                return values;
              }()},
};

}  // namespace fp4lab
