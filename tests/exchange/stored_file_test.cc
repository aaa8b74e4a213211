// Files of quantized matrices: every layout survives a round trip, names are found, inconsistent
// files are refused.
#include "fp4lab/exchange/stored_file.h"

#include "fp4lab/base/error.h"
#include "fp4lab/exchange/order/row_parts.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/exchange/matrices.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

std::vector<std::byte> Bytes(std::size_t size, int value = 0) {
  return std::vector<std::byte>(size, std::byte(value));
}

TEST_CASE("fp4lab files keep every layout of every format, as .safetensors and .npz",
          "[exchange][property]") {
  const TemporaryFolder folder;
  for (const Dialect& d : BlockShapes()) {
    const Quantized q = AnyQuantized(d, 19, 33);
    std::size_t i = 0;
    for (const StorageLayout& layout : Layouts(d)) {
      const char* ending = i++ % 2 == 0 ? ".safetensors" : ".npz";
      CAPTURE(d.name, Name(layout.codes), Named(layout.scales).name, ending);
      const StoredMatrix stored = Store(d, q, layout);
      const std::string place = (folder / ("x" + std::string(ending))).string();
      WriteStored(place + ":layer.0.w", stored, d.name, "fp4lab", d.scale_max);
      const StoredFile read = ReadStored(place);
      CHECK(read.matrix == stored);
      CHECK(read.dialect == d.name);
      CHECK(read.entry == StoredFileEntry{"layer.0.w", "fp4lab"});
    }
  }
}

TEST_CASE("A nameless matrix is read back without a name", "[exchange]") {
  const TemporaryFolder folder;
  const Dialect d{.name = "nvfp4"};
  const StoredMatrix stored = Store(d, AnyQuantized(d, 4, 32), {});
  for (const char* ending : {".safetensors", ".npz"}) {
    const std::string place = (folder / ("x" + std::string(ending))).string();
    WriteStored(place, stored, d.name, "fp4lab", 448.0f);
    CHECK(ReadStored(place).matrix == stored);
    CHECK(ListStored(place) == std::vector<StoredFileEntry>{{"", "fp4lab"}});
  }
}

TEST_CASE("The tensors of our files have the types and shapes that the header states",
          "[exchange]") {
  const Dialect d{.name = "nvfp4"};
  SafetensorsFile file;
  AddStored(Store(d, AnyQuantized(d, 3, 33), {.scales = ScaleOrder::kPadded}), d.name, "a", &file);
  CHECK(file.tensors.at("a.codes").dtype == "F4");
  CHECK(file.tensors.at("a.codes").shape == std::vector<std::size_t>{3, 34});
  CHECK(file.tensors.at("a.scales").dtype == "F8_E4M3");
  CHECK(file.tensors.at("a.scales").shape == std::vector<std::size_t>{128, 4});
  CHECK(file.tensors.at("a.tensor_scale").shape == std::vector<std::size_t>{1});
  CHECK(file.metadata.at("fp4lab.a") ==
        R"({"block":[1,16],"codes":"low-first","dialect":"nvfp4","element":"float4_e2m1fn",)"
        R"("expanded_scales":false,"scale":"float8_e4m3fn","scales":"padded","shape":[3,33],)"
        R"("tensor_scale_is":"amax","transposed":false})");
}

TEST_CASE("Our files of older versions, which say level_two, are read", "[exchange]") {
  const Dialect d{.name = "nvfp4"};
  SafetensorsFile file;
  AddStored(Store(d, AnyQuantized(d, 3, 33), {}), d.name, "a", &file);
  const StoredMatrix stored = TakeStored(file, "a", "x").matrix;
  REQUIRE(stored.tensor_scale.size() == 1);

  auto member = file.tensors.extract("a.tensor_scale");
  member.key() = "a.level_two";
  file.tensors.insert(std::move(member));
  Json description = ParseJson(file.metadata.at("fp4lab.a"), "x");
  description["level_two"] = description.at("tensor_scale_is");
  description.erase("tensor_scale_is");
  file.metadata["fp4lab.a"] = description.dump();
  CHECK(TakeStored(file, "a", "x").matrix == stored);
}

