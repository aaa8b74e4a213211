#include "fp4lab/study/report/page_script.h"

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/hash.h"

namespace fp4lab::study {
namespace {

constexpr std::string_view kScript = R"js(
'use strict';
(() => {
const all = (root, selector) => [...root.querySelectorAll(selector)];
const set = (element, attributes) => {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
const make = (tag, parent, attributes, text = '') => {
  const element = set(document.createElement(tag), attributes);
  element.textContent = text;
  parent.append(element);
  return element;
};
const button = (parent, text, says, act) =>
  make('button', parent, {type: 'button', 'aria-label': says}, text).addEventListener('click', act);
all(document, '.needs-script').forEach(e => { e.hidden = false; });

// Light and dark: the dark styles apply where the reader's system asks for them, until the switch
// says otherwise. Paper is always light.
const dark = all(document, 'style.dark'), isDark = () => matchMedia(dark[0].media).matches;
button(make('div', document.body, {class: 'bar'}), '\u25D0', 'Light or dark', () => {
  const media = isDark() ? 'not all' : 'screen';
  dark.forEach(style => { style.media = media; });
});

// The tip says what the ringed point of a figure stands for.
const svgName = document.querySelector('svg').namespaceURI;
const tip = make('div', document.body, {class: 'tip', role: 'status', hidden: ''});
const ring = set(document.createElementNS(svgName, 'circle'), {r: 8, class: 'ring'});
let shown = null;
const hide = () => { shown = null; tip.hidden = true; ring.remove(); };
const show = (svg, point) => {
  if (!point) return hide();
  shown = [svg, point];
  const m = svg.getScreenCTM(), x = m.a * point.x + m.e, y = m.d * point.y + m.f;
  tip.textContent = point.text;
  tip.hidden = false;
  tip.style.left = tip.style.top = 0;  // its size must not depend on where it was
  const room = document.documentElement.clientWidth - tip.offsetWidth - 4;
  const above = y - tip.offsetHeight - 14;
  tip.style.left = Math.max(4, Math.min(x - tip.offsetWidth / 2, room)) + 'px';
  tip.style.top = (above < 4 ? y + 16 : above) + 'px';
  svg.append(set(ring, {cx: point.x, cy: point.y}));
};
const again = () => { if (shown) show(...shown); };
addEventListener('scroll', again, {capture: true, passive: true});
addEventListener('resize', again);
document.addEventListener('pointerdown', e => { if (!e.target.closest('figure')) hide(); });

all(document, 'figure[data-file]').forEach(figure => {
  const svg = figure.querySelector('svg'), plain = svg.cloneNode(true), off = new Set();

  // The points of the figure. Their titles become texts of the tip, or both would be shown.
  const points = [];
  all(svg, ':scope * > title').forEach(title => {
    const mark = title.parentNode, text = title.textContent, group = mark.closest('.series');
    const series = group && group.dataset.series, major = /fill|hollow/.test(mark.classList);
    title.remove();
    if (mark.dataset.values) {
      mark.dataset.values.split('|').forEach((value, i) => {
        const {x, y} = mark.points.getItem(i);
        points.push({x, y, text: text + ': ' + value, series, major});
      });
    } else {
      const {x, y, width, height} = mark.getBBox();
      points.push({x: x + width / 2, y: y + height / 2, text, series, major});
    }
  });
  set(svg, {role: 'group', 'aria-label': svg.querySelector('title').textContent});
  svg.querySelector('title').remove();

  const point = event => {
    const m = svg.getScreenCTM();
    let best = null, least = 26;  // px
    points.forEach(p => {
      const d = Math.hypot(m.a * p.x + m.e - event.clientX, m.d * p.y + m.f - event.clientY);
      if (d < least && !off.has(p.series)) [best, least] = [p, d];
    });
    show(svg, best);
  };
  svg.addEventListener('pointermove', point);
  svg.addEventListener('pointerdown', point);
  svg.addEventListener('pointerleave', e => { if (e.pointerType === 'mouse') hide(); });

  // On a narrow screen the ends of lines, where their names are, may be out of view: the names stand
  // above the figure, too, as buttons.
  const names = make('div', figure, {class: 'names f4'}), named = new Map();
  figure.prepend(names);

  // Keys: a click or Enter hides or shows the series, arrows walk through its points.
  const moves = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1};
  all(svg, '.key').forEach(key => {
    const name = key.dataset.series;
    const own = points.filter(p => p.series === name).sort((a, b) => b.major - a.major);
    let at = 0;
    const toggle = () => {
      const hidden = !off.delete(name) && !!off.add(name);
      all(svg, '.series, .key').filter(g => g.dataset.series === name)
        .forEach(g => g.classList.toggle('off', hidden));
      for (const each of [key, named.get(name)]) each.setAttribute('aria-pressed', !hidden);
      named.get(name).classList.toggle('off', hidden);
      hide();
    };
    const colour = [key, ...key.children].flatMap(e => [...e.classList]).find(c => /^s\d$/.test(c));
    if (!named.has(name)) {
      named.set(name, make('button', names, {type: 'button', class: colour || '', 'aria-pressed': true}, name));
      named.get(name).addEventListener('click', () => toggle());
    }
    set(key, {tabindex: 0, role: 'button', 'aria-label': name, 'aria-pressed': true});
    key.addEventListener('click', toggle);
    key.addEventListener('blur', hide);
    key.addEventListener('focus', () => {
      if (key.matches(':focus-visible') && !off.has(name)) show(svg, own[at]);
    });
    key.addEventListener('keydown', e => {
      if (e.key === 'Enter' || e.key === ' ') toggle();
      else if (e.key === 'Escape') hide();
      else if (e.key in moves && own.length && !off.has(name)) {
        at = (at + moves[e.key] + own.length) % own.length;
        show(svg, own[at]);
      } else return;
      e.preventDefault();
    });
  });

  // The figure as it is shown, as a document of its own, with the margin that the page cuts off.
  const {x, width, height} = plain.viewBox.baseVal, whole = x + width;
  const drawing = style => {
    const copy = set(plain.cloneNode(true), {width: whole, viewBox: `0 0 ${whole} ${height}`});
    const hidden = g => off.has(g.dataset.series);
    all(copy, '.series').filter(hidden).forEach(g => g.remove());
    all(copy, '.key').filter(hidden).forEach(g => g.setAttribute('opacity', 0.35));
    all(copy, '[data-values]').forEach(e => e.removeAttribute('data-values'));
    const sheet = document.createElementNS(svgName, 'style');
    sheet.textContent = style;
    copy.querySelector('desc').after(
      sheet, set(document.createElementNS(svgName, 'rect'), {class: 'bg', width: whole, height}));
    return new XMLSerializer().serializeToString(copy);
  };
  const save = (blob, ending) => {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(blob);
    link.download = figure.dataset.file + ending;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const [light, darker] = all(document, 'style.figures').map(style => style.textContent);
  const bar = make('div', figure, {class: 'bar'});
  button(bar, 'SVG', 'Save the figure as SVG', () => {
    const text = drawing(`${light}@media (prefers-color-scheme:dark){${darker}}`);
    save(new Blob([text], {type: 'image/svg+xml'}), '.svg');
  });
  button(bar, 'PNG', 'Save the figure as PNG', () => {
    const image = new Image();
    image.onload = () => {
      const canvas = set(document.createElement('canvas'), {width: 2 * whole, height: 2 * height});
      canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(blob => save(blob, '.png'), 'image/png');
    };
    image.src = 'data:image/svg+xml;charset=utf-8,' +
                encodeURIComponent(drawing(light + (isDark() ? darker : '')));
  });
});
})();
)js";

// Base64 of bytes given as hex digits.
std::string Base64OfHex(const std::string& hex) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < hex.size(); i += 6) {  // six hex digits: three bytes, four digits
    std::string part = hex.substr(i, 6);
    const std::size_t bytes = part.size() / 2;
    part.resize(6, '0');
    const auto bits = static_cast<std::uint32_t>(std::stoul(part, nullptr, 16));
    for (std::size_t d = 0; d < 4; ++d) {
      text += d <= bytes ? kDigits[(bits >> (18 - 6 * d)) & 63] : '=';
    }
  }
  return text;
}

}  // namespace

std::string_view PageScript() { return kScript; }

std::string PagePolicy() {
  return "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-" +
         Base64OfHex(Sha256(kScript)) + "'";
}

}  // namespace fp4lab::study
