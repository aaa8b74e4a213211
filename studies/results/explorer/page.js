"use strict";

// Numbers: the twins of rows.py and of significance.py, which the tests compare with these.

function studentAbove(t, degrees) {  // P(T > t), whole degrees of freedom: Abramowitz and Stegun, 26.7.3-4
  const theta = Math.atan(t / Math.sqrt(degrees)), cos2 = Math.cos(theta) ** 2, odd = degrees % 2 === 1;
  let term = odd ? (degrees === 1 ? 0 : Math.cos(theta)) : 1, total = term;
  for (let k = odd ? 3 : 2; k < degrees - 1; k += 2) {
    term *= (k - 1) / k * cos2;
    total += term;
  }
  return (1 - (odd ? 2 / Math.PI * (theta + Math.sin(theta) * total) : Math.sin(theta) * total)) / 2;
}

function studentQuantile(p, degrees) {
  let low = 0, high = 1;
  while (studentAbove(high, degrees) > 1 - p) high *= 2;
  for (let i = 0; i < 200; ++i) {
    const middle = (low + high) / 2;
    if (studentAbove(middle, degrees) > 1 - p) low = middle; else high = middle;
  }
  return high;
}

// {mean, half (null: the noise is not known), seeds} of a's losses less b's, over the seeds of both; null of one recipe.
function difference(size, a, b, level = 0.05) {
  const seeds = Object.keys(a.losses).filter(s => s in b.losses);
  if (a === b || !seeds.length) return null;
  const mean = seeds.reduce((sum, s) => sum + (a.losses[s] - b.losses[s]), 0) / seeds.length;
  const pools = [a.pool, b.pool];
  const ofOne = size.half[pools.join(", ")] ?? size.half[pools.reverse().join(", ")];
  if (!a.pool || !b.pool || ofOne === undefined) return {mean, half: null, seeds: seeds.length};
  const degrees = Math.min(...pools.map(p => size.degrees[p]));
  const wider = level === 0.05 ? 1 : studentQuantile(1 - level / 2, degrees) / studentQuantile(0.975, degrees);
  return {mean, half: ofOne * wider / Math.sqrt(seeds.length), seeds: seeds.length};
}

function verdict(d) {
  if (!d) return "baseline";
  if (d.half === null) return "noise not known";
  return d.mean + d.half < 0 ? "lower loss" : d.mean - d.half > 0 ? "higher loss" : "not told apart";
}

const signed = x => (x < 0 ? "-" : "+") + Math.abs(x).toFixed(4);
const differenceText = d => d ? signed(d.mean) + (d.half === null ? "" :
  ` [${signed(d.mean - d.half)}, ${signed(d.mean + d.half)}]`) : "";

