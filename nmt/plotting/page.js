"use strict";
for (const section of document.querySelectorAll("section")) {
  const words = side => Array.from(section.querySelectorAll(`.${side} .word`));
  const lists = {source: words("source"), target: words("target")};
  const cells = Array.from(section.querySelectorAll("tbody tr"), row => Array.from(row.querySelectorAll("td")));
  // Only cells with a weight have a style: [source word, target word, weight].
  const weighted = Array.from(section.querySelectorAll("td[style]"), cell =>
    [cell.cellIndex - 1, cell.parentElement.sectionRowIndex, Number(cell.style.getPropertyValue("--w"))]);
  const pair = section.querySelector(".pair"), svg = pair.querySelector("svg");
  const said = section.querySelector(".said");
  const other = {source: "target", target: "source"};
  const weight = cell => Number(cell.style.getPropertyValue("--w")) || 0;
  const sentences = Array.from(section.querySelectorAll(".sentence"));
  // Of a document: a sentence weighs what its words do together, a word's shade is its weight beside the largest.
  const shade = weights => {
    const largest = Math.max(...weights, 1e-9);
    lists.source.forEach((word, position) => word.style.setProperty("--w", weights[position] / largest));
    for (const sentence of sentences) {
      const own = Array.from(sentence.querySelectorAll(".word"), word => weights[lists.source.indexOf(word)]);
      const sum = own.reduce((total, each) => total + each, 0);
      sentence.style.setProperty("--s", sum);
      sentence.querySelector(".share").textContent = Math.round(100 * sum);
    }
  };
  const whole = lists.source.map((_, position) =>
    cells.reduce((total, row) => total + weight(row[position]), 0) / Math.max(1, cells.length));
  let pinned = null;

  const clear = () => {
    for (const element of section.querySelectorAll(".chosen")) element.classList.remove("chosen", "column");
    svg.classList.remove("pointed");
    for (const word of [...lists.source, ...lists.target]) {
      word.classList.remove("gold");
      word.style.removeProperty("--w");
      delete word.dataset.percent;
    }
    said.textContent = "";
    if (sentences.length) shade(whole);
  };
  const show = (side, index) => {
    clear();
    lists[side][index].classList.add("chosen");
    svg.classList.add("pointed");
    for (const curve of svg.querySelectorAll(`[data-${side}="${index}"]`)) curve.classList.add("chosen");
    const line = side === "target" ? cells[index] : cells.map(row => row[index]);
    for (const cell of line) {
      cell.classList.add("chosen");
      cell.classList.toggle("column", side === "source");
    }
    const weights = line.map(weight);
    lists[other[side]].forEach((word, position) => {
      word.style.setProperty("--w", weights[position]);
      word.classList.toggle("gold", line[position].classList.contains("gold"));
      if (line[position].textContent) word.dataset.percent = line[position].textContent;
    });
    if (sentences.length && side === "target") shade(weights);
    const largest = weights.map((_, position) => position).filter(position => line[position].textContent)
      .sort((a, b) => weights[b] - weights[a]).slice(0, 3)
      .map(position => `${lists[other[side]][position].textContent} ${line[position].textContent}`);
    // Isolates keep words of one direction from reordering a sentence of another.
    said.textContent = `\u2068${lists[side][index].textContent}\u2069 `
      + (side === "target" ? "attends to: " : "is attended by: ")
      + (largest.map(text => `\u2068${text}\u2069`).join(", ") || "nothing");
  };
  const draw = () => {
    const frame = pair.getBoundingClientRect();
    // Curves would cross the words of a list that takes several lines: there only those of the chosen word are seen.
    const lines = words => new Set(words.map(word => word.offsetTop)).size;
    svg.classList.toggle("wrapped", lines(lists.source) > 1 || lines(lists.target) > 1);
    svg.replaceChildren(...weighted.filter(([, , weight]) => weight >= 0.05).map(([source, target, weight]) => {
      const [above, below] = [lists.source[source], lists.target[target]].map(word => word.getBoundingClientRect());
      const [x1, x2] = [above, below].map(box => box.left + box.width / 2 - frame.left);
      const [y1, y2] = [above.bottom - frame.top, below.top - frame.top], middle = (y1 + y2) / 2;
      const curve = document.createElementNS("http://www.w3.org/2000/svg", "path");
      curve.setAttribute("d", `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`);
      curve.setAttribute("stroke-width", 0.5 + 5 * weight);
      curve.setAttribute("opacity", 0.2 + 0.6 * weight);
      Object.assign(curve.dataset, {source, target});
      return curve;
    }));
    if (pinned) show(...pinned);
  };
  new ResizeObserver(draw).observe(pair);
  const rest = () => pinned ? show(...pinned) : clear();
  const pin = (side, index) => {
    const same = pinned && pinned[0] === side && pinned[1] === index;
    pinned = same ? null : [side, index];
    for (const name of ["source", "target"]) lists[name].forEach((word, position) =>
      word.setAttribute("aria-pressed", String(!same && name === side && position === index)));
    rest();
  };

  clear();
  for (const side of ["source", "target"]) lists[side].forEach((word, index) => {
    // One stop of the Tab key for each list; the arrow keys go from word to word.
    word.tabIndex = index ? -1 : 0;
    word.addEventListener("pointerenter", () => show(side, index));
    word.addEventListener("pointerleave", rest);
    word.addEventListener("focus", () => show(side, index));
    word.addEventListener("blur", rest);
    word.addEventListener("click", () => pin(side, index));
    word.addEventListener("keydown", event => {
      const rightwards = getComputedStyle(word).direction === "rtl" ? -1 : 1;
      const last = lists[side].length - 1;
      const next = {ArrowRight: index + rightwards, ArrowLeft: index - rightwards, Home: 0, End: last}[event.key];
      if (event.key === "Escape") { pinned = [side, index]; pin(side, index); }
      if (next === undefined || next < 0 || next > last) return;
      event.preventDefault();
      word.tabIndex = -1;
      lists[side][next].tabIndex = 0;
      lists[side][next].focus();
    });
  });
}
for (const series of document.querySelectorAll(".series")) {
  const label = series.querySelector("label"), slider = series.querySelector("input");
  const sections = Array.from(series.querySelectorAll("section"));
  const move = () => {
    sections.forEach((section, index) => { section.hidden = index !== Number(slider.value); });
    const title = sections[slider.value].querySelector("h2").textContent;
    series.querySelector("output").textContent = title;
    slider.setAttribute("aria-valuetext", title);
  };
  label.hidden = false;
  slider.addEventListener("input", move);
  move();
}
