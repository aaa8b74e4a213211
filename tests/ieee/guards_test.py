"""Every public function of libfp4lab that computes with floating-point numbers holds IeeeArithmetic.

guards_test.py LIBRARY.a: reads the machine code of the library by objdump (x86-64). A function is public
if its symbol is global and it is no kernel of one SIMD target. It computes if it, a local function or an
inline function of fp4lab that it reaches has a floating-point instruction, or calls libm, printf or strtod.
Such a function must call IeeeArithmetic's constructor, or be named in EXCEPTIONS.
"""

import collections
import re
import shutil
import subprocess
import sys

# The parts of operations that lib/fp4lab/base/ieee_arithmetic.h names: their callers hold the guard.
# By object file; "*": all of its functions.
EXCEPTIONS = {
    "quantize_job.cc.o": {"fp4lab::JobOf"},
    "exact_sum.cc.o": {"*"},
    "hadamard.cc.o": {"fp4lab::HadamardWideGroup"},
    "case_builder.cc.o": {"*"},
    "case_hazards.cc.o": {"*"},
    "case_places.cc.o": {"*"},
    "case_range.cc.o": {"*"},
    "case_rounding.cc.o": {"*"},
    "evaluate.cc.o": {"*"},
    "evidence.cc.o": {"fp4lab::Contains"},
    "input.cc.o": {"fp4lab::InputOf"},
    "match.cc.o": {"fp4lab::ByteMatcher::AmaxFor", "fp4lab::ByteMatcher::Sampled"},
    "plan_edits.cc.o": {"*"},
    "placement.cc.o": {"fp4lab::Directions::Scale", "fp4lab::Directions::Cosine"},
    # Private members of classes, and the drawing of figures.
    "draw_blocks.cc.o": {"*"},
    "draw_dataflow.cc.o": {"*"},
    "draw_hadamard.cc.o": {"*"},
    "draw_number_line.cc.o": {"*"},
    "draw_rounding.cc.o": {"*"},
    "draw_scale_order.cc.o": {"*"},
    "draw_token_forms.cc.o": {"*"},
    "step_parts.cc.o": {"fp4lab::StepClock::ChangeTo"},
    "figure_parts.cc.o": {"*"},
    "rendezvous.cc.o": {"*"},
    "plot.cc.o": {"*"},
    "svg.cc.o": {"*"},
    "linear.cc.o": {"fp4lab::KeepsWeightValues"},
    "linears.cc.o": {"fp4lab::Linears::ShowsProducts"},
    "memory.cc.o": {
        "fp4lab::LinearMemory::AddSide",
        "fp4lab::LinearMemory::AddTensor",
        "fp4lab::LinearMemory::AddWeight",
        "fp4lab::LinearMemory::Take",
    },
    "model.cc.o": {"fp4lab::Model::BackwardHead"},
    "run.cc.o": {"fp4lab::study::Run::EnterBranch", "fp4lab::study::Run::FinishBranch"},
    "train_run.cc.o": {"*"},
    "trainer.cc.o": {"*"},
    "watch.cc.o": {"fp4lab::study::StudyWatch::FindNumerics"},
}

ARITHMETIC = re.compile(
    r"v?(cvt\w+|(add|sub|mul|div|sqrt|min|max|addsub|hadd|hsub|ucomi|comi|cmp\w*|round|rndscale|getexp|getmant|"
    r"scalef|rcp\w*|rsqrt\w*|dp|range|reduce|fixupimm|fn?m(add|sub)\w*)(ss|sd|ps|pd))$"
)
LIBRARY_CALL = re.compile(
    r"(v?snprintf|__v?snprintf_chk|strto[dfl]d?|_ZNSo9_M_insertI[df]E\w*|exp|log|pow|exp2|log2|log10|sqrt|cbrt|"
    r"erfc?|lgamma|tgamma|sin|cos|tanh|expm1|log1p|frexp|ldexp|scalbn|rint|lrint|expf|logf)$"
)
ONE_TARGET = re.compile(r"\dN_(AVX|SSE|SCALAR|SSSE|EMU)")


