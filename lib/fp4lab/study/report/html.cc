#include "fp4lab/study/report/html.h"

#include "fp4lab/base/text/text.h"
#include "fp4lab/study/report/figures/svg.h"
#include "fp4lab/study/report/page_script.h"

namespace fp4lab::study {
namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light;--ink:#1f2430;--soft:#5d6572;--line:#dfe3e9;--paper:#fff;--tint:#f4f5f8;
--good:#0060a8;--bad:#b34700;--open:#5d6572;--ring:#0072b2}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 "Helvetica Neue",Helvetica,Arial,
"Liberation Sans",sans-serif;overflow-wrap:break-word}
main{max-width:1040px;margin:0 auto;padding:40px 24px 72px}
h1{font-size:28px;line-height:1.25;margin:0 0 8px;padding-right:44px}
h1.study{margin-top:64px;padding-top:20px;border-top:3px solid var(--line)}a{color:var(--ring)}
h2{font-size:20px;margin:44px 0 10px;padding-top:18px;border-top:1px solid var(--line)}
h3{font-size:16px;margin:26px 0 8px}
p{margin:8px 0 12px;max-width:780px}.lead{color:var(--soft)}
.verdict{font-size:17px;font-weight:600;font-variant-numeric:tabular-nums;margin:20px 0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px;margin:22px 0}
.card{background:var(--tint);border-radius:8px;padding:14px 16px}
.card b{display:block;font-size:26px;line-height:1.25;font-variant-numeric:tabular-nums}
.card span{display:block;color:var(--soft);font-size:14px;line-height:1.4}
figure{position:relative;max-width:860px;margin:26px 0}
figure svg{display:block;width:100%;min-width:600px;height:auto}
figcaption,.note{color:var(--soft);font-size:14px;line-height:1.5}
figcaption{margin-top:6px;max-width:780px}
.scroll{overflow-x:auto;margin:10px 0 18px}
.plot{overflow-x:auto}
table{border-collapse:collapse;font-size:14px;line-height:1.4;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding:0 0 6px}
caption span{position:sticky;left:0;display:inline-block;max-width:min(780px,calc(100vw - 48px))}
th,td{padding:5px 14px 5px 0;text-align:right;vertical-align:top;white-space:nowrap;
border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:600}
.scroll th:first-child,.scroll td:first-child{position:sticky;left:0;background:var(--paper)}
th.text,td.text{text-align:left}td.wrap{white-space:normal;min-width:220px}
.held::before{content:"\2713\A0"}.failed::before{content:"\2717\A0"}.open::before{content:"?\A0"}
.held{color:var(--good);font-weight:600}.failed{color:var(--bad);font-weight:600}
.open{color:var(--open);font-weight:600}.muted{color:var(--soft)}
.warning{border-left:4px solid var(--bad);padding:8px 14px;background:var(--tint);margin:16px 0}
code{font-size:13px;overflow-wrap:anywhere}
details summary{cursor:pointer;color:var(--soft);margin:10px 0}
pre{overflow-x:auto;font-size:12px;line-height:1.45;background:var(--tint);padding:12px;
border-radius:8px}
.bar{position:absolute;top:0;right:0;display:flex;gap:6px}body>.bar{top:14px;right:14px}
button{font:inherit;font-size:12px;line-height:1;min-width:30px;padding:6px 8px;color:var(--soft);
background:var(--paper);border:1px solid var(--line);border-radius:6px;cursor:pointer}
button:hover{color:var(--ink);border-color:var(--soft)}body>.bar button{font-size:16px}
.names{display:none}
.key{cursor:pointer}.key.off,.names .off{opacity:.35}.series.off{display:none}
.key:focus{outline:none}.key:focus-visible{outline:2px solid var(--ring);outline-offset:2px}
.ring{fill:none;stroke:var(--ring);stroke-width:2;pointer-events:none}
.tip{position:fixed;z-index:1;max-width:min(340px,calc(100vw - 8px));padding:6px 10px;
font-size:13px;line-height:1.4;color:var(--paper);background:var(--ink);border-radius:6px;
pointer-events:none;font-variant-numeric:tabular-nums}
[hidden]{display:none}
@media (max-width:640px){.names{display:flex;flex-wrap:wrap;gap:6px;margin:0 0 8px}
main{padding:20px 14px 48px}h1{font-size:22px}.card b{font-size:22px}
figure .bar{position:static;margin-top:8px}button{padding:9px 12px}}
@media print{body{font-size:11pt}main{max-width:none;padding:0}.bar,.names,.tip,.ring,.needs-script{display:none}
figure,.card,tr,h1+p,.warning{break-inside:avoid}h1,h2,h3,caption{break-after:avoid}h1.study{break-before:page}
figure svg{min-width:0;max-height:22cm}.scroll,.plot,pre{overflow:visible}.scroll th:first-child,.scroll td:first-child{position:static}
table{font-size:8pt}th,td{padding-right:8px;white-space:normal}pre{white-space:pre-wrap}}
)";

