#include "fp4lab/io/json.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    const Json json = ParseJson({reinterpret_cast<const char*>(data), size}, "x.json");
    JsonObject o(json, "x.json");
    const auto read = [&o](const char* key, auto value) {
      OneLineOrNothing([&] { o.Read(key, &value); });
    };
    read("a", 0);
    read("b", std::uint64_t{0});
    read("c", 0.0);
    read("d", std::string());
    read("e", std::vector<std::int64_t>());
    read("f", std::vector<std::string>());
    read("g", false);
    o.Finish();
  });
  return 0;
}
