// Which element each register of a warp holds in mma.sync.m16n8k64 on E2M1 with block scales.
//
// PTX ISA 9.0, "Matrix Fragments for mma.m16n8k64" and "Block Scaling for mma.sync". a (16, 64), b
// (8, 64) with the sum along its columns (PTX: "col"), d (16, 8). A register of a or b holds eight
// codes, ascending k from the low nibble up. All here is arithmetic of host and device.
#pragma once

namespace fp4lab::cuda {

inline constexpr unsigned kWarp = 32, kMmaM = 16, kMmaN = 8, kMmaK = 64;
inline constexpr unsigned kNibbles = 8;  // codes in a register
inline constexpr unsigned kRegistersA = 4, kRegistersB = 2, kRegistersD = 4;

struct FragmentElement {
  unsigned row, col;  // of a and b: col is k
  friend constexpr bool operator==(const FragmentElement&, const FragmentElement&) = default;
};
struct FragmentPlace {
  unsigned lane, reg, nibble;
  friend constexpr bool operator==(const FragmentPlace&, const FragmentPlace&) = default;
};

// Groups of four lanes hold a row; registers 0 and 1 are k < 32, 1 and 3 the lower eight rows.
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

// ---- Scales: one register a lane for each operand, selected by {byte-id, thread-id}
// ---------------------------------------------------------------------------------------------

// What the instruction names beside the registers. With scales of 16 a register holds the four of
// a row (byte i: k from 16 i) and byte_id is 0; with scales of 32 the two in bytes byte_id and
// byte_id + 1, byte_id 0 or 2.
struct ScaleSelector {
  unsigned byte_id, thread_id;
};
// thread_id of a is 0 or 1: the lower or upper pair of each group of four lanes counts.
constexpr unsigned LaneOfScaleA(unsigned row, unsigned thread_id) {
  return row % 8 * 4 + thread_id * 2 + row / 8;
}
// thread_id of b is 0 to 3: one lane of each group of four.
constexpr unsigned LaneOfScaleB(unsigned row, unsigned thread_id) { return row * 4 + thread_id; }

// So one register serves two instructions with 32 rows of a between them, four with 32 of b: the
// row of the scales that a lane loads, counted over those instructions' tiles in order.
constexpr unsigned ScaleRowA(unsigned lane) {
  return lane % 4 / 2 * kMmaM + lane / 4 + lane % 2 * 8;
}
constexpr unsigned ScaleRowB(unsigned lane) { return lane % 4 * kMmaN + lane / 4; }

}  // namespace fp4lab::cuda
