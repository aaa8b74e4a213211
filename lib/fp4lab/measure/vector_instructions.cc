#include "fp4lab/measure/vector_instructions.h"

#if defined(__x86_64__) && defined(__linux__)
#include <ucontext.h>

#include <csignal>

#include "fp4lab/base/error.h"
#endif

namespace fp4lab::measure {
namespace {

// An opcode of map 1 (0F), 2 (0F 38) or 3 (0F 3A) of VEX or EVEX, and its ModRM byte.
struct Opcode {
  int map;
  unsigned char code, modrm;
};

// Moves of whole registers, and what touches no vector unit: processors rename registers for these,
// or load and store.
bool IsMove(const Opcode& op) {
  if (op.map == 1) {
    switch (op.code) {
      case 0x10:
      case 0x11:
      case 0x12:
      case 0x13:
      case 0x16:
      case 0x17:  // vmovups, vmovlps ...
      case 0x28:
      case 0x29:
      case 0x2B:  // vmovaps, vmovntps
      case 0x6E:
      case 0x6F:
      case 0x7E:
      case 0x7F:
      case 0xD6:
      case 0xE7:  // vmovd, vmovdqu ...
      case 0x77:  // vzeroupper
      case 0xAE:  // vldmxcsr, vstmxcsr
        return true;
      default:
        return (op.code >= 0x41 && op.code <= 0x4B) ||
               (op.code >= 0x90 && op.code <= 0x99);  // masks
    }
  }
  const bool from_memory = (op.modrm & 0xC0) != 0xC0;
  if (op.map != 2 || !from_memory) return false;
  return (op.code >= 0x18 && op.code <= 0x1B) || (op.code >= 0x58 && op.code <= 0x5B) ||
         op.code == 0x78 || op.code == 0x79 ||                     // vbroadcastss ...
         op.code == 0x2A || (op.code >= 0x2C && op.code <= 0x2F);  // vmovntdqa, vmaskmovps ...
}

// An exclusive or of a register with itself sets it to zero, in the renaming stage. `high` is what
// the prefix adds to the number of the register in ModRM.
bool IsZeroIdiom(const Opcode& op, int first_source, int high) {
  return op.map == 1 && (op.code == 0x57 || op.code == 0xEF) && (op.modrm & 0xC0) == 0xC0 &&
         (op.modrm & 7) + high == first_source;
}

}  // namespace

// Prefixes of the Intel 64 manual, volume 2, sections 2.3 (VEX) and 2.7 (EVEX).
int VectorInstructionBytes(const unsigned char* code) {
  // Bits of prefixes that belong to registers are stored inverted.
  const auto inverted = [](unsigned char byte, int bit, int value) {
    return (byte >> bit & 1) != 0 ? 0 : value;
  };
  const auto source = [](unsigned char byte) { return ~byte >> 3 & 15; };
  Opcode op{};
  int bytes = 0, first_source = 0, high = 0;
  if (code[0] == 0xC5) {
    op = {1, code[2], code[3]};
    bytes = (code[1] & 4) != 0 ? 32 : 16;
    first_source = source(code[1]);
  } else if (code[0] == 0xC4) {
    op = {code[1] & 0x1F, code[3], code[4]};
    bytes = (code[2] & 4) != 0 ? 32 : 16;
    first_source = source(code[2]);
    high = inverted(code[1], 5, 8);
    const bool general = (op.map == 2 && op.code >= 0xF2 && op.code <= 0xF7) ||  // andn, bextr ...
                         (op.map == 3 && op.code == 0xF0) ||                     // rorx
                         (op.map == 3 && op.code >= 0x30 && op.code <= 0x33);    // kshift
    if (general) return 0;
  } else if (code[0] == 0x62) {
    op = {code[1] & 7, code[4], code[5]};
    const bool is_rounding = (code[3] & 0x10) != 0 && (op.modrm & 0xC0) == 0xC0;
    bytes = is_rounding ? 64 : 16 << (code[3] >> 5 & 3);
    first_source = source(code[2]) + inverted(code[3], 3, 16);
    high = inverted(code[1], 5, 8) + inverted(code[1], 6, 16);
  } else {
    return 0;
  }
  return IsMove(op) || IsZeroIdiom(op, first_source, high) ? 0 : bytes;
}

#if defined(__x86_64__) && defined(__linux__)
namespace {

// Of the thread that counts. The handler runs on it, between two of its instructions.
thread_local volatile std::size_t steps = 0, wide = 0, narrow = 0;

void OnStep(int /*signal*/, siginfo_t* /*info*/, void* context) {
  const auto* c = static_cast<const ucontext_t*>(context);
  const int bytes =
      VectorInstructionBytes(reinterpret_cast<const unsigned char*>(c->uc_mcontext.gregs[REG_RIP]));
  steps = steps + 1;
  if (bytes == 64) wide = wide + 1;
  if (bytes == 16 || bytes == 32) narrow = narrow + 1;
}

// Bit 8 of RFLAGS: a trap after each instruction.
void SetTrapFlag(bool on) {
  if (on) {
    asm volatile("pushfq\n orq $0x100, (%%rsp)\n popfq" : : : "memory", "cc");
  } else {
    asm volatile("pushfq\n andq $~0x100, (%%rsp)\n popfq" : : : "memory", "cc");
  }
}

class Stepping {
 public:
  Stepping() {
    struct sigaction action {};
    action.sa_sigaction = OnStep;
    action.sa_flags = SA_SIGINFO;
    Expects(sigaction(SIGTRAP, &action, &before_) == 0, "SIGTRAP can be handled");
    steps = 0;
    wide = 0;
    narrow = 0;
    SetTrapFlag(true);
  }
  Stepping(const Stepping&) = delete;
  Stepping& operator=(const Stepping&) = delete;
  ~Stepping() {
    SetTrapFlag(false);
    sigaction(SIGTRAP, &before_, nullptr);
  }

 private:
  struct sigaction before_ {};
};

}  // namespace

std::optional<VectorInstructions> CountVectorInstructions(const std::function<void()>& work) {
  {
    const Stepping stepping;
    work();
  }
  if (steps == 0) return std::nullopt;
  return VectorInstructions{static_cast<double>(wide), static_cast<double>(narrow)};
}
#else
std::optional<VectorInstructions> CountVectorInstructions(const std::function<void()>& work) {
  work();
  return std::nullopt;
}
#endif

}  // namespace fp4lab::measure
