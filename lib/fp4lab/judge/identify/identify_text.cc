// The text and the JSON of an Identification.
#include <algorithm>
#include <string>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/identify/identify.h"
#include "fp4lab/judge/kernels/kernel_text.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMostLines = 16;

std::string More(std::size_t all, const char* indent) {
  return all <= kMostLines ? ""
                           : indent + std::string("and ") + std::to_string(all - kMostLines) +
                                 " more (--json lists them)\n";
}

// "codes low-first, scales linear; the same bytes here as codes low-first, scales padded"
std::string LayoutsText(const std::vector<Candidate>& candidates,
                        const std::vector<std::size_t>& group) {
  std::vector<std::string> others;
  for (std::size_t k = 1; k < group.size(); ++k) others.push_back(LayoutName(candidates[group[k]]));
  std::sort(others.begin(), others.end());
  std::string text = LayoutName(candidates[group[0]]);
  for (const std::string& other : others) {
    text += (&other == &others[0] ? "; for this shape the same bytes as " : "; ") + other;
  }
  return text;
}

// One line per layout with the dialects that fit it; layouts with the same bytes share a line.
std::string Names(const std::vector<Candidate>& candidates, const Identification& r) {
  std::vector<std::pair<std::string, std::string>> layouts;
  for (const std::vector<std::size_t>& group : SameBytes(candidates, r.rows, r.cols)) {
    const std::string layout = LayoutsText(candidates, group);
    const std::string dialect(candidates[group[0]].kernel.dialect.name);
    const auto same = std::find_if(layouts.begin(), layouts.end(),
                                   [&](const auto& row) { return row.first == layout; });
    if (same == layouts.end()) {
      layouts.emplace_back(layout, dialect);
    } else {
      same->second += ", " + dialect;
    }
  }
  std::string text;
  for (std::size_t i = 0; i < layouts.size() && i < kMostLines; ++i) {
    text += "  " + layouts[i].first + ":\n    " + layouts[i].second + "\n";
  }
  return text + More(layouts.size(), "  ");
}

// The text for bytes in which only the tensor scale is wrong. Its convention is a guess and is
// not named.
std::string OtherNumberText(const Identification& r) {
  std::vector<Candidate> without_number = r.other_number;
  for (Candidate& c : without_number) c.kernel.layout.tensor_scale = TensorScaleConvention::kNone;
  std::string text = "Codes and scales are those of\n" + Names(without_number, r) +
                     "but the tensor scale differs under every convention.\n";
  if (!r.number) {
    return text + "These dialects have no tensor scale.\nDo: leave the tensor scale out.\n";
  }
  return text + "Of " + Name(r.other_number[0]) + ": " + Text(*r.number) +
         ".\nDo: " + r.number->remedy + ".\n";
}

// "codes low-first, scales linear, where the kernel quantizes the rows in another order: ..."
std::string ArrangedName(const Identification::Arranged& a) {
  const std::string sentence = Sentence(a.cause);  // "The kernel ... ."
  return LayoutName(a.candidate) + ", where t" + sentence.substr(1, sentence.size() - 2);
}

std::string ArrangedText(const Identification& r) {
  std::vector<std::pair<std::string, std::string>> rows;  // an arrangement, and its dialects
  for (const Identification::Arranged& a : r.arranged) {
    const std::string name = ArrangedName(a), dialect(a.candidate.kernel.dialect.name);
    const auto same =
        std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.first == name; });
    if (same == rows.end()) {
      rows.emplace_back(name, dialect);
    } else {
      same->second += ", " + dialect;
    }
  }
  std::string text =
      "No dialect and layout gives these bytes as they are. They are exactly those of\n";
  for (std::size_t i = 0; i < rows.size() && i < kMostLines; ++i) {
    text += "  " + rows[i].first + ":\n    " + rows[i].second + "\n";
  }
  return text + More(rows.size(), "  ");
}

std::string NearText(const Identification& r) {
  if (!r.arranged.empty()) return ArrangedText(r);
  std::string text = "No dialect and layout of " + std::to_string(r.tried) +
                     " that fit the sizes gives these bytes.\n";
  if (r.near.empty()) {
    return text +
           "Do: check the shape of the input, and that codes, scales and tensor scale are "
           "not mixed up.\n";
  }
  text += "Nearest:\n";
  for (const Identification::Near& n : r.near) {
    text += "  " + Name(n.candidate) + ": " + std::to_string(n.counts.codes_differ) + " of " +
            std::to_string(n.counts.codes) + " codes and " +
            std::to_string(n.counts.scales_differ) + " of " + std::to_string(n.counts.scales) +
            " scales differ\n";
  }
  const Candidate& first = r.near.front().candidate;
  return text + "Do: search for the cause of the differences on the same files:\n  fp4lab explain" +
         CommandOptions(first.kernel) + (first.columnwise ? " --transpose-input" : "") +
         " --input ... --codes ...\n";
}