// The formats that ComfyUI's loader knows.
bool IsComfyUiFormat(const Dialect& d) {
  if (d.block_rows == 0) return d.element == FormatId::kE4M3 || d.element == FormatId::kE5M2;
  if (d.scale == FormatId::kE8M0) return d.element == FormatId::kE4M3 && d.block_cols == 32;
  return d.element == FormatId::kE2M1 && d.scale == FormatId::kE4M3 && d.block_cols == 16 &&
         HasTensorScale(d);
}

TEST_CASE("Vendors' naming gives back what was written under it", "[exchange][property]") {
  const TemporaryFolder folder;
  for (const Dialect& d : BlockShapes()) {
    if (FormatOf(d.element).bits == 6) continue;
    const StoredMatrix stored =
        Store(d, AnyQuantized(d, 32, 64), {.codes = CodeOrder::kBytes, .transposed = true});
    for (const Vendor& vendor : kVendors) {
      if (vendor.read_only) continue;
      CAPTURE(d.name, vendor.name);
      const std::string place = (folder / "x.safetensors").string();
      const auto write = [&] {
        WriteStored(place + ":a.b", stored, d.name, vendor.name, d.scale_max);
      };
      if (vendor.name == "comfyui" && !IsComfyUiFormat(d)) {
        CHECK_THAT(ErrorOf(write), ContainsSubstring("has no name for"));
        continue;
      }
      write();
      const StoredFile read = ReadStored(place, {.dialect = &d});
      CHECK(read.entry == StoredFileEntry{"a.b", std::string(vendor.name)});
      const StorageLayout plain{.codes = CodeOrder::kBytes,
                                .tensor_scale = read.matrix.layout.tensor_scale};
      StoredMatrix a = Convert(stored, plain, d.scale_max, "a"),
                   b = Convert(read.matrix, plain, d.scale_max, "b");
      if (d.row_scaled) b.tensor_scale.resize(a.tensor_scale.size());
      CHECK(a.codes == b.codes);
      CHECK(a.scales == b.scales);
      CHECK(a.tensor_scale == b.tensor_scale);
    }
  }
}

TEST_CASE("Transformer Engine's swizzled scales are read when the layout is stated", "[exchange]") {
  const Dialect d{.name = "nvfp4"};
  const Quantized q = AnyQuantized(d, 100, 96);
  const StoredMatrix tiled = Store(d, q, {.scales = ScaleOrder::k128x4});
  SafetensorsFile file;
  AddVendorMatrix(tiled, {"w", FindVendor("te")}, 448.0f, &file);
  const std::vector<std::uint8_t>& bytes = tiled.scales;
  const auto raw = std::as_bytes(std::span(bytes));
  file.tensors["w_rowwise_scale_inv"].bytes = {raw.begin(), raw.end()};
  const VendorEntry entry{"w", FindVendor("te")};
  CHECK(Load(d, ReadVendorMatrix(file, entry, {.scales = ScaleOrder::k128x4}, "x"), "x") == q);
  CHECK_FALSE(Load(d, ReadVendorMatrix(file, entry, {}, "x"), "x") == q);
}

TEST_CASE("A vendor's tensors that do not fit together are refused by name", "[exchange]") {
  const auto error = [](SafetensorsFile file) {
    return ErrorOf([&] { ReadVendorMatrix(file, {"l", FindVendor("modelopt")}, {}, "m"); });
  };
  SafetensorsFile file;
  file.tensors["l.weight"] = {"U8", {4, 16}, Bytes(64)};
  CHECK_THAT(error(file), ContainsSubstring("m: has no tensor l.weight_scale"));
  file.tensors["l.weight_scale"] = {"F8_E4M3", {4, 3}, Bytes(12)};
  CHECK_THAT(error(file), ContainsSubstring("m#l.weight_scale: 12 bytes of scales; 4x32 in 1x16 "
                                            "blocks has 4x2 scales"));
  file.tensors["l.weight_scale"] = {"F8_E4M3", {512}, Bytes(512)};
  CHECK_THAT(error(file),
             ContainsSubstring("they fit the order 128x4 or padded: state the scale order"));
  file.tensors["l.weight_scale"] = {"I16", {4, 2}, Bytes(16)};
  CHECK_THAT(error(file), ContainsSubstring("is I16 4x2 where block scales are"));
  file.tensors["l.weight_scale"] = {"F8_E4M3", {4, 2}, Bytes(8)};
  CHECK_THAT(error(file),
             ContainsSubstring("m: has no number in l.weight_scale_2, the tensor scale "
                               "of l.weight: add it as F32, or state that it has none"));
  file.tensors["l.weight_scale_2"] = {"F32", {1}, Bytes(4)};
  CHECK(error(file) == "no error");
  file.tensors["l.weight_scale_2"] = {"F32", {3}, Bytes(12)};
  CHECK_THAT(error(file), ContainsSubstring("3 tensor scales; 1 or one per row (4) fit"));
  file.tensors["l.weight"] = {"I32", {4, 4}, Bytes(64)};
  CHECK_THAT(error(file), ContainsSubstring("is I32 4x4 where codes are U8, F4 or F8_*"));
}

