#include "fp4lab/data/r_data.h"

#include "fp4lab/base/random.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/r_package.h"

namespace fp4lab {
namespace {

const std::vector<std::string> kLines{"EMMA", "", "By Jane Austen", "caf\xC3\xA9"};

std::string LinesError(const std::string& object) {
  return ErrorOf([&] { LinesOfCharacterVector(object, "f"); });
}

TEST_CASE("The lines of a serialized R character vector are read back", "[data]") {
  CHECK(LinesOfCharacterVector(SerializedLines(kLines), "f") == Joined(kLines));
  CHECK(LinesOfCharacterVector(SerializedLines({}), "f").empty());
}

TEST_CASE("A version 2 object and one with attributes are read", "[data]") {
  std::string old = SerializedLines(kLines);
  old.replace(2, 4, BigEndian(2));
  old.erase(14, 9);  // the encoding's length and name
  CHECK(LinesOfCharacterVector(old, "f") == Joined(kLines));
  std::string attributes = SerializedLines(kLines);
  attributes.replace(23, 4, BigEndian(16 | 1 << 9));
  CHECK(LinesOfCharacterVector(attributes + "a pairlist", "f") == Joined(kLines));
}

TEST_CASE("R objects other than character vectors are refused with the reason", "[data]") {
  const auto replaced = [](std::size_t at, std::uint32_t word) {
    return SerializedLines(kLines).replace(at, 4, BigEndian(word));
  };
  CHECK(LinesError("RDX3\n") == "f: is not an R object in XDR format");
  CHECK(LinesError(replaced(2, 4)) == "f: has serialization version 4, not 2 or 3");
  CHECK(LinesError(replaced(23, 13)) == "f: is not a character vector");
  CHECK(LinesError(replaced(27, 0x80000000u)) == "f: has an impossible number of strings");
  CHECK(LinesError(replaced(27, 5)) == "f: is truncated");
  CHECK(LinesError(replaced(27, 3)) == "f: has data after its last string");
  CHECK(LinesError(replaced(31, 0x40001)) == "f: contains an element that is not a string");
  CHECK(LinesError(replaced(31, 0x4009)) == "f: holds a string that is not UTF-8");
  CHECK(LinesError(replaced(35, 0xFFFFFFFFu)) ==
        "f: has an impossible number of bytes in a string (or NA)");
}

TEST_CASE("ReadLazyLoadRecords returns the records of an R database", "[data]") {
  const std::string bytes = LazyLoadRecord("first") + LazyLoadRecord(std::string(100'000, 'x'));
  const std::vector<std::string> records = ReadLazyLoadRecords(bytes, "f");
  REQUIRE(records.size() == 2);
  CHECK(records[0] == "first");
  CHECK(records[1] == std::string(100'000, 'x'));
  CHECK(ReadLazyLoadRecords("", "f").empty());
}

TEST_CASE("Every prefix of an R database and of an R object is refused", "[data]") {
  const std::string object = SerializedLines(kLines);
  for (std::size_t size = 0; size < object.size(); ++size) {
    INFO(size);
    CHECK(LinesError(object.substr(0, size)) != "no error");
  }
  const std::string record = LazyLoadRecord(object);
  for (std::size_t size = 1; size < record.size(); ++size) {
    INFO(size);
    CHECK(ErrorOf([&] { ReadLazyLoadRecords(record.substr(0, size), "f"); }) != "no error");
  }
}

TEST_CASE("A false length is refused before memory is allocated", "[data]") {
  std::string record = LazyLoadRecord("some text");
  record.replace(0, 4, BigEndian(0xFFFFFFFFu));
  CHECK(ErrorOf([&] { ReadLazyLoadRecords(record, "f"); }) ==
        "f, record 0: has an impossible length");
  record.replace(0, 4, BigEndian(1u << 20));  // zlib packs at most 1032 bytes into one
  CHECK(ErrorOf([&] { ReadLazyLoadRecords(record, "f"); }) ==
        "f, record 0: has an impossible length");
  const std::string zeros(std::size_t{1} << 24, '\0');
  CHECK(ReadLazyLoadRecords(LazyLoadRecord(zeros), "f") == std::vector<std::string>{zeros});
  record.replace(0, 4, BigEndian(8));
  CHECK(ErrorOf([&] { ReadLazyLoadRecords(record, "f"); }) ==
        "f, record 0: is corrupt or truncated: its zlib stream does not give 8 bytes");
}

// Damaged bytes give an Error or some text; under AddressSanitizer this test detects reads past the
// end.
TEST_CASE("Damaged bytes never do worse than an error", "[data]") {
  const std::string object = SerializedLines(kLines), record = LazyLoadRecord(object);
  const RandomStream random{.seed = 1};
  int refused = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const PhiloxBlock bits = random.Block(i);
    std::string bad_object = object, bad_record = record;
    bad_object[bits[0] % object.size()] = static_cast<char>(bits[1]);
    bad_record[bits[2] % record.size()] = static_cast<char>(bits[3]);
    refused += LinesError(bad_object) != "no error";
    refused += ErrorOf([&] { ReadLazyLoadRecords(bad_record, "f"); }) != "no error";
  }
  CHECK(refused > 4000);
}

}  // namespace
}  // namespace fp4lab
