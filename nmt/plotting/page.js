"use strict";
for (const section of document.querySelectorAll("section")) {
  const words = side => Array.from(section.querySelectorAll(`.${side} .word`));
  const lists = {source: words("source"), target: words("target")};
  const cells = Array.from(section.querySelectorAll("tbody tr"), row => Array.from(row.querySelectorAll("td")));
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
    for (const element of section.querySelectorAll(".word, td")) element.classList.remove("chosen", "column");
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