TEST_CASE("Ambiguous scale bytes are read once --dialect names the format", "[exchange]") {
  const Dialect d{.name = "nvfp4"};
  const Quantized q = AnyQuantized(d, 48, 64);  // 4 scales a row, or 2 padded to 4
  SafetensorsFile file;
  AddVendorMatrix(Store(d, q, {}), {"w", FindVendor("te")}, 448.0f, &file);
  file.tensors.erase("w_amax_rowwise");
  const VendorEntry entry{"w", FindVendor("te")};
  CHECK_THAT(
      ErrorOf([&] { ReadVendorMatrix(file, entry, {}, "x"); }),
      ContainsSubstring("x#w_rowwise_scale_inv: may be E8M0 in 1x32 blocks, or E4M3 in 1x16 "
                        "blocks that lack their _amax_rowwise: state the dialect with --dialect"));
  const ReadStoredOptions named{.dialect = &d, .tensor_scale = TensorScaleConvention::kNone};
  CHECK(ReadVendorMatrix(file, entry, named, "x").scale == FormatId::kE4M3);
  CHECK(ReadVendorMatrix(file, entry, {.dialect = FindDialect("mxfp4.floor")}, "x").scale ==
        FormatId::kE8M0);
}

TEST_CASE("A wrong fp4lab description in a file is refused", "[exchange]") {
  const Dialect d{.name = "nvfp4"};
  SafetensorsFile good;
  AddStored(Store(d, AnyQuantized(d, 4, 32), {}), d.name, "a", &good);
  const auto error = [&](const char* from, const char* to) {
    SafetensorsFile file = good;
    std::string& text = file.metadata["fp4lab.a"];
    const std::size_t at = text.find(from);
    REQUIRE(at != text.npos);
    text.replace(at, std::string(from).size(), to);
    return ErrorOf([&] { TakeStored(file, "a", "f"); });
  };
  CHECK(error("[4,32]", "[4,32]") == "no error");
  CHECK_THAT(error("[4,32]", "[4,64]"), ContainsSubstring("64 bytes of codes"));
  CHECK_THAT(error("[4,32]", "[-4,32]"), ContainsSubstring("f#fp4lab.a"));
  CHECK_THAT(error("[4,32]", "[1099511627777,32]"), ContainsSubstring("too large"));
  CHECK_THAT(error("[1,16]", "[0,16]"), ContainsSubstring("must be two sizes"));
  CHECK_THAT(error("low-first", "dense6"), ContainsSubstring("does not hold codes"));
  CHECK_THAT(error("low-first", "any"), ContainsSubstring("\"any\" is not known"));
  CHECK_THAT(error("float8_e4m3fn", "float16"), ContainsSubstring("at most 8 bits"));
  CHECK_THAT(error("\"dialect\"", "\"dialects\""), ContainsSubstring("dialect"));
}

