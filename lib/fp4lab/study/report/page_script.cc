#include "fp4lab/study/report/page_script.h"

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/hash.h"

namespace fp4lab::study {
namespace {

constexpr std::string_view kScript = R"js('use strict';
(() => {
const all = (root, selector) => [...root.querySelectorAll(selector)];
const make = (tag, cls, parent, text) => {
  const element = document.createElement(tag);
  element.className = cls;
  element.textContent = text || '';
  parent.append(element);
  return element;
};
const button = (parent, text, says, act) => {
  const b = make('button', '', parent, text);
  b.type = 'button';
  b.setAttribute('aria-label', says);
  b.addEventListener('click', () => act(b));
};
all(document, '.needs-script').forEach(e => { e.hidden = false; });

// Light and dark: the dark styles apply where the reader's system asks for them, until the switch
// says otherwise. Paper is always light.
const dark = all(document, 'style.dark');
const isDark = () => matchMedia(dark[0].media).matches;
button(make('div', 'bar', document.body, ''), '\u25D0', 'Light or dark', () => {
  const media = isDark() ? 'not all' : 'screen';
  dark.forEach(style => { style.media = media; });
});

// The tip says what the ringed point of a figure stands for.
const tip = make('div', 'tip', document.body);
tip.setAttribute('role', 'status');
tip.hidden = true;
const ring = document.createElementNS(document.querySelector('svg').namespaceURI, 'circle');
ring.setAttribute('r', 8);
ring.setAttribute('class', 'ring');
let shown = null;
const hide = () => { shown = null; tip.hidden = true; ring.remove(); };
const show = (svg, point) => {
  if (!point) return hide();
  shown = [svg, point];
  const m = svg.getScreenCTM(), x = m.a * point.x + m.e, y = m.d * point.y + m.f;
  const room = document.documentElement.clientWidth;
  tip.textContent = point.text;
  tip.hidden = false;
  tip.style.left = tip.style.top = 0;  // its size must not depend on where it was
  const left = Math.min(x - tip.offsetWidth / 2, room - tip.offsetWidth - 4);
  const above = y - tip.offsetHeight - 14;
  tip.style.left = Math.max(4, left) + 'px';
  tip.style.top = (above < 4 ? y + 16 : above) + 'px';
  ring.setAttribute('cx', point.x);
  ring.setAttribute('cy', point.y);
  svg.append(ring);
};
document.addEventListener('pointerdown', e => { if (!e.target.closest('figure')) hide(); });
['scroll', 'resize'].forEach(event => addEventListener(event, () => { if (shown) show(...shown); },
                                                       {capture: true, passive: true}));

const save = (blob, name) => {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

all(document, 'figure[data-file]').forEach(figure => {
  const svg = figure.querySelector('svg'), plain = svg.cloneNode(true), off = new Set();

  // The points of the figure. Their titles become texts of the tip, or both would be shown.
  const points = [];
  all(svg, ':scope * > title').forEach(title => {
    const mark = title.parentNode, text = title.textContent, group = mark.closest('.series');
    const add = (x, y, text) => points.push({x, y, text, series: group && group.dataset.series,
                                             major: /fill|hollow/.test(mark.classList)});
    title.remove();
    if (mark.dataset.values) {
      mark.dataset.values.split('|').forEach((value, i) => {
        const at = mark.points.getItem(i);
        add(at.x, at.y, text + ': ' + value);
      });
    } else {
      const box = mark.getBBox();
      add(box.x + box.width / 2, box.y + box.height / 2, text);
    }
  });
  svg.setAttribute('role', 'group');
  svg.setAttribute('aria-label', svg.querySelector('title').textContent);
  svg.querySelector('title').remove();

  const point = event => {
    const m = svg.getScreenCTM();
    let best = null, least = 26;  // px
    points.forEach(p => {
      const d = Math.hypot(m.a * p.x + m.e - event.clientX, m.d * p.y + m.f - event.clientY);
      if (d < least && !off.has(p.series)) { best = p; least = d; }
    });
    show(svg, best);
  };
  svg.addEventListener('pointermove', point);
  svg.addEventListener('pointerdown', point);
  svg.addEventListener('pointerleave', e => { if (e.pointerType === 'mouse') hide(); });

  // Keys: a click or Enter hides or shows the series, arrows walk through its points.
  all(svg, '.key').forEach(key => {
    const name = key.dataset.series, own = points.filter(p => p.series === name);
    own.sort((a, b) => b.major - a.major);
    let at = 0;
    const toggle = () => {
      const hidden = !off.delete(name) && !!off.add(name);
      all(svg, '.series, .key').forEach(g => {
        if (g.dataset.series === name) g.classList.toggle('off', hidden);
      });
      key.setAttribute('aria-pressed', !hidden);
      hide();
    };
    const moves = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1};
    key.setAttribute('tabindex', 0);
    key.setAttribute('role', 'button');
    key.setAttribute('aria-label', name);
    key.setAttribute('aria-pressed', true);
    key.addEventListener('click', toggle);
    key.addEventListener('focus', () => {
      if (key.matches(':focus-visible') && !off.has(name)) show(svg, own[at]);
    });
    key.addEventListener('blur', hide);
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

  // The figure as it is shown, with the margin that the page cuts off.
  const drawing = style => {
    const copy = plain.cloneNode(true), box = plain.viewBox.baseVal, width = box.x + box.width;
    all(copy, '.series').forEach(g => { if (off.has(g.dataset.series)) g.remove(); });
    all(copy, '.key').forEach(g => { if (off.has(g.dataset.series)) g.setAttribute('opacity', 0.35); });
    all(copy, '[data-values]').forEach(e => e.removeAttribute('data-values'));
    copy.setAttribute('width', width);
    copy.setAttribute('viewBox', `0 0 ${width} ${box.height}`);
    const sheet = document.createElementNS(copy.namespaceURI, 'style');
    const paper = document.createElementNS(copy.namespaceURI, 'rect');
    sheet.textContent = style;
    Object.entries({class: 'bg', width, height: box.height}).forEach(e => paper.setAttribute(...e));
    copy.querySelector('desc').after(sheet, paper);
    return {text: new XMLSerializer().serializeToString(copy), width, height: box.height};
  };
  const [light, darker] = all(document, 'style.figures').map(style => style.textContent);
  const bar = make('div', 'bar', figure), file = figure.dataset.file;
  button(bar, 'SVG', 'Save the figure as SVG', () => {
    const {text} = drawing(light + '@media (prefers-color-scheme:dark){' + darker + '}');
    save(new Blob([text], {type: 'image/svg+xml'}), file + '.svg');
  });
  button(bar, 'PNG', 'Save the figure as PNG', () => {
    const {text, width, height} = drawing(light + (isDark() ? darker : ''));
    const image = new Image(), canvas = document.createElement('canvas');
    canvas.width = 2 * width;
    canvas.height = 2 * height;
    image.onload = () => {
      canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(blob => save(blob, file + '.png'), 'image/png');
    };
    image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(text);
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
