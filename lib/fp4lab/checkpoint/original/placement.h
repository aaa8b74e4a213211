// Where the rows and columns of a quantized matrix stand in the original, whatever the scales are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/checkpoint/decoder.h"
#include "fp4lab/checkpoint/original/row_reader.h"

namespace fp4lab {

// Another tensor of the original, of the same size.
struct OtherOriginal {
  std::string name;
  RowReader rows;
};
// The nearest of them by name, read only where the matrix is not near its own original.
using OtherOriginals = std::function<std::vector<OtherOriginal>()>;

// The scales of another matrix of the checkpoint, in the same form.
struct NamedScales {
  std::string name;
  std::span<const std::byte> bytes;
};
using OtherScales = std::function<std::vector<NamedScales>()>;

// Compares directions: codes without their scales with pieces of the original's rows, each piece
// (a block, or up to 128 columns) scaled to length 1. Wrong scales do not matter so.
class Directions {
 public:
  // `decoder` and `original` must outlive the object.
  Directions(const Decoder& decoder, const Reading& reading, const RowReader& original);

  // Columns of a piece, and columns that are compared.
  std::size_t piece() const { return piece_; }
  std::size_t cols() const { return cols_; }

  // The first columns of a stored row, with `elements` as the values of the codes.
  std::vector<float> OfStored(std::size_t row, std::span<const float> elements) const;
  std::vector<float> OfStored(std::size_t row) const;
  std::vector<float> OfOriginal(std::size_t row) const { return OfOriginal(original_, row); }
  std::vector<float> OfOriginal(const RowReader& rows, std::size_t row) const;
  // Scales the pieces of `values` to length 1; numbers that are not finite become 0.
  void Scale(std::span<float> values) const;

  // The mean cosine of the pieces: 1 for equal directions; of other rows about 0.
  double Cosine(std::span<const float> a, std::span<const float> b) const;

 private:
  const Decoder& decoder_;
  const Reading& r_;
  const RowReader& original_;
  std::size_t piece_ = 1, cols_ = 0;
};

// A cosine from which on rows are the same ones: right codes of four bits have 0.98.
inline constexpr double kSameDirection = 0.8;
// The cosine of codes that are the original's, rounded.
constexpr double LeastCosine(const Reading& r) {
  return FormatOf(r.element).bits < 8 ? 0.95 : 0.99;
}

// Rows spread over all rows, the first ones in a run.
std::vector<std::size_t> SampleRows(std::size_t rows, std::size_t count);

// The cosines of sampled rows with the original's rows at their places.
std::vector<double> RowCosines(const Directions& directions, std::size_t rows);

// Whether nearly all rows stand at their places.
bool RowsInPlace(std::span<const double> cosines);

// "its rows stand at their places, but are other numbers: ..." where codes are farther from the
// original than rounding makes them; "" elsewhere.
std::string OtherNumbersText(std::span<const double> cosines, const Reading& reading);

// Names the tensor that stands in the matrix's place: parts, pieces or rows of it in another order;
// another tensor; the transpose; columns in another order; the original under a Hadamard transform.
// "" if none of them fits.
std::string PlacementText(const Decoder& decoder, const Reading& reading, const RowReader& original,
                          const OtherOriginals& others);

}  // namespace fp4lab