TEST_CASE("A file with several matrices asks for a name", "[exchange]") {
  const TemporaryFolder folder;
  const Dialect d{.name = "nvfp4"};
  const StoredMatrix stored = Store(d, AnyQuantized(d, 4, 32), {});
  SafetensorsFile file;
  AddStored(stored, d.name, "a", &file);
  AddVendorMatrix(stored, {"b", FindVendor("compressed-tensors")}, 448.0f, &file);
  AddVendorMatrix(stored, {"c", FindVendor("modelopt")}, 448.0f, &file);
  const std::string place = (folder / "x.safetensors").string();
  WriteTensors(place, file);
  CHECK_THAT(ErrorOf([&] { ReadStored(place); }),
             ContainsSubstring("holds 3 quantized matrices; name one, as in file#name: a (fp4lab), "
                               "b (compressed-tensors), c (modelopt)"));
  CHECK(ReadStored(place + "#b").entry.convention == "compressed-tensors");
  CHECK(ReadStored(place + "#c.weight").entry.name == "c");
  CHECK_THAT(ErrorOf([&] { ReadStored(place + ":d"); }),
             ContainsSubstring("has no quantized matrix d"));
}

TEST_CASE("Files and conventions that do not go together are refused", "[exchange]") {
  const TemporaryFolder folder;
  const Dialect d{.name = "nvfp4"};
  const StoredMatrix stored = Store(d, AnyQuantized(d, 4, 33), {});
  const auto error = [&](const char* file, const char* convention) {
    return ErrorOf(
        [&] { WriteStored((folder / file).string(), stored, d.name, convention, 448.0f); });
  };
  CHECK_THAT(error("x.bin", "fp4lab"),
             ContainsSubstring("cannot be used with the naming convention fp4lab"));
  CHECK_THAT(error("x.gguf", "te"), ContainsSubstring(".gguf for gguf"));
  CHECK_THAT(error("x.npz", "vllm"),
             ContainsSubstring("convention vllm: is not known; one of: fp4lab gguf te"));
  CHECK_THAT(error("x.npz", "modelopt"), ContainsSubstring("cannot store 4x33 codes"));
  CHECK_THAT(error("x.gguf", "gguf"), ContainsSubstring("multiples of 64 can be written"));
  CHECK(error("x.npz", "fp4lab") == "no error");
  WriteFileAtomically(folder / "x.bin", std::string_view("x"));
  CHECK_THAT(ErrorOf([&] { ReadStored((folder / "x.bin").string()); }),
             ContainsSubstring("is not a .safetensors, .npz or .gguf file"));
}

SafetensorsTensor Raw8(std::string dtype, std::vector<std::size_t> shape,
                       const std::vector<std::uint8_t>& bytes) {
  const auto raw = std::as_bytes(std::span(bytes));
  return {std::move(dtype), std::move(shape), ByteArray(raw.begin(), raw.end())};
}
SafetensorsTensor Raw32(std::vector<std::size_t> shape, const std::vector<float>& numbers) {
  const auto raw = std::as_bytes(std::span(numbers));
  return {"F32", std::move(shape), ByteArray(raw.begin(), raw.end())};
}
std::vector<float> NumbersOf(FormatId format, const std::vector<std::uint8_t>& bytes) {
  std::vector<float> numbers;
  for (const std::uint8_t byte : bytes) numbers.push_back(Decode(format, byte));
  return numbers;
}

