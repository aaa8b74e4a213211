// The script of a report's page: values at marks, keys that hide their series, light and dark, and
// figures as files. A page says all it has to say without it.
#pragma once

#include <string>
#include <string_view>

namespace fp4lab::study {

// JavaScript without a library, network, eval or inline handlers. It works on
//   style.dark        styles for dark backgrounds, whose attribute `media` it sets
//   style.figures     the figures' style
//   figure[data-file] a figure and the name, without an ending, of the files that it is saved as
//   .series, .key     groups of a figure, related by their data-series
//   title             children of marks; of a polyline with data-values, one value for each corner
//   .needs-script     hidden without it
std::string_view PageScript();

// The Content-Security-Policy that allows PageScript, inline styles and figures on a canvas, and
// nothing else: a text that broke out of its place in the page could run and load nothing.
std::string PagePolicy();

}  // namespace fp4lab::study
