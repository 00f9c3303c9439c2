// The page: translate as one types, point at words, take other pieces, hold the attention, compare runs.
import {lineOf, Pieces, words, wordsOfPieces} from "./pieces.js";
import {beamSearch, largest, meanWeights, occlude, Translator} from "./search.js";
import {drawGroup, drawSentence, make} from "./sentence.js";

const NUM_ALTERNATIVES = 8;
const NUM_BEST = 5;
const MOST_BEAM = 20;
const LONGEST = 1000; // characters of a text
const END = "(end)";
const ALL = "all, side by side";
const OCCLUSION = "occlusion";
const NOTHING = {source: [], target: [], weights: []};
const PAUSE = 150; // milliseconds after the last key
const BETWEEN_FRAMES = 50; // milliseconds
const $ = id => document.getElementById(id);
const say = text => Object.assign($("status"), {textContent: text});

async function load(url, integrity) {
  const answer = await fetch(url, {integrity});
  if (!answer.ok) throw new Error(`${url} is not there (${answer.status})`);
  return answer.arrayBuffer();
}

export class Run {
  static async load(folder) {
    const files = ["run.json", "encoder.onnx", "step.onnx"].map(file => load(`${folder}/${file}`));
    const [text, ...graphs] = await Promise.all(files);
    const run = Object.assign(new Run(), {config: JSON.parse(new TextDecoder().decode(text)), graphs});
    run.source = new Pieces(run.config.source);
    run.target = run.config.target ? new Pieces(run.config.target) : run.source;
    const [source = "", target = ""] = run.config.languages ?? [];
    return Object.assign(run, {langs: {source, target}});
  }

  // Translate a line: {line, encoded, length, best: hypotheses}; null if it has no pieces. pins: {position: [layer, source
  // position, …]} shares the attention there equally. onStep is called with the same, of the best hypothesis so far.
  async translate(line, {prefix = [], pins = {}, beam, signal, onStep} = {}) {
    this.sessions ??= Promise.all(this.graphs.map(graph => ort.InferenceSession.create(graph)));
    this.translator ??= new Translator(ort, this.config, ...(await this.sessions));
    const {eos_id: eos, max_source_pieces: most, num_layers: layers, decoding} = this.config;
    const encoded = this.source.encode(line);
    const ids = [...encoded.ids.slice(0, most - 1), eos];
    if (ids.length === 1) return null;
    const found = {line, encoded, length: ids.length, ids};
    const settings = {...decoding, beam_size: beam >= 1 ? Math.min(MOST_BEAM, Math.round(beam)) : decoding.beam_size};
    const begin = prefix.filter(id => id !== eos);
    if (begin.length < prefix.length) Object.assign(settings, {max_length: begin.length, min_length: 0});
    const held = {};
    for (const [position, [layer, ...sources]] of Object.entries(pins)) {
      const row = new Float32Array(ids.length);
      for (const source of sources) row[source] = 1 / sources.length;
      if (layer < layers) held[position] = {[layer]: row};
    }
    const tell = hypothesis => onStep?.({...found, best: [hypothesis]});
    const options = {numBest: Math.min(NUM_BEST, settings.beam_size), prefix: begin, pins: held, signal, onStep: tell};
    return {...found, pins: held, best: await beamSearch(this.translator, ids, settings, options)};
  }

  // What the best translation loses without each source piece.
  occlude({ids, pins, best: [best]}, signal) {
    return occlude(this.translator, ids, this.source.unk, best, {pins, signal});
  }

  textOf = ({ids}) => this.target.decode(ids).text;

  // The best translation to draw, by words or pieces; layer and head count from 0, or are the mean over them. By occlusion
  // a weight is the share of a source piece in what a piece loses.
  sentence({line, encoded, length, lost, best: [{ids, steps}]}, {unit, layer, head, method}) {
    const target = this.target.decode(ids);
    const heads = this.config.num_heads;
    const matches = (chosen, place) => chosen === "mean" || Number(chosen) === place;
    const isChosen = (_, at) =>
      matches(layer, Math.floor(at / length / heads)) && matches(head, Math.floor(at / length) % heads);
    const isOccluded = method === OCCLUSION;
    const verbs = isOccluded ? ["needs", "is needed by"] : undefined;
    const pieces = isOccluded
      ? steps.map((_, at) => shares(lost?.[at] ?? Array(length).fill(0)))
      : steps.map(({weights}) => [...meanWeights((weights ?? []).filter(isChosen), length)]);
    if (unit === "pieces") {
      const labels = [...target.labels, END].slice(0, steps.length);
      return {source: [...encoded.labels.slice(0, length - 1), END], target: labels, weights: pieces, verbs};
    }
    const sides = {source: words(line), target: words(target.text), verbs};
    const sourceOf = wordsOfPieces(encoded).slice(0, length - 1);
    return {...sides, weights: betweenWords(pieces, wordsOfPieces(target), sourceOf, sides)};
  }
}

