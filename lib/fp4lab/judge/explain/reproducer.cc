// The smallest block that shows a difference: as a file, and as a test to paste.
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/version.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/judge/explain/explain.h"

namespace fp4lab {
namespace {

// The values as text, `per_line` per line, indented.
template <class T, class ToText>
std::string Listed(const std::vector<T>& values, const char* indent, std::size_t per_line,
                   ToText to_text) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % per_line == 0) text += (i == 0 ? "" : "\n") + std::string(indent);
    text += to_text(values[i]) + (i + 1 == values.size()         ? ""
                                  : i % per_line + 1 == per_line ? ","
                                                                 : ", ");
  }
  return text;
}

std::string Bits(float x) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, "0x%08x", std::bit_cast<std::uint32_t>(x));
  return buffer;
}
std::string CppFloat(float x) {
  if (!std::isfinite(x)) return "FromBits(" + Bits(x) + ")";
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, "%af", static_cast<double>(x));
  return buffer;
}
std::string Byte(std::uint8_t x) { return std::to_string(x); }

std::string Place(const Reproducer& r) {
  return r.dialect + ", the block of element (" + std::to_string(r.row) + ", " +
         std::to_string(r.col) + ")";
}

SafetensorsTensor Codes(const Quantized& q) { return {"U8", {q.rows, q.cols}, BytesOf(q.codes)}; }
SafetensorsTensor Scales(const Quantized& q) {
  const std::vector<std::size_t> grid = {q.scale_rows, q.scale_cols};
  if (!q.scale_values.empty()) return {"F32", grid, BytesOf(q.scale_values)};
  return {"U8", grid, BytesOf(q.scales)};
}
bool HasScales(const Quantized& q) { return !q.scales.empty() || !q.scale_values.empty(); }

// The scales as they stand in C++, and their bits as they stand in Python.
std::string CppScales(const Quantized& q) {
  return q.scale_values.empty() ? Listed(q.scales, "", 16, Byte)
                                : Listed(q.scale_values, "", 16, CppFloat);
}
std::string PythonScales(const Quantized& q) {
  return q.scale_values.empty() ? Listed(q.scales, "", 16, Byte)
                                : Listed(q.scale_values, "", 16, Bits);
}

}  // namespace

void WriteReproducer(const Reproducer& r, const std::filesystem::path& path) {
  const IeeeArithmetic ieee;
  SafetensorsFile file;
  file.tensors["input"] = {"F32", {r.x.rows, r.x.cols}, BytesOf(r.x.values)};
  file.tensors["expected.codes"] = Codes(r.expected);
  file.tensors["got.codes"] = Codes(r.got);
  if (HasScales(r.expected)) {
    file.tensors["expected.scales"] = Scales(r.expected);
    file.tensors["got.scales"] = Scales(r.got);
  }
  if (!r.amax.empty()) file.tensors["amax"] = {"F32", {r.amax.size()}, BytesOf(r.amax)};
  file.metadata = {{"dialect", r.dialect},
                   {"codes_order", "bytes"},
                   {"row", std::to_string(r.row)},
                   {"column", std::to_string(r.col)},
                   {"fp4lab", std::string(kVersion)}};
  WriteSafetensors(path, file);
}

std::string CppTest(const Reproducer& r) {
  const IeeeArithmetic ieee;
  std::string t = "// " + Place(r) + "; written by fp4lab explain.\n";
  t += "// Call it with your kernel: quantize(x, rows, cols, amax, codes, scales), one code "
       "per byte.\n"
       "#include <bit>\n#include <cstdint>\n#include <cstring>\n\n"
       "inline float FromBits(std::uint32_t bits) { return std::bit_cast<float>(bits); }\n\n"
       "template <class Quantize>\nbool QuantizesTheBlockRight(Quantize&& quantize) {\n";
  const std::string rows = std::to_string(r.x.rows), cols = std::to_string(r.x.cols);
  t += "  const int rows = " + rows + ", cols = " + cols + ";\n";
  t += "  const float amax = " + CppFloat(r.amax.empty() ? 0.0f : r.amax[0]) + ";" +
       (r.amax.empty() ? "  // not used: no tensor scale" : "") + "\n";
  t += "  const float x[] = {\n" + Listed(r.x.values, "      ", 6, CppFloat) + "};\n";
  t += "  const std::uint8_t expected_codes[] = {\n" +
       Listed(r.expected.codes, "      ", 16, Byte) + "};\n";
  const bool scales = HasScales(r.expected);
  const std::string type = r.expected.scale_values.empty() ? "std::uint8_t" : "float";
  if (scales) {
    t += "  const " + type + " expected_scales[] = {" + CppScales(r.expected) +
         "};  // the kernel in question wrote " + CppScales(r.got) + "\n";
  }
  t += "  std::uint8_t codes[sizeof expected_codes] = {};\n  " + type +
       " scales[1] = {};\n"
       "  quantize(x, rows, cols, amax, codes, scales);\n"
       "  return std::memcmp(codes, expected_codes, sizeof codes) == 0";
  t += scales
           ? " &&\n         std::memcmp(scales, expected_scales, sizeof expected_scales) == 0;\n}\n"
           : ";\n}\n";
  return t;
}

std::string PythonTest(const Reproducer& r) {
  const IeeeArithmetic ieee;
  std::string t = "# " + Place(r) + "; written by fp4lab explain.\n";
  t += "# Give `quantize` of your kernel: (x, amax) -> (codes, scales), one code per byte.\n"
       "import numpy as np\n\nfrom my_kernel import quantize\n\n\n"
       "def test_quantizes_the_block_right():\n";
  t += "    x = np.array([\n" + Listed(r.x.values, "        ", 6, Bits) +
       "], np.uint32).view(np.float32).reshape(" + std::to_string(r.x.rows) + ", " +
       std::to_string(r.x.cols) + ")\n";
  t += "    amax = " +
       (r.amax.empty() ? std::string("None")
                       : "np.array(" + Bits(r.amax[0]) + ", np.uint32).view(np.float32)") +
       "\n";
  t += "    codes, scales = quantize(x, amax)\n";
  t += "    expected = np.array([\n" + Listed(r.expected.codes, "        ", 16, Byte) +
       "], np.uint8).reshape(x.shape)\n"
       "    np.testing.assert_array_equal(codes, expected)\n";
  if (!r.expected.scale_values.empty()) {
    t += "    bits = np.ravel(np.asarray(scales, np.float32)).view(np.uint32)\n"
         "    np.testing.assert_array_equal(bits, [" +
         PythonScales(r.expected) + "])  # it wrote " + PythonScales(r.got) + "\n";
  } else if (HasScales(r.expected)) {
    t += "    np.testing.assert_array_equal(np.ravel(scales), [" + PythonScales(r.expected) +
         "])  # it wrote " + PythonScales(r.got) + "\n";
  }
  return t;
}

}  // namespace fp4lab
