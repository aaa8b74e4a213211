// fp4lab gemm: multiplies stored operands under accumulation models, and probes accumulators.
#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/products/gemm_probe.h"
#include "fp4lab/tensor/accumulation.h"
#include "tools/help/fitted.h"
#include "tools/help/help_group.h"
#include "tools/options/commands.h"
#include "tools/options/gemm_options.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct GemmCommand {
  ProductFiles files;
  std::string out, probe, answers;
  bool models = false, json = false, wide = false;
};

std::string FloorText(int floor) { return floor == kNoFloor ? "-" : std::to_string(floor); }

std::string_view OutputText(MmaOutput output) {
  switch (output) {
    case MmaOutput::kTruncate32:
      return "24 bits, cut";
    case MmaOutput::kTruncate32E8M13:
      return "14 bits, cut";
    case MmaOutput::kNearest16:
      return "binary16, nearest";
  }
  return "";
}

std::string FormatNames(const TensorCoreModel& model) {
  std::string names;
  for (const NamedFormat& f : kFormats) {
    if (!Takes(model, f.format)) continue;
    names += (names.empty() ? "" : " ") + std::string(f.short_name);
  }
  return names;
}

// The parameters of the model that its hardware vectors determine.
std::vector<std::string> Determined(const TensorCoreModel& model) {
  std::vector<std::string> names;
  for (const char* parameter : {"L", "F", "floor"}) {
    if (Determines(model, parameter)) names.emplace_back(parameter);
  }
  return names;
}
// The changes of a parameter under which the hardware vectors keep every bit.
std::vector<std::string> LeftOpen(const TensorCoreModel& model) {
  std::vector<std::string> names;
  for (const NamedNeighbour& n : kNeighbours) {
    const bool open = HasNeighbour(model, n.neighbour) && !Refuses(model, n.neighbour);
    if (open) names.emplace_back(n.name);
  }
  return names;
}
std::string Listed(const std::vector<std::string>& names) {
  return names.empty() ? "-" : Joined(names, ", ");
}

Json ModelJson(const Accumulation& a) {
  Json row = {{"name", a.name}, {"what", a.what}, {"evidence", a.evidence}};
  if (a.model == nullptr) return row;
  row["products"] = a.model->products;
  row["fraction_bits"] = a.model->fraction_bits;
  row["floor"] = a.model->floor == kNoFloor ? Json() : Json(a.model->floor);
  row["output"] = OutputText(a.model->output);
  row["operands"] = FormatNames(*a.model);
  row["determined"] = Determined(*a.model);
  row["open"] = LeftOpen(*a.model);
  return row;
}

void PrintModels(bool json, bool wide) {
  if (json) {
    Json rows = Json::array();
    for (const Accumulation& a : Accumulations()) rows.push_back(ModelJson(a));
    PrintJson(Json{{"accumulations", rows}}, 2);
    return;
  }
  PrintText("Accumulations of arithmetic:\n");
  for (const Accumulation& a : Accumulations()) {
    if (a.model != nullptr) continue;
    PrintLabelled("  " + std::string(a.name), 19,
                  std::string(a.what) + " (" + std::string(a.evidence) + ")");
  }
  PrintText(
      "\nTensor cores: L products at once, aligned to F bits below the largest exponent (at least\n"
      "the floor), one rounding of the sum. \"open\": changes of a parameter under which the "
      "vectors\n"
      "of the evidence keep every bit; the others are determined:\n");
  const auto line = [](const std::array<std::string, 9>& c) {
    return Formatted("  %-23s %3s %3s %5s  %-18s %-24s %-11s %-46s %s\n", c[0].c_str(),
                     c[1].c_str(), c[2].c_str(), c[3].c_str(), c[4].c_str(), c[5].c_str(),
                     c[6].c_str(), c[7].c_str(), c[8].c_str());
  };
  std::string full =
      line({"model", "L", "F", "floor", "output", "operands", "determined", "open", "evidence"});
  TableRows narrow = {{"  model", "L", "F", "floor", "evidence"}};
  for (const TensorCoreModel& m : kTensorCoreModels) {
    const std::string name(m.name), products = std::to_string(m.products),
                                    bits = std::to_string(m.fraction_bits), evidence(m.evidence);
    full += line({name, products, bits, FloorText(m.floor), std::string(OutputText(m.output)),
                  FormatNames(m), Listed(Determined(m)), Listed(LeftOpen(m)), evidence});
    narrow.push_back({"  " + name, products, bits, FloorText(m.floor), evidence});
  }
  PrintFitted(full, narrow, wide, "outputs, operands, and what the evidence determines");
}

