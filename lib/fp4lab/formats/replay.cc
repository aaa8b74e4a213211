#include "fp4lab/formats/replay.h"

#include "fp4lab/base/error.h"

namespace fp4lab {

void EncodeReplayed(FormatId id, RandomForm form, std::span<const float> v,
                    std::span<const std::uint32_t> words, std::span<std::uint32_t> codes) {
  Expects(TakesForm(id, form), "random bits in a form that the format takes");
  const std::size_t n = ElementsAWord(id, form);
  Expects(codes.size() == v.size(), "as many codes as values");
  Expects(words.size() == (v.size() + n - 1) / n, "one word for n values");
  for (std::size_t i = 0; i < v.size(); ++i) {
    codes[i] = EncodeWithField(id, form, v[i], RandomField(id, form, words[i / n], i % n));
  }
}

}  // namespace fp4lab