if (typeof document !== "undefined") {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = id => document.getElementById(id);
  const FIRST = {size: Object.keys(data.sizes)[0], baseline: "te_nvfp4", chip: "", forward: "", products: "four", find: "",
                 features: "", together: "", sort: "difference"};
  let state = {...FIRST};
  const opened = new Set();

  const make = (name, attributes = {}, ...inside) => {
    const svg = ["svg", "line", "path", "circle"].includes(name);
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...inside);
    return element;
  };
  const CLASS = {"lower loss": "lower", "higher loss": "higher", "not told apart": "same"};

  function mark(text) {
    const svg = make("svg", {viewBox: "0 0 12 12", "aria-hidden": "true"});
    if (CLASS[text] === "same") svg.append(make("circle", {cx: 6, cy: 6, r: 4}));
    else if (CLASS[text]) svg.append(make("path", {d: CLASS[text] === "lower" ? "M1 3H11L6 10Z" : "M1 9H11L6 2Z"}));
    return svg;
  }

  // The interval on a scale that all rows share; an end that lies outside of it stops at the edge.
  const WIDE = 140;  // as the style says
  function plot(d, text, low, high) {
    const at = x => WIDE * (Math.min(Math.max(x, low), high) - low) / (high - low);
    const svg = make("svg", {viewBox: `0 0 ${WIDE} 20`, class: CLASS[text] || ""});
    svg.append(make("line", {class: "zero", x1: at(0), x2: at(0), y1: 0, y2: 20}));
    if (!d) return svg;
    if (d.half !== null) svg.append(make("line", {x1: at(d.mean - d.half), x2: at(d.mean + d.half), y1: 10, y2: 10}));
    const x = at(d.mean);
    if (d.mean < low || d.mean > high) {  // beyond the scale, which recipes without an interval do not widen
      svg.append(make("path", {d: d.mean > high ? `M${x - 7} 5L${x} 10L${x - 7} 15Z` : `M${x + 7} 5L${x} 10L${x + 7} 15Z`}));
    } else if (CLASS[text] === "lower") svg.append(make("path", {d: `M${x - 5} 6H${x + 5}L${x} 15Z`}));
    else if (CLASS[text] === "higher") svg.append(make("path", {d: `M${x - 5} 14H${x + 5}L${x} 5Z`}));
    else svg.append(make("circle", {cx: x, cy: 10, r: 4}));
    return svg;
  }

  function shownRows(size) {
    const wanted = state.features ? state.features.split(".").map(Number) : [];
    const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
    return size.rows.filter(row =>
      (state.chip === "" || (state.chip === "2" ? row.chip === 2 : row.chip <= Number(state.chip))) &&
      (state.forward === "" || row.forward === Number(state.forward)) &&
      (state.products === "" || row.four === (state.products === "four")) &&
      wanted.every(f => row.features.includes(f)) &&
      words.every(w => `${row.recipe} ${row.title} ${data.plans[row.plan]} ${row.kinds.join(" ")}`.toLowerCase().includes(w)));
  }

  const ORDER = {"lower loss": 0, "not told apart": 1, "baseline": 2, "higher loss": 3, "noise not known": 4};
  const KEYS = {
    recipe: r => r.row.recipe, difference: r => r.d ? r.d.mean : 0, verdict: r => ORDER[r.text],
    ratio: r => r.row.ratio ? r.row.ratio[0] : r.row.recipe === "bf16" ? 1 : null, time: r => r.row.time,
    until: r => r.row.ratio ? r.row.ratio[0] * r.row.time : null, plan: r => r.row.plan, chip: r => r.row.chip,
    seeds: r => Object.keys(r.row.losses).length};

  function sorted(rows) {
    const down = state.sort.startsWith("-"), key = KEYS[state.sort.replace("-", "")] || KEYS.difference;
    const compare = (a, b) => a < b ? -1 : a > b ? 1 : 0;
    return rows.sort((one, two) => {
      const a = key(one), b = key(two);
      if ((a === null) !== (b === null)) return a === null ? 1 : -1;  // what is not there comes last
      return (down ? -1 : 1) * compare(a, b) || compare(KEYS.difference(one), KEYS.difference(two));
    });
  }

  const shownColumns = () =>  // a narrow window hides some
    [...document.querySelectorAll("thead th")].filter(th => getComputedStyle(th).display !== "none").length;

  function detail(row) {
    const list = make("dl"), add = (name, text) => text && list.append(make("dt", {}, name), make("dd", {}, text));
    add("what it is", row.title);
    add("what multiplies", `${data.plans[row.plan]}: ` + ["fprop", "dgrad", "wgrad"].map((g, i) =>
      `${g} ${row.kinds[i].join(" x ")}`).join(", "));
    add("shares of products", `${["4", "8", "16"].map((b, i) => `${Math.round(100 * row.shares[i])} % of ${b} bits`).join(", ")}`);
    add("tensor cores", data.chips[row.chip]);
    add("it has", row.features.map(f => data.features[f]).join(", "));
    add("tokens / BF16's", ratioText(row));
    add("time of products, to equal loss", `${row.time.toFixed(2)}, ${row.ratio ? (row.ratio[0] * row.time).toFixed(2) : "-"}`);
    add("loss of each seed", Object.entries(row.losses).map(([s, l]) => `${s}: ${l.toFixed(4)}`).join(", "));
    const use = make("button", {type: "button"}, "Use as baseline");
    use.addEventListener("click", () => change({baseline: row.recipe}));
    return make("tr", {class: "detail"}, make("td", {colspan: shownColumns()}, list, use));
  }

  const two = x => x.toFixed(2);
  const ratioText = row => row.recipe === "bf16" ? "" : !row.ratio ? "out of reach" :
    two(row.ratio[0]) + (row.ratio.length > 1 ? ` [${two(row.ratio[1])}, ${two(row.ratio[2])}]` : "");

  function numberAndInterval(text) {  // an interval is never broken
    const [number, interval] = text.split(" [");
    return interval ? [number + " ", make("span", {class: "interval"}, "[" + interval)] : [text];
  }

  function rowElements({row, d, text}, low, high) {
    const name = make("button", {type: "button", "aria-expanded": opened.has(row.recipe)}, row.recipe);
    name.addEventListener("click", () => {
      opened.has(row.recipe) ? opened.delete(row.recipe) : opened.add(row.recipe);
      draw();
    });
    const tr = make("tr", {class: d ? "" : "baseline"},
      make("th", {scope: "row"}, name, make("small", {}, row.title)),
      make("td", {class: "number"}, ...numberAndInterval(differenceText(d))),
      make("td", {class: "plot", "aria-hidden": "true"}, plot(d, text, low, high)),
      make("td", {class: `verdict ${CLASS[text] || ""}`}, mark(text), " " + text),
      make("td", {class: "number wide"}, ...numberAndInterval(ratioText(row))),
      make("td", {class: "number wide"}, two(row.time)),
      make("td", {class: "number wide"}, row.ratio ? two(row.ratio[0] * row.time) : ""),
      make("td", {class: "wide plan"}, data.plans[row.plan]),
      make("td", {class: "wide"}, data.chips[row.chip]),
      make("td", {class: "number wide seeds"}, String(Object.keys(row.losses).length)));
    return opened.has(row.recipe) ? [tr, detail(row)] : [tr];
  }

  function sentence(rows, size, base, level) {
    const count = text => rows.filter(r => r.text === text).length;
    const best = rows.filter(r => r.d && r.d.half !== null).sort((a, b) => a.d.mean - b.d.mean)[0];
    const head = best ? `${best.row.recipe} - ${base.recipe}: ${differenceText(best.d)}, ${best.text}. ` : "";
    return head + `Of the ${rows.filter(r => r.d).length} others shown, ${count("lower loss")} have a lower loss than ` +
      `${base.recipe}, ${count("higher loss")} a higher one, and ${count("not told apart")} are not told apart` +
      (level === 0.05 ? "." : ", all intervals holding together.");
  }

  function draw() {
    const size = data.sizes[state.size];
    const base = size.rows.find(r => r.recipe === state.baseline) || size.rows.find(r => r.recipe === FIRST.baseline);
    const own = shownRows(size), others = own.filter(r => r !== base).length;
    const level = state.together ? 0.05 / Math.max(others, 1) : 0.05;
    const rows = sorted(own.map(row => {
      const d = difference(size, row, base, level);
      return {row, d, text: verdict(d)};
    }));
    const ends = rows.filter(r => r.d && r.d.half !== null).flatMap(r => [r.d.mean - r.d.half, r.d.mean + r.d.half]);
    const low = Math.min(0, ...ends), high = Math.max(0, ...ends), margin = (high - low || 1) * 0.04;
    document.querySelector("tbody").replaceChildren(
      ...rows.flatMap(r => rowElements(r, low - margin, high + margin)));
    $("verdict").textContent = sentence(rows, size, base, level);
    $("shown").textContent = `${rows.length} of ${size.rows.length} recipes, ${state.size} block parameters`;
    for (const th of document.querySelectorAll("th[data-sort]")) {
      th.removeAttribute("aria-sort");
      if (state.sort.replace("-", "") === th.dataset.sort) {
        th.setAttribute("aria-sort", state.sort.startsWith("-") ? "descending" : "ascending");
      }
    }
    show();
    const changed = Object.entries(state).filter(([key, value]) => value !== FIRST[key]);
    history.replaceState(null, "", changed.length ? "#" + new URLSearchParams(changed) : location.pathname + location.search);
  }

  function fill(select, rows, first) {
    select.replaceChildren(...first, ...rows.map(([value, text]) => make("option", {value}, text)));
  }

  function show() {  // the state in the controls
    const names = data.sizes[state.size].rows.map(r => r.recipe).sort();
    if (!names.includes(state.baseline)) state.baseline = FIRST.baseline;
    if ($("baseline").dataset.of !== state.size) {
      fill($("baseline"), names.map(n => [n, n]), []);
      $("baseline").dataset.of = state.size;
    }
    for (const key of ["size", "baseline", "chip", "forward", "products"]) $(key).value = state[key];
    if ($("find") !== document.activeElement) $("find").value = state.find;
    $("together").checked = state.together !== "";
    const wanted = state.features.split(".");
    for (const box of document.querySelectorAll("[data-feature]")) box.checked = wanted.includes(box.dataset.feature);
  }

  function change(members) {
    Object.assign(state, members);
    draw();
  }

  function fromHash() {
    const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    state = {...FIRST, ...Object.fromEntries(Object.entries(given).filter(([key]) => key in FIRST))};
    if (!(state.size in data.sizes)) state.size = FIRST.size;
    draw();
  }

  // The league's page stands beside this one in the repository, and elsewhere on the site.
  $("league").href = location.pathname.includes("/files/") ? "../../../../findings/league.html" : "README.md";
  fill($("forward"), data.forwards.map((text, i) => [i, text]), [make("option", {value: ""}, "any")]);
  $("controls").hidden = false;
  for (const key of ["size", "baseline", "chip", "forward", "products"]) {
    $(key).addEventListener("change", () => change({[key]: $(key).value}));
  }
  $("find").addEventListener("input", () => change({find: $("find").value}));
  $("together").addEventListener("change", () => change({together: $("together").checked ? "1" : ""}));
  for (const box of document.querySelectorAll("[data-feature]")) {
    box.addEventListener("change", () => change({features:
      [...document.querySelectorAll("[data-feature]:checked")].map(b => b.dataset.feature).join(".")}));
  }
  $("controls").addEventListener("submit", event => event.preventDefault());
  $("controls").addEventListener("reset", event => {
    event.preventDefault();
    change({...FIRST});
  });
  for (const th of document.querySelectorAll("th[data-sort]")) {
    th.querySelector("button").addEventListener("click", () =>
      change({sort: state.sort === th.dataset.sort ? "-" + th.dataset.sort : th.dataset.sort}));
  }
  window.addEventListener("hashchange", fromHash);
  window.addEventListener("resize", () => {
    for (const cell of document.querySelectorAll("tr.detail td")) cell.setAttribute("colspan", shownColumns());
  });
  fromHash();
}