// Groups of candidates, one line per group.
std::string Groups(const std::vector<std::vector<std::size_t>>& groups, const Identification& r) {
  std::string text;
  for (std::size_t g = 0; g < groups.size() && g < kMostLines; ++g) {
    text += "  " + std::to_string(g) + "  " + Name(r.exact[groups[g][0]]);
    if (groups[g].size() > 1) text += "\n       and " + Name(r.exact[groups[g][1]]);
    if (groups[g].size() > 2)
      text += "\n       and " + std::to_string(groups[g].size() - 2) + " more";
    text += "\n";
  }
  return text + More(groups.size(), "  ");
}

std::string DecidingText(const Identification& r) {
  std::string text;
  for (std::size_t k = 0; k < r.deciding.size(); ++k) {
    const DecidingInput& input = r.deciding[k];
    std::vector<std::vector<std::size_t>> groups;
    for (const DecidingInput::Group& g : input.groups) groups.push_back(g.members);
    text += "Deciding input " + std::to_string(k) + " (" + std::to_string(input.x.rows) + "x" +
            std::to_string(input.x.cols) +
            ", --deciding writes it) gives other bytes for each of\n" + Groups(groups, r);
  }
  if (!r.inseparable.empty()) {
    text += "No input that was tried tells these apart:\n" + Groups(r.inseparable, r);
  }
  return text;
}

Json CandidateJson(const Candidate& c) {
  const StorageLayout& l = c.kernel.layout;
  return {
      {"name", Name(c)},
      {"dialect", c.kernel.dialect.name},
      {"codes_order", Name(l.codes)},
      {"scales_order", Named(l.scales).name},
      {"transposed", l.transposed},
      {"expanded_scales", l.expanded_scales},
      {"tensor_scale_is", kTensorScaleConventions[static_cast<std::size_t>(l.tensor_scale)].name},
      {"transpose_input", c.columnwise},
      {"hadamard", c.kernel.hadamard},
      {"sign_mask", c.kernel.sign_mask}};
}

// The candidates, each with the index of the first candidate that gives the same bytes for this
// shape (its own index if it is the first).
Json CandidatesJson(const std::vector<Candidate>& candidates, const Identification& r) {
  Json list = Json::array();
  for (const Candidate& c : candidates) list.push_back(CandidateJson(c));
  for (const std::vector<std::size_t>& group : SameBytes(candidates, r.rows, r.cols)) {
    for (const std::size_t i : group) list[i]["same_bytes_as"] = group[0];
  }
  return list;
}

}  // namespace

std::string Text(const Identification& r) {
  const IeeeArithmetic ieee;
  std::string text;
  if (r.exact.size() == 1) {
    text = "These bytes are exactly those of\n" + Names(r.exact, r);
  } else if (!r.exact.empty()) {
    text = "These bytes are exactly those of each of\n" + Names(r.exact, r) +
           "This input cannot tell them apart.\n" + DecidingText(r);
  } else if (!r.other_number.empty()) {
    text = OtherNumberText(r);
  } else if (r.allowed.empty()) {
    text = NearText(r);
  }
  if (!r.allowed.empty()) {
    text += "They lie inside the allowed answers of\n" + Names(r.allowed, r);
  }
  return text;
}

Json ToJson(const Identification& r) {
  const IeeeArithmetic ieee;
  Json json = {{"fits", r.Fits()},
               {"tried", r.tried},
               {"exact", CandidatesJson(r.exact, r)},
               {"allowed", CandidatesJson(r.allowed, r)},
               {"other_number", CandidatesJson(r.other_number, r)},
               {"number", nullptr},
               {"near", Json::array()},
               {"arranged", Json::array()},
               {"deciding", Json::array()},
               {"inseparable", r.inseparable}};
  if (r.number) json["number"] = ToJson(*r.number);
  for (const Identification::Near& n : r.near) {
    Json near = CandidateJson(n.candidate);
    near["codes_different"] = n.counts.codes_differ;
    near["scales_different"] = n.counts.scales_differ;
    json["near"].push_back(std::move(near));
  }
  for (const Identification::Arranged& a : r.arranged) {
    Json arranged = CandidateJson(a.candidate);
    arranged["cause"] = Name(a.cause);
    arranged["what"] = Sentence(a.cause);
    json["arranged"].push_back(std::move(arranged));
  }
  for (const DecidingInput& input : r.deciding) {
    Json groups = Json::array();
    for (const DecidingInput::Group& g : input.groups) groups.push_back(g.members);
    json["deciding"].push_back(
        {{"rows", input.x.rows}, {"cols", input.x.cols}, {"groups", groups}});
  }
  return json;
}

}  // namespace fp4lab
