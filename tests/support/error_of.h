// The message of the Error that an action throws; "no error" where it throws none.
#pragma once

#include <string>

#include "fp4lab/base/error.h"

namespace fp4lab {

template <class Action>
std::string ErrorOf(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace fp4lab
