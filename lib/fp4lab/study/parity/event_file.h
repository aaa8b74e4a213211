// TensorBoard's event files: records of TFRecord, each an Event of protocol buffers.
//
// A record is its length (8 bytes, little endian), the masked CRC-32C of these bytes (4), the data,
// and the masked CRC-32C of the data (4). masked(c) = rotate_right(c, 15) + 0xA282EAD8. Of an Event
// the fields step (2) and summary (5) are read; of a summary's value (1) the tag (1) and either
// simple_value (2, binary32) or tensor (8) of one element: DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64
// or DT_HALF. Values that are no scalars are passed over. Sources:
// tensorflow/core/util/event.proto, tensorflow/core/framework/{summary,tensor}.proto,
// tensorflow/core/lib/io/record_writer.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace fp4lab::study {

using ScalarVisitor = std::function<void(std::int64_t step, const std::string& tag, double value)>;

// Calls `visit` for every scalar, in the file's order. Returns the bytes of whole records: fewer
// than the file has if a program that still writes it, or was killed, left half a record at its
// end. Throws Error(where, "byte N: ...") for a CRC that does not fit and for a message that is
// none.
std::size_t ReadEventFile(std::string_view bytes, const std::string& where,
                          const ScalarVisitor& visit);

// The CRC-32C (Castagnoli) of the bytes, masked as records have it.
std::uint32_t MaskedCrc(std::string_view bytes);

}  // namespace fp4lab::study