TEST_CASE("Names that are only read, and codes and scales in other dtypes", "[exchange]") {
  const Dialect& nv = *FindDialect("nvfp4.modelopt");
  const Dialect& mx = *FindDialect("mxfp4.rceil");
  const Dialect& fp8 = *FindDialect("fp8_e4m3.128x128.e8m0");
  const Dialect& row = *FindDialect("fp8_e4m3.row");
  Matrix<float> x(128, 256);
  FillNormalValues(7, 0.02, x.values);
  const auto store = [&](const Dialect& d, StorageLayout layout) {
    layout.codes = DefaultCodeOrder(d.element);
    layout.tensor_scale = TensorScaleConvention::kMultiplier;
    return Store(d, QuantizeAs(d, x.View()), layout);
  };
  const StoredMatrix a = store(nv, {}), tiles = store(nv, {.scales = ScaleOrder::k128x4}),
                     b = store(mx, {}), c = store(fp8, {}), e = store(row, {});
  const std::vector<std::size_t> packed{128, 128};
  const auto read = [](const SafetensorsFile& file) {
    const std::vector<StoredFileEntry> entries = ListStored(file);
    REQUIRE(entries.size() == 1);
    return ReadStored(file, entries[0], {}, "x");
  };
  const auto values = [](const StoredMatrix& m) { return StoredValues(m, 448.0f, "x").values; };
  SafetensorsFile f;
  f.tensors = {{"l._weight_qdata", Raw8("U8", packed, tiles.codes)},
               {"l._weight_scale", Raw8("F8_E4M3", {128, 16}, tiles.scales)},
               {"l._weight_per_tensor_scale", Raw32({}, tiles.tensor_scale)}};
  f.metadata["l.weight"] = R"({"_data": {"block_size": 16, "is_swizzled_scales": true}})";
  CHECK(read(f).matrix.layout.scales == ScaleOrder::k128x4);
  CHECK(values(read(f).matrix) == values(a));
  f = {};
  f.tensors = {{"l_blocks", Raw8("U8", {2, 64, 8, 16}, b.codes)},
               {"l_scales", Raw8("U8", {2, 64, 8}, b.scales)}};
  CHECK(values(read(f).matrix) == values(b));
  f.tensors = {{"l.weight", Raw8("I8", packed, b.codes)},
               {"l.scale", Raw8("F8_E8M0", {128, 8}, b.scales)}};
  CHECK(values(read(f).matrix) == values(b));
  f.tensors = {{"l.weight", Raw8("U32", {128, 32}, b.codes)},
               {"l.scales", Raw8("U8", {128, 8}, b.scales)}};
  CHECK(values(read(f).matrix) == values(b));
  f.tensors = {{"l.weight", Raw8("U8", packed, a.codes)},
               {"l.weight_scale", Raw32({128, 16}, NumbersOf(FormatId::kE4M3, a.scales))},
               {"l.weight_scale_2", Raw32({}, a.tensor_scale)}};
  CHECK(values(read(f).matrix) == values(a));
  f.tensors = {{"l.weight", Raw8("F8_E4M3", {128, 256}, c.codes)},
               {"l.weight_scale_inv", Raw32({1, 2}, NumbersOf(FormatId::kE8M0, c.scales))}};
  CHECK(read(f).matrix.scale == FormatId::kE8M0);
  CHECK(Load(fp8, read(f).matrix, "x") == QuantizeAs(fp8, x.View()));
  f.tensors = {{"l.weight", Raw8("F8_E4M3", {128, 256}, e.codes)},
               {"l.weight_scale", Raw32({128, 1}, e.tensor_scale)}};
  CHECK(read(f).matrix.tensor_scale.size() == 128);
  CHECK(values(read(f).matrix) == values(e));
  CHECK(Load(row, read(f).matrix, "x").codes == QuantizeAs(row, x.View()).codes);
  f.tensors["l.weight_scale_inv"] = Raw32({1, 2}, {0.3f, 0.7f});  // no byte has these numbers
  f.tensors.erase("l.weight_scale");
  const StoredMatrix numbers = read(f).matrix;
  CHECK(numbers.layout.scale_type == ScaleType::kFP32);
  CHECK(numbers.scales.size() == 8);
  CHECK(StoredValues(numbers, 1.0f, "x")(0, 200) == Decode(FormatId::kE4M3, e.codes[200]) * 0.7f);
  CHECK_THAT(ErrorOf([&] { Load(fp8, numbers, "x"); }), ContainsSubstring("no byte of"));
}