// The sizes of numbers with a sum of 1.
function shares(numbers) {
  const sum = numbers.reduce((all, each) => all + Math.abs(each), 0) || 1;
  return numbers.map(each => Math.abs(each) / sum);
}

// The sum over a source word's pieces, without the end of the source, then the mean over a target word's pieces.
function betweenWords(pieces, targetOf, sourceOf, {source, target}) {
  const weights = target.map(() => Array(source.length).fill(0));
  for (const [at, to] of targetOf.entries()) {
    const remaining = sourceOf.reduce((sum, from, piece) => sum + (from < 0 ? 0 : pieces[at][piece]), 0);
    const count = targetOf.filter(each => each === to).length;
    for (const [piece, from] of sourceOf.entries()) {
      if (to >= 0 && from >= 0 && remaining) weights[to][from] += pieces[at][piece] / remaining / count;
    }
  }
  return weights;
}

// The choices of a person: the controls of the same names, and what is not free of a translation. They are the page's
// address, so that a sentence can be sent as a link.
const START = {
  run: "",
  text: "",
  forced: "",
  unit: "words",
  method: "attention",
  layer: "mean",
  head: "mean",
  beam: "",
};
const FREE = {prefix: [], pins: {}};
let state = {...START, ...FREE};
export let runs = [];
let ort = null; // onnxruntime-web
let drawn = []; // {run, found, view} of each run that is shown
let work = new AbortController();
const isBeside = () => state.run === ALL;
const chosenRun = (name = state.run) => runs.find(({config}) => config.name === name) ?? runs[0];

function readAddress() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const choices = {...START, ...given, ...FREE};
  try {
    const {prefix, pins} = JSON.parse(given.chosen);
    const {pieces} = chosenRun(given.run).target;
    const isValid = prefix.every(id => id in pieces) && Object.values(pins).every(Array.isArray);
    return isValid ? {...choices, prefix, pins} : choices;
  } catch {
    return choices; // nothing is chosen, or not by this page
  }
}

function writeAddress() {
  const {prefix, pins, ...plain} = state;
  const chosen = prefix.length || Object.keys(pins).length ? JSON.stringify({prefix, pins}) : "";
  const changed = Object.entries({...plain, chosen}).filter(([key, value]) => value !== (START[key] ?? ""));
  history.replaceState(null, "", `#${new URLSearchParams(changed)}`);
}

// Translate again after a change, and stop what is under way.
async function change(changes) {
  Object.assign(state, changes);
  fillControls();
  writeAddress();
  work.abort();
  work = new AbortController();
  const {signal} = work;
  try {
    await translate(signal);
  } catch (error) {
    if (!signal.aborted) say(`This did not work: ${error.message}.`);
  }
}

