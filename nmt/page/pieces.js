// SentencePiece: text to pieces and back, for unigram and BPE models, as the C++ library does it.
// A model is {type, pieces: [[text, score, kind], …], charsmap, addDummyPrefix, removeExtraWhitespaces, lowercase},
// written by `export.py format=web`. Offsets count code points of the text.

const SPACE = "\u2581";
const UNKNOWN = " \u2047 ";
const [NORMAL, UNK, CONTROL] = [1, 2, 3]; // kinds of pieces
const UNKNOWN_PENALTY = 10;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

export class Pieces {
  constructor(model) {
    const unk = model.pieces.findIndex(([, , kind]) => kind === UNK);
    Object.assign(this, model, {unk, ids: new Map(), longest: 1, lowest: Infinity});
    this.findReplacement = readCharsmap(model.charsmap);
    for (const [id, [text, score, kind]] of this.pieces.entries()) {
      if (kind !== NORMAL) continue;
      this.ids.set(text, id);
      this.longest = Math.max(this.longest, Array.from(text).length);
      this.lowest = Math.min(this.lowest, score);
    }
  }

  // {text, ids, labels, offsets: [[begin, end], …], unknown: characters without a piece} of a line, without specials.
  encode(line) {
    const text = this.lowercase ? line.toLowerCase() : line;
    const {points, origins} = this.normalize(text);
    const found = {text, ids: [], labels: [], offsets: [], unknown: []};
    for (const [begin, end] of this.type === "bpe" ? this.merge(points) : this.best(points)) {
      const label = points.slice(begin, end).join("");
      const id = this.ids.get(label) ?? this.unk;
      if (id === this.unk) found.unknown.push(...label.replaceAll(SPACE, ""));
      if (id === this.unk && found.ids.at(-1) === id) {
        found.labels.push(found.labels.pop() + label);
        found.offsets.at(-1)[1] = origins[end];
      } else {
        found.ids.push(id);
        found.labels.push(label);
        found.offsets.push([origins[begin], origins[end]]);
      }
    }
    return found;
  }

  // {text, labels, offsets: [[begin, end], …]} of pieces.
  decode(ids) {
    let text = "";
    let length = 0;
    let atStart = true;
    const offsets = ids.map(id => {
      const [piece, , kind] = this.pieces[id];
      let surface = kind === CONTROL ? "" : kind === UNK ? UNKNOWN : piece;
      if (
        atStart &&
        kind === NORMAL &&
        (this.addDummyPrefix || this.removeExtraWhitespaces) &&
        piece.startsWith(SPACE)
      ) {
        surface = piece.slice(1);
        atStart = this.removeExtraWhitespaces;
      }
      if (surface) atStart = false;
      const begin = length;
      length += Array.from(surface).length;
      text += surface.replaceAll(SPACE, " ");
      return [begin, length];
    });
    return {text, labels: ids.map(id => this.pieces[id][0]), offsets};
  }

  // The code points that are cut, spaces as ▁, and for each (and the end) the place in the text that it came from.
  normalize(text) {
    const input = Array.from(text);
    const points = [];
    const origins = [];
    const rewrite = at => this.findReplacement(input, at) ?? [input[at], 1];
    let at = 0;
    while (this.removeExtraWhitespaces && at < input.length && rewrite(at)[0] === " ") at += rewrite(at)[1];
    if (at === input.length) return {points, origins: [at]};
    const push = (point, from) => {
      points.push(point === " " ? SPACE : point);
      origins.push(from);
    };
    if (this.addDummyPrefix) push(" ", at);
    let afterSpace = this.removeExtraWhitespaces;
    while (at < input.length) {
      let [chars, count] = rewrite(at);
      if (afterSpace) chars = chars.replace(/^ +/, "");
      for (const point of chars) push(point, at);
      if (chars) afterSpace = this.removeExtraWhitespaces && chars.endsWith(" ");
      at += count;
    }
    while (this.removeExtraWhitespaces && points.at(-1) === SPACE) {
      points.pop();
      at = origins.pop();
    }
    return {points, origins: [...origins, at]};
  }

