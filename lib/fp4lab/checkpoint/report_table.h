// Tables of the reports.
#pragma once

#include <string>
#include <vector>

namespace fp4lab {

// Rows of cells as text: columns are aligned, names are safe to print.
std::string TableText(const std::vector<std::vector<std::string>>& rows);

}  // namespace fp4lab