async function translate(signal) {
  const {line, isCut} = lineOf(state.text, LONGEST);
  const messages = isCut ? [`Only the first ${LONGEST} characters are translated.`] : [];
  say(messages.join(" "));
  $("choices").hidden = true;
  $("view").className = isBeside() ? "members" : "";
  drawn = [];
  for (const run of isBeside() ? runs : [chosenRun()]) {
    const view = drawSentence(NOTHING, {langs: run.langs, onWord: isBeside() ? null : choose});
    let next = performance.now() + BETWEEN_FRAMES;
    const onStep = async found => {
      const begin = performance.now();
      if (begin < next) return;
      draw({run, found, view}, drawn.length);
      await new Promise(resolve => setTimeout(resolve)); // the browser paints, and takes keys
      next = performance.now() + Math.max(BETWEEN_FRAMES, 3 * (performance.now() - begin)); // a long text is slow to draw
    };
    const forced = state.forced.trim() ? [...run.target.encode(state.forced).ids, run.config.eos_id] : [];
    const choices = isBeside() ? {...state, prefix: forced, pins: {}} : state;
    const found = await run.translate(line, {...choices, signal, onStep});
    signal.throwIfAborted();
    if (!found) break;
    if (state.method === OCCLUSION) found.lost = await run.occlude(found, signal);
    draw({run, found, view}, drawn.length);
    drawn.push({run, found, view});
    if (found.encoded.ids.length >= found.length)
      messages.push(`The end is cut: it has ${found.length} pieces or more.`);
  }
  while ($("view").children.length > drawn.length) $("view").lastChild.remove();
  for (const id of drawn.length ? [] : ["translation", "best"]) $(id).replaceChildren();
  const unknown = [...new Set(drawn.flatMap(({found}) => found.encoded.unknown))].slice(0, 10).join(" ");
  if (unknown) messages.push(`The vocabulary does not know ${unknown}: the model guesses.`);
  if (state.prefix.length) messages.push(`The first ${state.prefix.length} pieces are as chosen.`);
  say(messages.join(" "));
  if (isBeside() || !drawn.length || !Object.keys(state.pins).length) return;
  const free = await drawn[0].run.translate(line, {...state, pins: {}, signal});
  signal.throwIfAborted();
  const [held, best] = [drawn[0].found, free].map(each => each.best[0].logProb);
  const numbers = [held, best, best - held].map(each => each.toFixed(2));
  messages.push(
    `Attention is held: log-probability ${numbers[0]}, free ${numbers[1]}, so it costs ${numbers[2]} nats.`,
  );
  say(messages.join(" "));
}

function draw({run, found, view}, at) {
  const {best} = found;
  const sentence = run.sentence(found, state);
  const texts = best.map(run.textOf);
  const none = run.config.num_layers ? "" : " (no attention: the decoder sees the last encoder state only)";
  if (isBeside()) sentence.title = [run.config.name, run.config.score].filter(Boolean).join(": ");
  sentence.note = `${isBeside() ? `${texts[0]} (log-probability ${best[0].logProb.toFixed(2)})` : ""}${none}`;
  $("translation").textContent = texts[0];
  const row = ({score, logProb}, at) =>
    make("tr", {}, ...[score.toFixed(3), logProb.toFixed(2), texts[at]].map(text => make("td", {dir: "auto"}, text)));
  $("best").replaceChildren(...best.map(row));
  const before = $("view").children[at];
  if (!before) $("view").append(view);
  else if (before !== view) before.replaceWith(view);
  view.update(sentence);
}

// Show the pieces that the model could have written at a word, and the source words that it can attend to.
function choose(number) {
  const [{run, found}] = drawn;
  const {ids, steps} = found.best[0];
  const decoded = run.target.decode(ids);
  const position = state.unit === "pieces" ? number : wordsOfPieces(decoded).indexOf(number);
  if (position < 0) return;
  const before = ids.slice(0, position);
  const pins = Object.fromEntries(Object.entries(state.pins).filter(([at]) => at < position));
  const take = async changes => {
    await change(changes);
    $("view").querySelectorAll(".target .word")[number]?.focus();
  };
  const {pad_id: pad, bos_id: bos, eos_id: eos, num_layers: layers} = run.config;
  const {logProbs} = steps[position];
  const others = largest(logProbs, NUM_ALTERNATIVES + 2).filter(id => id !== pad && id !== bos);
  const makeOther = id => {
    const label = `${id === eos ? END : run.target.pieces[id][0]} ${Math.exp(logProbs[id]).toFixed(3)}`;
    return make("button", {type: "button", onclick: () => take({prefix: [...before, id], pins})}, label);
  };
  $("others").replaceChildren(...others.slice(0, NUM_ALTERNATIVES).map(makeOther));
  const boxes = words(found.line).map(word => make("label", {}, make("input", {type: "checkbox"}), word));
  $("sources").replaceChildren(...boxes);
  $("sources").parentElement.hidden = !layers;
  $("hold").onclick = () => {
    const owners = wordsOfPieces(found.encoded).slice(0, found.length - 1);
    const chosen = [...owners.keys()].filter(at => boxes[owners[at]]?.firstChild.checked);
    if (!chosen.length) return say("Tick the source words to attend to.");
    const layer = state.layer === "mean" ? layers - 1 : Number(state.layer);
    return take({prefix: before, pins: {...pins, [position]: [layer, ...chosen]}});
  };
  $("chosen").textContent = `In place of ${[...decoded.labels, END][position]}:`;
  $("choices").hidden = false;
  $("choices").scrollIntoView({block: "nearest"});
}

