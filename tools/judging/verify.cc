// fp4lab verify: compares a kernel's bytes with those of a dialect.
#include "fp4lab/judge/verify/verify.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/dialect/noise/added_noise.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/near_files.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/cases/case_stream.h"
#include "fp4lab/judge/kernels/kernel_text.h"
#include "fp4lab/judge/packs/pack.h"
#include "fp4lab/judge/verify/verify_stochastic.h"
#include "fp4lab/quantize/blocks.h"
#include "tools/help/help_group.h"
#include "tools/options/case_options.h"
#include "tools/options/commands.h"
#include "tools/options/comparing.h"
#include "tools/options/given_amax.h"
#include "tools/options/kernel_options.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"
#include "tools/options/usage.h"

namespace fp4lab::tools {
namespace {

struct VerifyCommand {
  KernelOptions kernel;
  CaseSetOptions set;
  std::string parts;
  std::string pack, answers, stream, keep;
  std::vector<std::string> more_codes;
  double error_rate = 1e-6;
  bool stochastic = false;
  std::size_t show = 5;
  bool check_padding = false, allow_declined = false, json = false;
};

void Show(const std::string& text, const Json& json, bool as_json) {
  as_json ? PrintJson(json, 1) : PrintText(text);
}

VerifyOptions OptionsOf(const VerifyCommand& o, const DialectOptions& quantize = {}) {
  return {.quantize = quantize, .first = o.show, .check_padding = o.check_padding};
}

// An answer, and the kernel that should have given it. Both are without a tensor scale if the
// answer stores none.
struct Answer {
  StoredMatrix bytes;
  Kernel kernel;
};
Answer ReadAnswerAndKernel(const KernelOptions& o, MatrixView<const float> input) {
  StoredFile file = ReadAnswer(o, input);
  const Kernel kernel = KernelOf(o, file);
  Answer answer{std::move(file.matrix), kernel};
  if (answer.bytes.tensor_scale.empty()) {
    answer.bytes.layout.tensor_scale = answer.kernel.layout.tensor_scale =
        TensorScaleConvention::kNone;
  }
  return answer;
}

bool Show(const VerifyCommand& o, const Dialect& dialect, const Verdict& verdict) {
  Show(Headline(dialect, verdict) + VerdictText(dialect, verdict), VerdictJson(dialect, verdict),
       o.json);
  return verdict.Accepted();
}

Json JsonWithRow(const Dialect& dialect, const Verdict& verdict, const Dialect* random_row) {
  Json json = VerdictJson(dialect, verdict);
  if (random_row != nullptr) json["consistent_with"] = random_row->name;
  return json;
}
std::string RandomRowText(const Dialect* row) {
  if (row == nullptr) return "";
  const AddedNoise* noise = FindAddedNoise(row->name);
  return "codes are consistent with " +
         std::string(noise != nullptr ? noise->name : "stochastic rounding") +
         ", and all scales are right\n  do: judge them by their distribution: verify --stochastic "
         "--dialect " +
         std::string(row->name) + "\n";
}

// ---- Several runs of a stochastic kernel --------------------------------------------------------

bool VerifyRuns(const VerifyCommand& o, const Answer& first, MatrixView<const float> x) {
  const Dialect& dialect = first.kernel.dialect;
  RequireStochastic(dialect, "--stochastic");
  CheckGivenAmax(o.kernel.amax, dialect, x);
  std::vector<StoredMatrix> runs{first.bytes};
  for (const std::string& place : o.more_codes) {
    KernelOptions run = o.kernel;
    (run.stored.empty() ? run.codes : run.stored) = place;
    runs.push_back(ReadAnswerAndKernel(run, x).bytes);
  }
  const StatisticalVerdict verdict = VerifyStatistically(
      dialect, x, runs, o.kernel.bytes(), OptionsOf(o, {.amax = o.kernel.amax}), o.error_rate);
  if (verdict.rounding.answer == StochasticAnswer::kUndecided) {
    throw Error("--more-codes", "no verdict: " + verdict.rounding.reason);
  }
  Show(StatisticalText(dialect, verdict), StatisticalJson(dialect, verdict), o.json);
  return verdict.Accepted();
}

// ---- One input and one answer -------------------------------------------------------------------

// The amaxes of the other parts, which may be stored in the place of a part's own.
std::vector<OtherAmax> AmaxesOfOthers(const std::vector<AnswerPart>& parts, const AnswerPart& own,
                                      const Dialect& dialect) {
  std::vector<OtherAmax> others;
  for (std::size_t i = 0; HasTensorScale(dialect) && !dialect.row_scaled && i < parts.size(); ++i) {
    if (&parts[i] == &own) continue;
    const std::vector<float> amax = TensorAmaxes(dialect, parts[i].x, {.amax = parts[i].amax});
    others.push_back({"the amax of part " + std::to_string(i), amax[0]});
  }
  return others;
}

// The part whose right codes and scales these are, if they are those of another part.
std::optional<std::size_t> OtherPart(const std::vector<AnswerPart>& parts, const AnswerPart& own,
                                     const Dialect& dialect) {
  if (IsStochastic(dialect)) return std::nullopt;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (&parts[i] == &own || parts[i].at.rows != own.at.rows) continue;
    const Verdict other = Verify(dialect, parts[i].x, own.bytes, own.title,
                                 {.quantize = {.amax = parts[i].amax}, .first = 0});
    if (other.codes.different == 0 && other.scales.different == 0) return i;
  }
  return std::nullopt;
}

bool VerifyParts(const VerifyCommand& o, const Answer& joined, MatrixView<const float> x) {
  const std::vector<std::uint16_t> random = ReadRandom(o.kernel, x);
  bool accepted = true;
  Json list = Json::array();
  const std::vector<AnswerPart> parts = PartsOf(o.parts, o.kernel, x, joined.bytes);
  for (const AnswerPart& part : parts) {
    const Dialect& dialect = joined.kernel.dialect;
    KernelOptions own = o.kernel;
    own.amax = part.amax;
    std::vector<std::uint16_t> bits;
    if (!random.empty()) {
      const auto first = random.begin() + static_cast<std::ptrdiff_t>(part.at.row * x.cols);
      bits.assign(first, first + static_cast<std::ptrdiff_t>(part.x.size()));
    }
    VerifyOptions options = OptionsOf(o, OptionsOf(own, dialect, part.x, bits));
    options.other_amaxes = AmaxesOfOthers(parts, part, dialect);
    const Verdict verdict =
        Verify(dialect, part.x, part.bytes, o.kernel.bytes() + ", " + part.title, options);
    accepted = accepted && verdict.Accepted();
    std::optional<std::size_t> other;
    if (verdict.codes.different != 0) other = OtherPart(parts, part, dialect);
    Json json = VerdictJson(dialect, verdict);
    json["other_part"] = other ? Json(*other) : Json();
    json["first_row"] = part.at.row;
    json["rows"] = part.at.rows;
    list.push_back(std::move(json));
    if (!o.json) {
      Print("%s: ", part.title.c_str());
      PrintText(Headline(dialect, verdict) + VerdictText(dialect, verdict));
      if (other) {
        Print(
            "codes and scales are those of part %zu\n"
            "  do: store the parts in the order of the input\n",
            *other);
      }
    }
  }
  if (o.json) PrintJson({{"accepted", accepted}, {"parts", std::move(list)}}, 1);
  return accepted;
}

bool VerifyFiles(const VerifyCommand& o) {
  const NumberView input = ViewNumbers(o.kernel.input);
  MatrixView<const float> x = input.values;
  const Answer answer = ReadAnswerAndKernel(o.kernel, x);
  const Kernel& kernel = answer.kernel;
  Matrix<float> transformed;
  std::vector<OtherAmax> other_amaxes;  // possible origins of a wrong tensor scale
  if (kernel.hadamard != 0) {
    other_amaxes = {AmaxBeforeTransform(x)};
    transformed = QuantizerInput(x, kernel.hadamard, kernel.sign_mask);
    x = transformed.View();
  }
  if (o.stochastic) return VerifyRuns(o, answer, x);
  if (!o.parts.empty()) return VerifyParts(o, answer, x);
  const std::vector<std::uint16_t> random = ReadRandom(o.kernel, x);
  VerifyOptions options = OptionsOf(o, OptionsOf(o.kernel, kernel.dialect, x, random));
  options.other_amaxes = other_amaxes;
  const Verdict verdict = Verify(kernel.dialect, x, answer.bytes, o.kernel.bytes(), options);
  const Dialect* random_row = nullptr;
  if (!verdict.Accepted() && verdict.codes.different > 0 && verdict.scales.different == 0) {
    random_row = RandomRowOf(kernel.dialect, x, answer.bytes, o.kernel.bytes(), options);
  }
  Show(Headline(kernel.dialect, verdict) + VerdictText(kernel.dialect, verdict) +
           RandomRowText(random_row),
       JsonWithRow(kernel.dialect, verdict, random_row), o.json);
  if (verdict.Equal() && !o.json) {
    Print(
        "One input is little evidence; the directed cases decide:\n"
        "  fp4lab cases%s | KERNEL | fp4lab verify%s\n",
        DialectOption(kernel.dialect).c_str(), CommandOptions(kernel).c_str());
  }
  return verdict.Accepted();
}

// ---- A golden pack ------------------------------------------------------------------------------

bool VerifyPack(VerifyCommand o) {
  const FileContent content(o.pack);
  const Pack pack = ReadPack(ViewSafetensors(content.bytes(), o.pack), o.pack);
  RequireElements(pack.input.View(), o.pack);
  o.kernel.dialect = std::string(pack.dialect.name);
  if (o.kernel.bytes().empty()) {  // checks the pack itself
    Kernel kernel = KernelOf(o.kernel);
    kernel.layout.tensor_scale =
        HasTensorScale(pack.dialect) ? TensorScaleConvention::kAmax : TensorScaleConvention::kNone;
    const Verdict verdict =
        CompareStored(Store(pack.dialect, RecomputedAnswer(pack), kernel.layout),
                      Store(pack.dialect, pack.answer, kernel.layout), o.pack, OptionsOf(o));
    if (!o.json) {
      Print("%s: %zu tensors, all match their hashes; written by fp4lab %s\n",
            Printable(o.pack).c_str(), pack.tensors.size(), Printable(pack.version).c_str());
    }
    return Show(o, pack.dialect, verdict);
  }
  const Answer answer = ReadAnswerAndKernel(o.kernel, pack.input.View());
  return Show(
      o, pack.dialect,
      CompareQuantized(pack.dialect, pack.answer, answer.bytes, o.kernel.bytes(), OptionsOf(o)));
}

// ---- All cases ----------------------------------------------------------------------------------

bool VerifyCases(const VerifyCommand& o) {
  CheckGivenAmax(o.kernel.amax);
  const Kernel kernel = KernelOf(o.kernel);
  const std::vector<Case> cases = MakeCases(kernel.dialect, CasesOf(o.set));
  if (cases.empty())
    throw Error("--family", "these families have no case for " + std::string(kernel.dialect.name));
  SetOptions options{.layout = kernel.layout,
                     .verify = OptionsOf(o, {.amax = o.kernel.amax}),
                     .allow_declined = o.allow_declined,
                     .keep = o.keep};
  if (!HasTensorScale(kernel.dialect)) options.layout.tensor_scale = TensorScaleConvention::kNone;
  SetVerdict verdict;
  if (!o.answers.empty()) {
    verdict = VerifyFolder(kernel.dialect, cases, o.answers, options);
  } else if (!o.stream.empty()) {
    if (std::filesystem::is_directory(o.stream)) {
      throw Error(o.stream, "is a folder where a file is needed; --answers takes folders");
    }
    std::ifstream in(o.stream, std::ios::binary);
    if (!in) CannotRead(o.stream, errno);
    verdict = VerifyStream(kernel.dialect, cases, in, o.stream, options);
  } else {
    verdict = VerifyStream(kernel.dialect, cases, std::cin, "standard input", options);
  }
  Show(SetVerdictText(kernel.dialect, cases, verdict),
       SetVerdictJson(kernel.dialect, cases, verdict), o.json);
  if (!o.keep.empty() && !verdict.Accepted() && !o.json) {
    Print("Explain the kept cases together: fp4lab explain%s --kept %s\n",
          CommandOptions(kernel).c_str(), Printable(o.keep).c_str());
  }
  return verdict.Accepted();
}

// Refuses options that have no effect in the mode that the command line asks for.
void CheckUsage(const VerifyCommand& o, const CLI::App& command) {
  constexpr const char* kWithPack = "has no effect with --pack, which holds it; leave it out";
  constexpr const char* kWithInput =
      "is of whole sets of cases, and --input is one matrix; leave one of them out";
  constexpr const char* kOfOne = "is of one matrix, which --input names; add it";
  if (!o.pack.empty()) {
    RefuseGiven(command,
                {"--input", "--shape", "--dtype", "--transpose-input", "--dialect", "--hadamard",
                 "--signs", "--amax", "--random", "--parts"},
                kWithPack);
  }
  if (!o.pack.empty() || !o.kernel.input.place.empty()) {
    RefuseGiven(command,
                {"--level", "--seed", "--family", "--bf16", "--answers", "--stream", "--keep",
                 "--allow-declined"},
                o.pack.empty() ? kWithInput : kWithPack);
  } else {
    RefuseGiven(command,
                {"--shape", "--dtype", "--transpose-input", "--stored", "--codes", "--scales",
                 "--tensor-scale", "--random", "--hadamard", "--signs", "--parts", "--codes-bytes",
                 "--scales-bytes"},
                kOfOne);
  }
  if (o.kernel.input.place.empty()) RefuseGiven(command, {"--stochastic"}, kOfOne);
  if (!o.stochastic) {
    RefuseGiven(command, {"--more-codes", "--error-rate"},
                "is for several runs, without random bits; add --stochastic");
  } else {
    RefuseGiven(command, {"--parts"}, "is not judged with --stochastic; give each part alone");
    RefuseGiven(command, {"--random"},
                "contradicts --stochastic, which judges without random bits");
  }
  if (!o.answers.empty() && !o.stream.empty()) {
    RefuseUsage("--answers", "and --stream are two places of the same answers; give one");
  }
}

bool Run(const VerifyCommand& o) {
  if (!o.pack.empty()) return VerifyPack(o);
  return o.kernel.input.place.empty() ? VerifyCases(o) : VerifyFiles(o);
}

}  // namespace