std::string ReadingText(const ProbeReading& r) {
  std::string text = "fraction bits F: ";
  text += !r.fraction_bits
              ? "no reading"
              : std::to_string(*r.fraction_bits) + (r.fraction_bits_or_more ? " or more" : "");
  text += "\nelements added at once: ";
  text += !r.step ? "no reading" : *r.step == 0 ? "interleaved" : std::to_string(*r.step);
  text += "\nterms are aligned: " + (r.alignment.empty() ? "no reading" : std::string(r.alignment));
  text += "\nthe sum is rounded: " + (r.output.empty() ? "no reading" : std::string(r.output));
  text += "\nleast exponent: " + (r.floor ? std::to_string(*r.floor) : "none seen");
  if (r.cancelled_group_counts) {
    text += "\na group that cancels sets the exponent: ";
    text += *r.cancelled_group_counts ? "yes" : "no";
    text += "\na group of zeros sets the exponent: ";
    text += *r.zero_group_counts ? "yes" : "no";
  }
  return text;
}

Json ReadingJson(const ProbeReading& r) {
  Json json = {{"alignment", r.alignment}, {"output", r.output}};
  const auto add = [&json](const char* name, const auto& value) {
    json[name] = value ? Json(*value) : Json();
  };
  add("fraction_bits", r.fraction_bits);
  json["fraction_bits_or_more"] = r.fraction_bits_or_more;
  add("step", r.step);
  add("floor", r.floor);
  add("cancelled_group_counts", r.cancelled_group_counts);
  add("zero_group_counts", r.zero_group_counts);
  return json;
}

// The answers in a file: the diagonal of a whole product, or one number for each probe.
std::vector<float> TakeAnswers(const ProbeSet& set, const std::string& place) {
  const Matrix<float> d = ReadMatrix(place).values;
  const std::size_t n = set.probes.size();
  std::vector<float> answers;
  if (d.rows == n && d.cols == n) {
    for (std::size_t i = 0; i < n; ++i) answers.push_back(d(i, i));
  } else if (d.values.size() == n) {
    answers = d.values;
  } else {
    throw Error(place, "holds " + std::to_string(d.rows) + "x" + std::to_string(d.cols) +
                           " numbers; the product of the probes has " + std::to_string(n) + "x" +
                           std::to_string(n));
  }
  return answers;
}

bool SameAnswers(const std::vector<float>& x, const std::vector<float>& y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](float a, float b) { return a == b || (a != a && b != b); });
}

void ReadAnswers(const GemmCommand& o) {
  const ProbeSet set = MakeProbes(o.probe);
  const std::vector<float> answers = TakeAnswers(set, o.answers);
  const ProbeReading reading = ReadProbes(set, answers);
  std::vector<std::string> equal;
  for (const Accumulation& a : Accumulations()) {
    if (WhyNot(a, set.a, set.b).empty() && SameAnswers(answers, ProbeAnswers(set, a))) {
      equal.emplace_back(a.name);
    }
  }
  if (o.json) {
    Json json = ReadingJson(reading);
    json["equal"] = equal;
    PrintJson(json, 2);
    return;
  }
  PrintText(ReadingText(reading) + "\n");
  std::string names;
  for (const std::string& name : equal) names += " " + name;
  Print("models that give all answers:%s\n", names.empty() ? " none" : names.c_str());
}

void PrintProbes(const GemmCommand& o, const ProbeSet& set) {
  std::vector<const Accumulation*> models;
  std::vector<std::vector<float>> answers;
  for (const Accumulation& a : Accumulations()) {
    if (!WhyNot(a, set.a, set.b).empty()) continue;
    models.push_back(&a);
    answers.push_back(ProbeAnswers(set, a));
  }
  Json rows = Json::array();
  for (std::size_t i = 0; i < set.probes.size(); ++i) {
    Json row = {{"probe", NameOf(set.probes[i])}};
    for (std::size_t j = 0; j < models.size(); ++j) {
      row["answers"][std::string(models[j]->name)] = answers[j][i];
    }
    rows.push_back(std::move(row));
  }
  if (o.json) {
    PrintJson(Json{{"operands", set.operands}, {"probes", std::move(rows)}}, 2);
    return;
  }
  Print("%zu probes of K %zu; element (i, i) of a b^T answers probe i\n", set.probes.size(),
        set.a.cols);
  for (std::size_t i = 0; i < set.probes.size() && o.out.empty(); ++i) {
    Print("%s\n", NameOf(set.probes[i]).c_str());
    for (std::size_t j = 0; j < models.size(); ++j) {
      Print("  %-24s %a\n", std::string(models[j]->name).c_str(), answers[j][i]);
    }
  }
}

