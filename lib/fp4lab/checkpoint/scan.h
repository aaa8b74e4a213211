// One pass over the bytes of codes and scales, in pieces whose pages are released after use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "fp4lab/checkpoint/decoder.h"
#include "fp4lab/exchange/vendors/reading.h"
#include "fp4lab/io/file_content.h"

namespace fp4lab {

// Bytes that are read; `content` holds them, or is nullptr.
struct Streamed {
  std::span<const std::byte> bytes;
  const FileContent* content = nullptr;
};

struct CodeScan {
  std::uint8_t any = 0, all = 0xFF;  // the OR and the AND of all bytes
  // Codes that the format does not have or that are no number: bytes above the format's bits, NaN
  // and Inf.
  std::size_t impossible = 0;
  std::size_t first_impossible = 0;  // its byte
};
CodeScan ScanCodes(const Streamed& codes, const Reading& reading);

struct ScaleScan {
  std::size_t count = 0;                    // without padding
  std::array<std::size_t, 256> bytes = {};  // by byte; of scales that are bytes
  std::size_t zeros = 0, nans = 0, negatives = 0, largest_finite = 0;
  std::size_t powers_of_two = 0, e4m3 = 0;  // numbers that are these
  bool constant = false;
  float smallest = 0, largest = 0;  // of the finite magnitudes
};
// dtype: of the tensor, for scales that are numbers. The bytes must be those of the reading.
ScaleScan ScanScales(const Streamed& scales, std::string_view dtype, const Reading& reading);

// The same from the number of scales by byte.
ScaleScan JudgeBytes(const std::array<std::size_t, 256>& counts, FormatId scale);

// The number of blocks whose scale is 0 (of E8M0: byte 0) and whose codes are not all 0.
std::size_t DeadBlocks(const Streamed& codes, const Streamed& scales, std::string_view dtype,
                       const Reading& reading);

// "rows 32..63 ..." where all codes of rows are 0 and the scales there are those of numbers: other
// than 0, and not all equal. "" if there are none among rows that are spread over the matrix.
std::string UnwrittenRowsText(const Streamed& codes, const Streamed& scales, std::string_view dtype,
                              const Reading& reading);

}  // namespace fp4lab
