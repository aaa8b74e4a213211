// Drawings of the concepts: what a format, a block, an order of scales, a recipe, a transform and a
// token ratio look like, each drawn from the tables and functions that compute it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp4lab::study {

struct Drawing {
  std::string_view name;       // "number-line"
  std::string_view arguments;  // what its arguments are called; "[...]": there are defaults
  std::string_view what;       // for lists, without a full stop
  std::size_t least, most;     // how many arguments it takes
  std::string (*draw)(const std::vector<std::string>& arguments);  // an SVG document
};

// All drawings, in the order in which `fp4lab draw` lists them.
std::span<const Drawing> Drawings();

// The SVG document of the drawing `name`; the same bytes on every machine. Throws Error for a name
// that is not in the table, for a wrong number of arguments, and for an argument that names nothing
// or something that cannot be drawn.
std::string Draw(std::string_view name, const std::vector<std::string>& arguments);

}  // namespace fp4lab::study