  // Unigram: the cut [begin, end) of code points with the largest sum of scores, in the library's precision.
  best(points) {
    const ends = ["", ...points].map((_, at) => ({score: at ? -Infinity : 0, from: -1}));
    const reach = (from, to, score) => {
      const sum = Math.fround(score + ends[from].score);
      if (sum > ends[to].score) ends[to] = {score: sum, from};
    };
    for (let from = 0; from < points.length; from++) {
      const unknown = Math.fround(this.lowest - UNKNOWN_PENALTY);
      let piece = "";
      for (let to = from + 1; to <= Math.min(points.length, from + this.longest); to++) {
        piece += points[to - 1];
        const id = this.ids.get(piece);
        if (id !== undefined) reach(from, to, this.pieces[id][1]);
        else if (to === from + 1) reach(from, to, unknown);
      }
    }
    const cuts = [];
    for (let to = points.length; to > 0; to = ends[to].from) cuts.push([ends[to].from, to]);
    return cuts.reverse();
  }

  // BPE: the cut by merges, the pair with the best score first, the leftmost of equal ones.
  merge(points) {
    const parts = points.map((_, at) => [at, at + 1]);
    const scoreOf = at => {
      const id = this.ids.get(points.slice(parts[at][0], parts[at + 1][1]).join(""));
      return id === undefined ? -Infinity : this.pieces[id][1];
    };
    const scores = parts.slice(1).map((_, at) => scoreOf(at));
    for (let most = Math.max(...scores); most > -Infinity; most = Math.max(...scores)) {
      const choice = scores.indexOf(most);
      parts.splice(choice, 2, [parts[choice][0], parts[choice + 1][1]]);
      scores.splice(choice, 1);
      for (const at of [choice - 1, choice]) if (at in scores) scores[at] = scoreOf(at);
    }
    return parts;
  }
}

// Runs without white space, as Python's str.split() has it.
const WHITE_SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;
export const words = text => text.split(WHITE_SPACE).filter(Boolean);

// For each piece the number of its word by its offsets in code points; -1 if there is no word. A piece belongs to the
// last word that it touches; a lone ▁ to the word of the next piece, else the last.
export function wordsOfPieces({text, labels, offsets}) {
  let word = -1;
  let inside = false;
  const wordAt = Array.from(text, point => {
    const isSpace = WHITE_SPACE.test(point);
    if (!isSpace && !inside) word++;
    inside = !isSpace;
    return isSpace ? -1 : word;
  });
  const found = offsets.map(([begin, end], at) =>
    labels[at] === SPACE ? -1 : Math.max(-1, ...wordAt.slice(begin, end)),
  );
  for (let at = found.length - 2; at >= 0; at--) if (found[at] < 0) found[at] = found[at + 1];
  for (let at = 1; at < found.length; at++) if (found[at] < 0) found[at] = found[at - 1];
  return found;
}

// The first `longest` characters of a text as a line, and whether it has more.
export function lineOf(text, longest) {
  const points = Array.from(text);
  const start = points.slice(0, longest).join("");
  return {line: start.replace(/[\r\n]+/g, " "), isCut: points.length > longest};
}

// SentencePiece's precompiled character map: a double array (darts-clone) over UTF-8, then the replacements.
function readCharsmap(base64) {
  if (!base64) return () => null;
  const bytes = Uint8Array.from(atob(base64), each => each.charCodeAt(0));
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const units = new Uint32Array(bytes.buffer.slice(4, 4 + size));
  const texts = bytes.subarray(4 + size);
  const offset = unit => (unit >>> 10) << ((unit & 512) >>> 6);
  const textAt = start => decoder.decode(texts.subarray(start, texts.indexOf(0, start)));
  // [replacement, number of code points replaced] of the longest entry at a place of the input.
  return (input, at) => {
    let node = offset(units[0]);
    let found = null;
    for (let to = at; to < input.length; to++) {
      for (const byte of encoder.encode(input[to])) {
        node ^= byte;
        const unit = units[node];
        if ((unit & 0x800000ff) >>> 0 !== byte) return found;
        node ^= offset(unit);
        if ((unit >>> 8) & 1) found = [textAt(units[node] & 0x7fffffff), to + 1 - at];
      }
    }
    return found;
  };
}
