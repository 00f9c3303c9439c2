// A sentence pair with its attention: its words with curves between them, and a heatmap. Every page draws with this.
// A sentence: {title, note, source: [label, …], target: [label, …], weights: [[share, …], …] a row per target label,
// gold: [[source, target], …], verbs: [of a target word, of a source word], parts: [number of source labels of each sentence of a document, …]}.

const SVG = "http://www.w3.org/2000/svg";
const LEAST_CURVE = 0.05; // share of the attention
const OTHER = {source: "target", target: "source"};
const percent = share => Math.round(100 * share);
const isolate = text => `\u2068${text}\u2069`; // words of one direction must not reorder a line of another
const total = numbers => numbers.reduce((sum, each) => sum + each, 0);

export function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Draws a sentence into a section. langs: {source, target}, as "vi". onWord(number) is called for a click on a target word.
// Returns the section, with update(sentence) to change what it shows.
export function drawSentence(sentence, {langs = {}, onWord} = {}) {
  const title = make("h2", {dir: "auto"});
  const note = make("p", {className: "note", dir: "auto"});
  const said = make("p", {className: "said", ariaLive: "polite"});
  const svg = document.createElementNS(SVG, "svg");
  svg.ariaHidden = "true";
  const makeList = side =>
    make("div", {className: `words ${side}`, role: "group", ariaLabel: side, dir: "auto", lang: langs[side] ?? ""});
  const lists = {source: makeList("source"), target: makeList("target")};
  const pair = make("div", {className: "pair"}, svg, lists.source, lists.target);
  const table = make("table");
  const region = {className: "scroll", role: "region", ariaLabel: "attention weights in hundredths", tabIndex: 0};
  const scroll = make("div", region, table);
  const section = make("section", {}, title, note, pair, said, scroll);
  let now = sentence;
  let words = {source: [], target: []};
  let links = new Set(); // "source,target"
  let pinned = null; // [side, number]
  const sharesOf = (side, number) => (side === "target" ? now.weights[number] : now.weights.map(row => row[number]));

  const clear = () => {
    for (const each of section.querySelectorAll(".chosen")) each.classList.remove("chosen", "column");
    svg.classList.remove("pointed");
    for (const word of [...words.source, ...words.target]) {
      word.classList.remove("gold");
      word.style.removeProperty("--w");
      delete word.dataset.percent;
    }
    said.textContent = "";
    if (now.parts) shadeParts(now.source.map((_, at) => total(sharesOf("source", at)) / now.target.length));
  };
  // Of a document, each sentence has the shade of the sum of its words' shares.
  const shadeParts = shares => {
    let begin = 0;
    for (const [at, part] of lists.source.querySelectorAll(".part").entries()) {
      const sum = total(shares.slice(begin, begin + now.parts[at]));
      begin += now.parts[at];
      part.style.setProperty("--s", sum);
      part.dataset.percent = percent(sum);
    }
  };
  const show = (side, number) => {
    clear();
    const shares = sharesOf(side, number);
    words[side][number].classList.add("chosen");
    svg.classList.add("pointed");
    for (const curve of svg.querySelectorAll(`[data-${side}="${number}"]`)) curve.classList.add("chosen");
    for (const row of side === "target" ? [table.tBodies[0].rows[number]] : table.tBodies[0].rows) {
      const cells = side === "target" ? [...row.cells].slice(1) : [row.cells[number + 1]];
      for (const cell of cells) cell.classList.add("chosen", ...(side === "source" ? ["column"] : []));
    }
    for (const [place, share] of shares.entries()) {
      const word = words[OTHER[side]][place];
      word.style.setProperty("--w", share);
      word.classList.toggle("gold", links.has(side === "target" ? `${place},${number}` : `${number},${place}`));
      if (percent(share)) word.dataset.percent = percent(share);
    }
    if (side === "target") shadeParts(shares);
    const ranked = [...shares.entries()].filter(([, share]) => percent(share)).sort((one, other) => other[1] - one[1]);
    const most = ranked.slice(0, 3).map(([place, share]) => isolate(`${now[OTHER[side]][place]} ${percent(share)}`));
    const [reads, isRead] = now.verbs ?? ["attends to", "is attended by"];
    const verb = side === "target" ? reads : isRead;
    said.textContent = `${isolate(now[side][number])} ${verb}: ${most.join(", ") || "nothing"}`;
  };
  const rest = () => (pinned && words[pinned[0]][pinned[1]] ? show(...pinned) : clear());
  const pin = (side, number) => {
    pinned = pinned?.join() === [side, number].join() ? null : [side, number];
    for (const name of ["source", "target"]) {
      for (const [at, word] of words[name].entries()) word.ariaPressed = String(pinned?.join() === [name, at].join());
    }
    rest();
    if (side === "target" && pinned) onWord?.(number);
  };
  // One stop of the Tab key for each list; the arrow keys go from word to word.
  const go = (event, side, number) => {
    if (event.key === "Escape" && pinned) pin(...pinned);
    const forward = getComputedStyle(event.target).direction === "rtl" ? -1 : 1;
    const last = words[side].length - 1;
    const places = {ArrowRight: number + forward, ArrowLeft: number - forward, Home: 0, End: last};
    const next = words[side][places[event.key]];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
  const makeWord = (side, label, number) => {
    const properties = {type: "button", className: "word", ariaPressed: "false", tabIndex: number ? -1 : 0};
    const look = () => show(side, number);
    const looks = {onpointerenter: look, onfocus: look, onpointerleave: rest, onblur: rest};
    const acts = {onclick: () => pin(side, number), onkeydown: event => go(event, side, number)};
    return make("button", {...properties, ...looks, ...acts}, label);
  };
  const drawCurves = () => {
    const frame = pair.getBoundingClientRect();
    const boxes = side => words[side].map(word => word.getBoundingClientRect());
    const [above, below] = [boxes("source"), boxes("target")];
    const middleOf = box => box.left + box.width / 2 - frame.left;
    svg.replaceChildren();
    for (const [target, row] of now.weights.entries()) {
      for (const [source, share] of row.entries()) {
        if (share < LEAST_CURVE) continue;
        const [x1, x2] = [middleOf(above[source]), middleOf(below[target])];
        const [y1, y2] = [above[source].bottom - frame.top, below[target].top - frame.top];
        const curve = document.createElementNS(SVG, "path");
        curve.setAttribute("d", `M${x1} ${y1}C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`);
        curve.setAttribute("stroke-width", 0.5 + 5 * share);
        curve.setAttribute("opacity", 0.2 + 0.6 * share);
        Object.assign(curve.dataset, {source, target});
        svg.append(curve);
      }
    }
    rest();
  };
  const update = next => {
    now = next;
    links = new Set((now.gold ?? []).map(link => link.join()));
    Object.assign(title, {textContent: now.title ?? "", hidden: !now.title});
    Object.assign(note, {textContent: now.note ?? "", hidden: !now.note});
    const makeWords = side => now[side].map((label, at) => makeWord(side, label, at));
    words = {source: makeWords("source"), target: makeWords("target")};
    lists.target.replaceChildren(...words.target);
    const left = [...words.source];
    const takePart = count => make("div", {className: "part"}, ...left.splice(0, count));
    lists.source.replaceChildren(...(now.parts?.map(takePart) ?? left));
    scroll.hidden = !now.weights.flat().some(Boolean); // a model without attention
    table.replaceChildren(...tableParts(now, links, langs));
    drawCurves();
  };
  new ResizeObserver(drawCurves).observe(pair);
  update(sentence);
  return Object.assign(section, {update});
}

// The head and the body of the heatmap.
function tableParts({source, target, weights}, links, langs) {
  const heads = source.map(label =>
    make("th", {scope: "col", lang: langs.source ?? ""}, make("span", {dir: "auto"}, label)),
  );
  const makeCell = (share, from, to) => {
    const className = links.has(`${from},${to}`) ? "gold" : "";
    const cell = make("td", {className}, percent(share) ? String(percent(share)) : "");
    if (share) cell.style.setProperty("--w", share);
    return cell;
  };
  const makeRow = (label, to) => {
    const head = make("th", {scope: "row", dir: "auto", lang: langs.target ?? ""}, label);
    return make("tr", {}, head, ...weights[to].map((share, from) => makeCell(share, from, to)));
  };
  return [make("thead", {}, make("tr", {}, make("td"), ...heads)), make("tbody", {}, ...target.map(makeRow))];
}

// Draws groups of sentences: beside each other, or with `isSeries` one at a time with a slider.
export function drawGroup({title, sentences, isSeries}, options) {
  const head = make("h2", {dir: "auto"}, title);
  if (!isSeries) {
    const members = sentences.map(each => drawSentence(each, options));
    return make("div", {className: "group"}, head, make("div", {className: "members"}, ...members));
  }
  const last = sentences.length - 1;
  const slider = make("input", {type: "range", min: 0, max: last, value: last});
  const output = make("output");
  const section = drawSentence(sentences[last], options);
  const move = () => {
    const sentence = sentences[slider.value];
    output.textContent = slider.ariaValueText = sentence.title;
    section.update({...sentence, title: ""});
  };
  slider.addEventListener("input", move);
  move();
  return make("div", {className: "group"}, head, make("label", {}, "validation ", slider, output), section);
}