// Scales as numbers: FP8 in blocks, with partial ones, and MXFP4 whose bytes are written as
// numbers.
TEST_CASE("Scales that are numbers keep their bits in files, layouts and parts", "[exchange]") {
  Matrix<float> x(200, 300);
  FillNormalValues(9, 0.02, x.values);
  const TemporaryFolder folder;
  struct Kind {
    const char* dialect;
    ScaleType asked, stored;
  };
  for (const Kind& kind : {Kind{"fp8_e4m3.1x128.fp32", ScaleType::kByte, ScaleType::kFP32},
                           Kind{"fp8_e5m2.128x128.fp32", ScaleType::kByte, ScaleType::kFP32},
                           Kind{"fp8_e4m3.128x128.bf16", ScaleType::kByte, ScaleType::kBF16},
                           Kind{"fp8_e4m3.128x128.e8m0", ScaleType::kFP32, ScaleType::kFP32},
                           Kind{"mxfp4.rceil", ScaleType::kBF16, ScaleType::kBF16}}) {
    const Dialect& d = *FindDialect(kind.dialect);
    CAPTURE(d.name);
    const Quantized q = QuantizeAs(d, x.View());
    const StoredMatrix linear =
        Store(d, q, {.codes = DefaultCodeOrder(d.element), .scale_type = kind.asked});
    REQUIRE(linear.layout.scale_type == kind.stored);
    const std::size_t width = Named(kind.stored).bytes;
    const std::size_t blocks = std::max(q.scales.size(), q.scale_values.size());
    CHECK(linear.scales.size() == blocks * width);
    CHECK(Load(d, linear, "x") == q);
    CHECK(StoredValues(linear, d.scale_max, "x").values == DequantizeAs(d, q).values);
    for (StorageLayout layout : Layouts(d)) {
      if (layout.expanded_scales && d.block_rows == 1) continue;
      CAPTURE(Named(layout.scales).name, layout.transposed, layout.expanded_scales);
      layout.scale_type = kind.asked;
      layout.tensor_scale = TensorScaleConvention::kNone;
      const StoredMatrix m = Store(d, q, layout);
      CHECK(m == Convert(linear, layout, d.scale_max, "x"));
      CHECK(Load(d, m, "x") == q);
      for (const char* name : {"q.safetensors", "q.npz"}) {
        const std::string path = (folder / name).string();
        WriteStored(path, m, d.name, "fp4lab", d.scale_max);
        const StoredFile file = ReadStored(path);
        CHECK(file.matrix == m);
        CHECK(file.dialect == d.name);
      }
    }
    if (d.block_rows != 1) continue;
    const std::vector<RowPart> rows = ParseRowParts("120,80", 200, "parts");
    const std::vector<StoredMatrix> parts = SplitRows(linear, rows, "x");
    CHECK(parts[1] == Store(d, QuantizeAs(d, x.View().Block(120, 0, 80, 300)), linear.layout));
  }
  const Dialect& d = *FindDialect("fp8_e4m3.128x128.fp32");
  StoredMatrix wrong = Store(d, QuantizeAs(d, x.View()), {.codes = CodeOrder::kBytes});
  wrong.scales.resize(6);
  CHECK_THAT(ErrorOf([&] { CheckStored(wrong, "q"); }),
             ContainsSubstring("6 bytes of scales; 2x3 scales of 4 bytes each"));
}

// The names of DeepSeek's, vLLM's and compressed-tensors' FP8 files.
TEST_CASE("Block scales of F32 and BF16 are read from vendors' files, and written", "[exchange]") {
  Matrix<float> x(200, 300);
  FillNormalValues(9, 0.02, x.values);
  for (const char* name : {"fp8_e4m3.128x128.fp32", "fp8_e4m3.128x128.bf16"}) {
    CAPTURE(name);
    const Dialect& d = *FindDialect(name);
    const Quantized q = QuantizeAs(d, x.View());
    const StoredMatrix m = Store(d, q, {.codes = CodeOrder::kBytes});
    const bool bf16 = m.layout.scale_type == ScaleType::kBF16;
    const SafetensorsTensor scales = Raw8(bf16 ? "BF16" : "F32", {2, 3}, m.scales);
    for (const char* suffix : {"weight_scale_inv", "weight_scale", "scale"}) {
      CAPTURE(suffix);
      SafetensorsFile f;
      f.tensors["l.weight"] = Raw8("F8_E4M3", {200, 300}, m.codes);
      f.tensors[std::string("l.") + suffix] = scales;
      for (const Dialect* given : {static_cast<const Dialect*>(nullptr), &d}) {
        const StoredMatrix read = ReadStored(f, ListStored(f)[0], {.dialect = given}, "x").matrix;
        CHECK(read.layout.scale_type == m.layout.scale_type);
        CHECK(Load(d, read, "x") == q);
      }
    }
    SafetensorsFile written;
    AddVendorMatrix(m, {"l", FindVendor("modelopt")}, d.scale_max, &written);
    CHECK(written.tensors.at("l.weight_scale").dtype == scales.dtype);
    CHECK(written.tensors.at("l.weight_scale").shape == scales.shape);
    CHECK(written.tensors.at("l.weight_scale").bytes == scales.bytes);
  }
}

}  // namespace
}  // namespace fp4lab
