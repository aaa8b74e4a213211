// A stand-alone kernel for the pipe `fp4lab cases | pipe_kernel | fp4lab verify`: NVFP4 as
// Transformer Engine computes it (1x16 blocks), from the formulas alone. The program shares no code
// with fp4lab, reads the stream as its documentation says, and has wrong modes:
//   pipe_kernel [right | truncates | divides-first | high-first | declines | declines-all | stops |
//                garbage]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

// Value of an E4M3 code without sign: 1.fff * 2^(e - 7), or 0.fff * 2^-6.
double E4m3(int code) {
  const int exponent = code / 8, fraction = code % 8;
  return exponent == 0 ? fraction * std::ldexp(1.0, -9)
                       : std::ldexp(1.0 + fraction / 8.0, exponent - 7);
}

// Nearest, ties to the even code, at most 448; t is not negative.
int ToE4m3(float t) {
  if (std::isnan(t)) return 0x7F;
  for (int code = 0; code < 0x7E; ++code) {
    const double middle = 0.5 * (E4m3(code) + E4m3(code + 1));
    if (t < middle || (t == middle && code % 2 == 0)) return code;
  }
  return 0x7E;
}

int ToE2m1(float v, bool truncates) {
  static constexpr float kTies[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  static constexpr float kValues[] = {0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  if (std::isnan(v)) return 7;
  const float a = std::fabs(v);
  int code = 0;
  for (int i = 0; i < 7; ++i) {
    const bool up = truncates ? a >= kValues[i] : i % 2 == 0 ? a > kTies[i] : a >= kTies[i];
    if (up) code = i + 1;
  }
  return code + (std::signbit(v) ? 8 : 0);
}

struct Answer {
  std::vector<std::uint8_t> codes, scales;
  float amax = 0;
};

Answer Quantize(const std::vector<float>& x, std::size_t rows, std::size_t cols,
                const std::string& mode) {
  Answer answer;
  for (const float v : x) answer.amax = std::fmax(answer.amax, std::fabs(v));
  float encode = std::fmin(2688.0f / answer.amax, kLargest);
  if (answer.amax == 0.0f || encode == 0.0f) encode = 1.0f;
  const float decode = 1.0f / encode;
  const float per_amax = encode * (1.0f / 6.0f);
  const std::size_t blocks = (cols + 15) / 16;
  answer.codes.assign(rows * ((cols + 1) / 2), 0);
  answer.scales.assign(rows * blocks, 0);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t end = std::min(cols, b * 16 + 16);
      float amax = 0.0f;
      for (std::size_t c = b * 16; c < end; ++c) amax = std::fmax(amax, std::fabs(x[r * cols + c]));
      const float t = mode == "divides-first" ? amax / 6.0f * encode : amax * per_amax;
      const int scale = ToE4m3(t);
      answer.scales[r * blocks + b] = static_cast<std::uint8_t>(scale);
      const float factor = std::fmin(1.0f / (static_cast<float>(E4m3(scale)) * decode), kLargest);
      for (std::size_t c = b * 16; c < end; ++c) {
        const int code = ToE2m1(x[r * cols + c] * factor, mode == "truncates");
        const bool high = (c % 2 == 1) != (mode == "high-first");
        answer.codes[r * ((cols + 1) / 2) + c / 2] |=
            static_cast<std::uint8_t>(high ? code << 4 : code);
      }
    }
  }
  return answer;
}

bool Read(void* out, std::size_t bytes) { return std::fread(out, 1, bytes, stdin) == bytes; }
void Write(const void* data, std::size_t bytes) { std::fwrite(data, 1, bytes, stdout); }

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "right";
  char line[512];
  if (std::fgets(line, sizeof line, stdin) == nullptr ||
      std::strncmp(line, "fp4lab-cases 1 ", 15) != 0) {
    std::fputs("pipe_kernel: not a stream of fp4lab cases\n", stderr);
    return 1;
  }
  const bool bf16 = std::strstr(line, "dtype=bf16") != nullptr;
  std::fputs(mode == "garbage" ? "hello\n" : "fp4lab-answers 1\n", stdout);
  std::uint32_t head[5];  // index, check, rows, cols, random
  for (int done = 0; Read(head, sizeof head); ++done) {
    const std::size_t count = std::size_t{head[2]} * head[3];
    std::vector<float> x(count);
    if (bf16) {
      std::vector<std::uint16_t> bits(count);
      if (!Read(bits.data(), count * 2)) return 1;
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t wide = std::uint32_t{bits[i]} << 16;
        std::memcpy(&x[i], &wide, 4);
      }
    } else if (!Read(x.data(), count * 4)) {
      return 1;
    }
    if (mode == "stops" && done == 3) return 0;
    const bool declines = mode == "declines-all" || (mode == "declines" && head[3] % 16 != 0);
    if (declines) {
      const std::uint32_t reply[5] = {head[0], head[1], 0, 0, 0};
      Write(reply, sizeof reply);
      continue;
    }
    const Answer answer = Quantize(x, head[2], head[3], mode);
    const std::uint32_t reply[5] = {head[0], head[1],
                                    static_cast<std::uint32_t>(answer.codes.size()),
                                    static_cast<std::uint32_t>(answer.scales.size()), 1};
    Write(reply, sizeof reply);
    Write(answer.codes.data(), answer.codes.size());
    Write(answer.scales.data(), answer.scales.size());
    Write(&answer.amax, 4);
  }
  return 0;
}