void AddVerify(CLI::App& app, int* exit_code) {
  const auto o = std::make_shared<VerifyCommand>();
  CLI::App* command = app.add_subcommand(
      "verify",
      "Compare a kernel's bytes with a dialect: exit code 0 equal or within its set of answers, 1 "
      "different, 2 error");
  AddInputOptions(command, &o->kernel);
  AddBytesOptions(command, &o->kernel);
  AddLayoutOptions(command, "", &o->kernel.layout);
  AddByteOrderOptions(command, &o->kernel);
  AddDialectOptions(command, &o->kernel);
  AddGivenOptions(command, &o->kernel);
  AddPartsOption(command, &o->parts);
  AddCaseSetOptions(command, &o->set);
  command->add_flag("--stochastic", o->stochastic,
                    "Judge the distribution of the codes of several runs, without random bits");
  command
      ->add_option("--more-codes", o->more_codes,
                   "Further runs: files as that of --codes or --stored")
      ->type_name("FILE");
  command->add_option("--error-rate", o->error_rate, "Probability of refusing a correct kernel")
      ->check(Decimal(1e-12, 0.1))
      ->capture_default_str();
  command->add_option("--pack", o->pack, "Compare with this golden pack, or check it alone")
      ->type_name("FILE");
  command->add_option("--answers", o->answers, "Answers to `cases --out-dir`: a folder")
      ->type_name("FOLDER");
  command
      ->add_option(
          "--keep", o->keep,
          "Write the cases that differ, with their answers, into this folder for `explain`")
      ->type_name("FOLDER");
  command->add_option("--stream", o->stream, "Answers to `cases`: a file instead of the pipe")
      ->type_name("FILE");
  command->add_flag("--allow-declined", o->allow_declined, "Accept declined cases");
  command->add_flag("--check-padding", o->check_padding, "Padding bytes must be 0");
  command->add_option("--show", o->show, "Differences to show of each part")
      ->transform(WholeNumber(0, 1'000'000))
      ->capture_default_str();
  command->add_flag("--json", o->json, "Print JSON");
  PutInGroup(command, kCasesGroup, {"--answers", "--stream", "--keep", "--allow-declined"});
  PutInGroup(command, kBytesGroup, {"--pack"});
  PutInGroup(command, "Stochastic rounding without random bits",
             {"--stochastic", "--more-codes", "--error-rate"});
  PutInGroup(command, kReportGroup, {"--check-padding", "--show", "--json"});
  command->require_subcommand(0, 1);
  command->footer(
      "With --input: one matrix. With --pack: its input. Else: the cases that `fp4lab cases` "
      "gives\n"
      "with the same options, answered through the pipe, --stream or --answers.\n"
      "Example: a pack, and codes read in the wrong nibble order\n"
      "  $ fp4lab cases --family signs --out-dir in\n"
      "  1 cases in in\n"
      "  $ fp4lab pack --input in/0000.x.npy --out golden.safetensors\n"
      "  golden.safetensors: 14 tensors of nvfp4.te, 32x128\n"
      "  $ fp4lab verify --pack golden.safetensors --codes "
      "golden.safetensors#low-first.linear.amax.codes \\\n"
      "      --scales golden.safetensors#scale --codes-order high-first | head -1\n"
      "  nvfp4.te: DIFFERENT");
  command->callback([o, command, exit_code] {
    if (!command->get_subcommands().empty()) return;
    CheckUsage(*o, *command);
    Comparing(exit_code, [&] { return Run(*o); });
  });
}

}  // namespace fp4lab::tools