void RunProbe(const GemmCommand& o) {
  if (!o.answers.empty()) return ReadAnswers(o);
  const ProbeSet set = MakeProbes(o.probe);
  if (!o.out.empty()) WriteProbes(set, o.out);
  PrintProbes(o, set);
}

void RunProduct(const GemmCommand& o) {
  const LoadedProduct p = Load(o.files);
  const Accumulation& under = RequireAccumulation(o.files.under, p);
  Matrix<float> d(p.a.operand.rows, p.b.operand.rows);
  GemmAs(under, p.a.operand, p.b.operand, {.alpha = p.alpha, .output = p.output}, d.View());
  if (!o.out.empty()) {
    const NumberType type =
        p.output == GemmOutput::kFp32
            ? NumberType{}
            : NumberType{NumberType::Kind::kFormat,
                         p.output == GemmOutput::kBf16 ? FormatId::kBF16 : FormatId::kFP16};
    WriteMatrix(o.out, d.View(), type);
  }
  Print("%zux%zu, K %zu, %s, alpha %.9g\n", d.rows, d.cols, p.a.operand.cols,
        std::string(under.name).c_str(), p.alpha);
  constexpr std::size_t kFew = 64;
  for (std::size_t r = 0; r < d.rows && o.out.empty() && d.values.size() <= kFew; ++r) {
    for (std::size_t c = 0; c < d.cols; ++c) Print("%s%.9g", c > 0 ? " " : "", d(r, c));
    PrintText("\n");
  }
}

void Run(const GemmCommand& o) {
  if (o.models) return PrintModels(o.json, o.wide);
  if (!o.probe.empty()) return RunProbe(o);
  if (!o.answers.empty()) throw Error("--answers", "needs --probe");
  if (o.files.a.empty() || o.files.b.empty()) {
    throw Error("gemm", "needs two files, A (M, K) and B (N, K), or --models, or --probe");
  }
  RunProduct(o);
}

}  // namespace

void AddGemm(CLI::App& app, int* /*exit_code*/) {
  const auto o = std::make_shared<GemmCommand>();
  CLI::App* command = app.add_subcommand(
      "gemm", "Multiply stored operands, d = alpha a b^T, under a model of how the sum is formed");
  AddProductOptions(command, &o->files, "fp32-blocks");
  command->add_option("--out", o->out, "Write the product, or the probes, to this file")
      ->type_name("FILE");
  command->add_flag("--models", o->models, "Print the accumulation models and their evidence");
  command
      ->add_option("--probe", o->probe,
                   "Make inputs that show how a device adds: nvfp4, mxfp4, e4m3, bf16")
      ->type_name("OPERANDS");
  command
      ->add_option("--answers", o->answers,
                   "The product that a device returned for --probe: derive its accumulation")
      ->type_name("FILE");
  command->add_flag("--json", o->json, "Print JSON (for --models and --probe)");
  command->add_flag("--wide", o->wide,
                    "Print all columns of --models, however narrow the terminal is");
  PutInGroup(command, "Models and probes", {"--models", "--wide", "--probe", "--answers"});
  PutInGroup(command, kReportGroup, {"--out", "--json"});
  command->footer(
      "Example: probe an accumulator; here the model of a B200 stands for the device.\n"
      "  $ fp4lab gemm --probe mxfp4 --out probe.safetensors\n"
      "  152 probes of K 256; element (i, i) of a b^T answers probe i\n"
      "  $ fp4lab gemm probe.safetensors#a probe.safetensors#b --under blackwell.mxf4.f32 --out "
      "d.npy\n"
      "  152x152, K 256, blackwell.mxf4.f32, alpha 1\n"
      "  $ fp4lab gemm --probe mxfp4 --answers d.npy | head -1\n"
      "  fraction bits F: 35");
  command->callback([o] { Run(*o); });
}

}  // namespace fp4lab::tools
