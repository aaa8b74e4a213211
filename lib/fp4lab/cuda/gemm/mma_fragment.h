// The elements in each register of a warp in mma.sync.m16n8k64 on E2M1 with block scales. Functions
// of host and device.
//
// PTX ISA 9.0, "Matrix Fragments for mma.m16n8k64" and "Block Scaling for mma.sync". a is (16, 64);
// b is (8, 64) with the sum along its columns (PTX: "col"); d is (16, 8). A register of a or b
// holds eight codes, in ascending k from the low nibble up.
#pragma once

namespace fp4lab::cuda {

inline constexpr unsigned kWarp = 32, kMmaM = 16, kMmaN = 8, kMmaK = 64;
inline constexpr unsigned kNibbles = 8;  // codes in a register
inline constexpr unsigned kRegistersA = 4, kRegistersB = 2, kRegistersD = 4;

struct FragmentElement {
  unsigned row, col;  // col is k in a and b
  friend constexpr bool operator==(const FragmentElement&, const FragmentElement&) = default;
};
struct FragmentPlace {
  unsigned lane, reg, nibble;
  friend constexpr bool operator==(const FragmentPlace&, const FragmentPlace&) = default;
};

// Four consecutive lanes hold a row. Registers 0 and 1 hold k < 32, registers 1 and 3 the lower
// eight rows.
constexpr FragmentElement ElementOfA(FragmentPlace p) {
  return {p.lane / 4 + p.reg % 2 * 8, p.lane % 4 * 8 + p.nibble + p.reg / 2 * 32};
}
constexpr FragmentPlace PlaceOfA(FragmentElement e) {
  return {e.row % 8 * 4 + e.col % 32 / 8, e.row / 8 + e.col / 32 * 2, e.col % 8};
}
constexpr FragmentElement ElementOfB(FragmentPlace p) {
  return {p.lane / 4, p.lane % 4 * 8 + p.nibble + p.reg * 32};
}
constexpr FragmentPlace PlaceOfB(FragmentElement e) {
  return {e.row * 4 + e.col % 32 / 8, e.col / 32, e.col % 8};
}
constexpr FragmentElement ElementOfD(unsigned lane, unsigned reg) {
  return {lane / 4 + reg / 2 * 8, lane % 4 * 2 + reg % 2};
}

// ---- Scales: one register of a lane for each operand, selected by {byte-id, thread-id} ----

// The operands of the instruction that select scales. With one scale for 16 elements a register
// holds the four scales of a row (byte i: k from 16 i on), and byte_id is 0. With one scale for 32
// elements the two scales of a row are the bytes byte_id and byte_id + 1, where byte_id is 0 or 2.
struct ScaleSelector {
  unsigned byte_id, thread_id;
};
// thread_id of a is 0 or 1: the lower or the upper pair of each four lanes holds the scales.
constexpr unsigned LaneOfScaleA(unsigned row, unsigned thread_id) {
  return row % 8 * 4 + thread_id * 2 + row / 8;
}
// thread_id of b is 0 to 3: one lane of each four holds the scales.
constexpr unsigned LaneOfScaleB(unsigned row, unsigned thread_id) { return row * 4 + thread_id; }

// A register of scales therefore serves two instructions, which have 32 rows of a together, or four
// instructions, which have 32 rows of b. The functions return the row whose scales a lane loads,
// counted over the tiles of those instructions in order.
constexpr unsigned ScaleRowA(unsigned lane) {
  return lane % 4 / 2 * kMmaM + lane / 4 + lane % 2 * 8;
}
constexpr unsigned ScaleRowB(unsigned lane) { return lane % 4 * kMmaN + lane / 4; }

}  // namespace fp4lab::cuda