class Member:
    """An object file: the kinds of its functions (g: global, w: weak, l: local), and what each refers to."""

    def __init__(self):
        self.kinds, self.calls = {}, collections.defaultdict(set)
        self.computes, self.guarded = {}, set()

    def first_arithmetic(self, function):
        """(the function with arithmetic, the instruction) that `function` reaches without a guard, or None."""
        seen, left = {function}, [function]
        while left:
            name = left.pop()
            if name in self.computes:
                return name, self.computes[name]
            for callee in self.calls[name] - seen - self.guarded:
                kind = self.kinds.get(callee)
                ours = "fp4lab" in callee and "nlohmann" not in callee and not callee.startswith("_ZNS")
                if kind == "l" or (kind == "w" and ours):
                    seen.add(callee)
                    left.append(callee)
        return None


def members_of(archive):
    """[(name of an object file, Member)]; names may repeat."""
    members, member, function = [], None, None
    process = subprocess.Popen(["objdump", "-tdr", "--no-show-raw-insn", archive], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if match := re.match(r"(\S+):     file format", line):
            member, function = Member(), None
            members.append((match[1], member))
        elif match := re.match(r"[0-9a-f]{16} (.{7}) \S+\s+[0-9a-f]+\s+(?:\.hidden )?(\S+)$", line):
            if "F" in match[1]:
                member.kinds[match[2]] = "w" if "w" in match[1] or match[1][0] == "u" else match[1][0]
        elif match := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            function = match[1]
        elif match := re.search(r"R_X86_64_\w+\s+([^\s+-]+)", line):
            member.calls[function].add(match[1])
            if "IeeeArithmeticC" in match[1]:
                member.guarded.add(function)
            if LIBRARY_CALL.match(match[1]):
                member.computes.setdefault(function, match[1])
        elif match := re.match(r"\s*[0-9a-f]+:\s+(\S+)(?:\s+(.*))?$", line):
            if ARITHMETIC.match(match[1]):
                member.computes.setdefault(function, match[1])
            if target := re.search(r"<([^>+]+)(\+0x[0-9a-f]+)?>$", match[2] or ""):
                member.calls[function].add(target[1])
    if process.wait() != 0:
        sys.exit(f"error: objdump cannot read {archive}")
    return members


def demangled(names):
    text = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, text.split("\n")))


def main(archive):
    if shutil.which("objdump") is None or "x86-64" not in subprocess.run(
        ["objdump", "-f", archive], capture_output=True, text=True
    ).stdout:
        print("SKIPPED: reads the machine code of x86-64 by objdump")
        return 0
    found, guarded = [], 0
    members = members_of(archive)
    for file, member in members:
        if not file.endswith(".cc.o"):
            continue  # of nvcc: train/engine.cc and cuda/quantize/quantize.cc hold the guard around them
        for function, kind in member.kinds.items():
            if kind != "g" or "fp4lab" not in function or ONE_TARGET.search(function):
                continue
            guarded += function in member.guarded
            hit = None if function in member.guarded else member.first_arithmetic(function)
            if hit is not None:
                found.append((file, function, hit))
    names = demangled([n for _, function, (where, _) in found for n in (function, where)])
    used = collections.defaultdict(set)
    wrong = 0
    for file, function, (where, instruction) in sorted(found):
        name = names[function]
        if listed := EXCEPTIONS.get(file, set()) & {name, "*"}:
            used[file] |= listed
            continue
        wrong += 1
        via = "" if where == function else f" (in {names[where]})"
        print(f"{file}: {name} computes by {instruction}{via} and holds no IeeeArithmetic")
    built = {file for file, _ in members}  # rendezvous.cc needs CUDA
    for file in sorted(EXCEPTIONS.keys() & built):
        for name in sorted(EXCEPTIONS[file] - used[file]):
            wrong += 1
            print(f"{file}: {name} is listed as an exception and needs none")
    print(f"{guarded} functions hold IeeeArithmetic, {wrong} errors")
    return 1 if wrong or guarded < 100 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
