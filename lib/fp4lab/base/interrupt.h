// A poll between pieces of long work, by which a program that embeds the library ends it early: the
// Python package answers Ctrl-C in this way.
#pragma once

namespace fp4lab {

// Looks whether the work should end, and throws if so. It is called often, from any thread that
// works for the library, and must return at once in threads that it does not mean.
using InterruptCheck = void (*)();

// Sets the check of the process; nullptr, the value at the start: no check. Loops that have begun
// may still call the one before.
void SetInterruptCheck(InterruptCheck check);

// Calls the check, if there is one. What it throws ends the loop and reaches the loop's caller.
void CheckInterrupt();

}  // namespace fp4lab