// Fill the texts of the run and the controls.
function fillControls() {
  const run = chosenRun();
  const {config, langs} = run;
  if ($("examples").dataset.run !== config.name) fillExamples(run);
  const names = runs.map(each => each.config.name);
  const title = isBeside() ? names.join(" · ") : config.name;
  document.title = $("title").textContent = `${title}${langs.source && `, ${langs.source} to ${langs.target}`}`;
  $("hint").textContent = [isBeside() ? "" : config.score, config.hint].filter(Boolean).join(". ");
  const numbers = count => ["mean", ...Array(count).keys()];
  const lists = {run: [...names, ALL], layer: numbers(config.num_layers), head: numbers(config.num_heads)};
  for (const [id, list] of Object.entries(lists)) {
    $(id).replaceChildren(...list.map(text => make("option", {}, String(text))));
    $(id).parentElement.hidden = list.length < 3 || (id !== "run" && state.method === OCCLUSION);
  }
  for (const id of Object.keys(START)) if ($(id).value !== state[id]) $(id).value = state[id];
  if (!state.run) $("run").value = config.name;
  $("beam").placeholder = config.decoding.beam_size;
  $("text").lang = langs.source;
  $("translation").lang = langs.target;
  $("forced").parentElement.hidden = !isBeside();
  $("translation").hidden = $("best").closest("details").hidden = isBeside();
}

// Fill the examples and the history of a run.
function fillExamples(run) {
  const {langs} = run;
  const {examples, growing, history: groups} = run.config;
  const take = text => change({text, ...FREE});
  const button = {type: "button", lang: langs.source, dir: "auto"};
  $("examples").dataset.run = run.config.name;
  $("examples").replaceChildren(...examples.map(text => make("button", {...button, onclick: () => take(text)}, text)));
  $("length").parentElement.hidden = growing.length < 2;
  const move = () => take(growing[$("length").value]);
  Object.assign($("length"), {max: growing.length - 1, value: Math.max(0, growing.indexOf(state.text)), oninput: move});
  $("history").replaceChildren(...groups.map(group => drawGroup(group, {langs})));
  $("history").closest("details").hidden = !groups.length;
}

function listen() {
  let timer = null;
  const read = id => {
    state[id] = $(id).value;
    if (id === "run") Object.assign(state, {layer: "mean", head: "mean"});
    if (id === "method") return change({});
    if (!["unit", "layer", "head"].includes(id)) return change(FREE);
    writeAddress();
    return drawn.forEach(draw);
  };
  for (const id of Object.keys(START)) {
    $(id).oninput = () => {
      clearTimeout(timer);
      timer = setTimeout(read, $(id).type === "textarea" ? PAUSE : 0, id);
    };
  }
  $("free").onclick = () => change(FREE);
  addEventListener("hashchange", () => change(readAddress()));
}

async function start() {
  const {runtime, runs: folders} = JSON.parse($("settings").textContent);
  if (!globalThis.WebAssembly) return say("This browser has no WebAssembly, which the page needs.");
  try {
    const files = runtime.map(({url, integrity}) => load(url, integrity));
    const [script, wasm, ...loaded] = await Promise.all([...files, ...folders.map(Run.load)]);
    ort = await import(URL.createObjectURL(new Blob([script], {type: "text/javascript"})));
    Object.assign(ort.env.wasm, {numThreads: 1, wasmBinary: wasm});
    runs = loaded;
  } catch (error) {
    return say(`The page cannot be loaded: ${error.message}`);
  }
  state = readAddress();
  const {growing, examples, unit} = runs[0].config;
  const isEmpty = state.text === "";
  if (isEmpty && runs.length > 1) state.run ||= ALL;
  if (isEmpty) Object.assign(state, {unit, text: (isBeside() ? (growing[2] ?? growing[0]) : examples[0]) ?? ""});
  $("page").hidden = false;
  listen();
  return change({});
}

start();
