// The findings of a matrix of codes in groups, and its comparison with the original.
#pragma once

#include <vector>

#include "fp4lab/checkpoint/groups/group_matrix.h"
#include "fp4lab/checkpoint/judge_matrix.h"

namespace fp4lab {

// Sets formula, layout and verdicts of *m, and adds the findings. `only`: the checkpoint has no
// other matrix.
void JudgeGroups(const GroupMatrix& groups, const References& references, bool only,
                 CheckedMatrix* m, std::vector<Finding>* findings);

}  // namespace fp4lab