constexpr std::string_view kDarkStyle = R"(
:root{color-scheme:dark;--ink:#e8eaee;--soft:#a4acb9;--line:#2f3641;--paper:#14171c;--tint:#1b2027;
--good:#63b8f2;--bad:#f0a04b;--open:#a4acb9;--ring:#4fb0ea}
)";

// Dark colours are for screens, so that paper has the light ones. The page's script changes the
// medium of these styles.
constexpr std::string_view kDarkMedium = "media=\"screen and (prefers-color-scheme:dark)\"";

std::string StyleElement(std::string_view attributes, std::string_view rules) {
  return "<style" + std::string(attributes) + ">" + std::string(rules) + "</style>\n";
}

// Whether a cell has a line of many letters, which may be broken; lines with other markup than <br>
// do not count.
bool HasLongLine(std::string_view cell) {
  constexpr std::string_view kBreak = "<br>";
  constexpr std::size_t kLong = 60;
  while (true) {
    const std::size_t end = cell.find(kBreak);
    const std::string_view line = cell.substr(0, end);
    if (line.size() > kLong && line.find('<') == line.npos) return true;
    if (end == cell.npos) return false;
    cell.remove_prefix(end + kBreak.size());
  }
}

std::string Row(const std::string& tag, const std::vector<std::string>& cells,
                std::size_t text_columns) {
  std::string text = "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i] == kJoined) continue;
    std::size_t span = 1;
    while (i + span < cells.size() && cells[i + span] == kJoined) ++span;
    const bool wide = HasLongLine(cells[i]);
    text += "<" + tag;
    if (i < text_columns || span > 1) text += wide ? " class=\"text wrap\"" : " class=\"text\"";
    if (span > 1) text += " colspan=\"" + std::to_string(span) + "\"";
    text += ">" + cells[i] + "</" + tag + ">";
  }
  return text + "</tr>\n";
}

}  // namespace

std::string HtmlTable::Html() const {
  std::string text = "<div class=\"scroll\"><table>\n";
  if (!caption.empty()) text += "<caption><span>" + EscapedMarkup(caption) + "</span></caption>\n";
  text += "<thead>" + Row("th", head, text_columns) + "</thead>\n<tbody>\n";
  for (const auto& row : rows) text += Row("td", row, text_columns);
  return text + "</tbody></table></div>\n";
}

std::string HtmlPage(std::string_view title, std::string_view body) {
  const std::string dark(kDarkMedium);
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"" +
         PagePolicy() + "\">\n<title>" + EscapedMarkup(title) + "</title>\n" +
         StyleElement("", kStyle) + StyleElement(" class=\"dark\" " + dark, kDarkStyle) +
         StyleElement(" class=\"figures\"", "\n" + FigureStyle(false)) +
         StyleElement(" class=\"figures dark\" " + dark, "\n" + FigureStyle(true)) +
         "</head>\n<body>\n<main>\n" + std::string(body) + "</main>\n<script>" +
         std::string(PageScript()) + "</script>\n</body>\n</html>\n";
}

}  // namespace fp4lab::study
