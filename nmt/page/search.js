// A translator of two graphs, and beam search over it with the limits and penalties of nmt/decoding.
// The graphs: `encoder` maps src [1, S] to memory_N and state_N; `step` maps piece [N], these tensors, held [N, L, S] and
// is_held [N, L] to logits [N, V], weights [N, L, K, S] and new_state_N. L layers attend to the source, with K heads each.

const NEVER = -Infinity;
const COVERAGE_FLOOR = 1e-6;

export class Translator {
  // config: pad_id, bos_id, eos_id, num_layers (0 without attention), max_target_pieces; ort: onnxruntime-web.
  constructor(ort, config, encoder, step) {
    Object.assign(this, {ort, config, encoder, step});
  }

  // Memory and first state of piece ids that end with eos_id.
  async encode(ids) {
    const src = new this.ort.Tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]);
    const out = Object.entries(await this.encoder.run({src}));
    const [memory, state] = ["memory_", "state_"].map(prefix => out.filter(([name]) => name.startsWith(prefix)));
    return {memory: Object.fromEntries(memory), state: Object.fromEntries(state), length: ids.length};
  }

  // One step of hypotheses `rows` of the state, with their last pieces. The memory is that of one source for all, or with
  // `areMany` has a source per row. held: {layer: Float32Array [S]} at this position.
  async advance(pieces, {memory, state, length, areMany}, rows, held = {}) {
    const {Tensor} = this.ort;
    const layers = this.config.num_layers;
    const feeds = {piece: new Tensor("int64", BigInt64Array.from(pieces, BigInt), [pieces.length])};
    const sources = areMany ? rows : Array(rows.length).fill(0);
    for (const [name, tensor] of Object.entries(memory)) feeds[name] = take(Tensor, tensor, sources);
    for (const [name, tensor] of Object.entries(state)) feeds[name] = take(Tensor, tensor, rows);
    if (layers) {
      const weights = new Float32Array(layers * length);
      const flags = new Uint8Array(layers);
      for (const [layer, row] of Object.entries(held)) {
        weights.set(row, layer * length);
        flags[layer] = 1;
      }
      const same = Array(rows.length).fill(0);
      feeds.held = take(Tensor, new Tensor("float32", weights, [1, layers, length]), same);
      feeds.is_held = take(Tensor, new Tensor("bool", flags, [1, layers]), same);
    }
    const {logits, weights, ...next} = await this.step.run(feeds);
    const newState = Object.entries(next).map(([name, tensor]) => [name.slice("new_".length), tensor]);
    return {logits: split(logits), weights: weights && split(weights), state: Object.fromEntries(newState)};
  }
}

// Rows of a tensor whose first dimension is the hypothesis.
function take(Tensor, tensor, rows) {
  const parts = split(tensor);
  const data = new tensor.data.constructor(rows.length * parts[0].length);
  for (const [at, row] of rows.entries()) data.set(parts[row], at * parts[0].length);
  return new Tensor(tensor.type, data, [rows.length, ...tensor.dims.slice(1)]);
}

// Tensors [1, …] as one [N, …].
function join(Tensor, tensors) {
  const [{type, data: first, dims}] = tensors;
  const data = new first.constructor(tensors.length * first.length);
  for (const [at, tensor] of tensors.entries()) data.set(tensor.data, at * first.length);
  return new Tensor(type, data, [tensors.length, ...dims.slice(1)]);
}

const split = ({data, dims: [count]}) => {
  const size = data.length / count;
  return Array.from({length: count}, (_, row) => data.subarray(row * size, (row + 1) * size));
};

export function logSoftmax(logits) {
  const most = logits.reduce((one, other) => Math.max(one, other));
  const norm = most + Math.log(logits.reduce((sum, each) => sum + Math.exp(each - most), 0));
  return logits.map(each => each - norm);
}

// The pieces that may come next: limits, a prefix, no repeated n-grams, neither padding nor beginning.
class Constraints {
  constructor(config, settings, length, prefix) {
    // Numbers count as they are written, in decimals
    const scale = (ratio, extra) => Math.floor(Number((ratio * length + extra).toFixed(9)));
    this.limit = Math.min(
      scale(settings.max_length_ratio, settings.max_length_extra),
      settings.max_length ?? Infinity,
      (config.max_target_pieces ?? Infinity) - 1, // BOS takes a position
    );
    this.minimum = Math.min(this.limit, Math.max(settings.min_length, scale(settings.min_length_ratio, 0)));
    if (prefix.length > this.limit) throw new RangeError(`a translation of this text has at most ${this.limit} pieces`);
    Object.assign(this, {config, size: settings.no_repeat_ngram_size, prefix});
  }

  // The log-probabilities [V] after the pieces `history`, -Infinity for a piece that may not come next.
  apply(all, history) {
    const {pad_id: pad, bos_id: bos, eos_id: eos} = this.config;
    const count = history.length;
    const piece = this.prefix[count];
    if (piece !== undefined) return all.map((each, at) => (at === piece ? each : NEVER));
    const logProbs = count < this.limit ? all.slice() : all.map(() => NEVER);
    for (const special of [pad, bos, eos]) logProbs[special] = NEVER;
    const last = history.slice(count - this.size + 1).join();
    for (let at = 0; this.size && at + this.size <= count; at++) {
      if (history.slice(at, at + this.size - 1).join() === last) logProbs[history[at + this.size - 1]] = NEVER;
    }
    if (count >= this.minimum || !logProbs.some(each => each > NEVER)) logProbs[eos] = all[eos];
    return logProbs;
  }
}

const lengthPenalty = (length, alpha) => ((5 + length) / 6) ** alpha;
const coveragePenalty = (coverage, beta) =>
  beta * coverage.reduce((sum, each) => sum + Math.log(Math.min(1, Math.max(COVERAGE_FLOOR, each))), 0);

// The mean [S] over the first dimension of weights [N, S].
export function meanWeights(weights, length) {
  const mean = new Float64Array(length);
  for (const [at, each] of weights.entries()) mean[at % length] += (each * length) / weights.length;
  return mean;
}

// The beam of nmt/decoding/beam.py: live hypotheses compete by log p, the penalties rank those that have ended.
// pins: {position: {layer: Float32Array [S]}}. Gives the hypotheses, best first: {ids, logProb, score, steps: for each piece
// and the end {logProbs [V] without constraints, weights [L, K, S]}}. onStep is called with the best one so far.
export async function beamSearch(translator, ids, settings, options) {
  const {numBest = 1, prefix = [], pins = {}, signal, onStep} = options;
  const {config} = translator;
  const {beam_size: size, length_alpha: alpha, coverage_beta: beta} = settings;
  const constraints = new Constraints(config, settings, ids.length, prefix);
  const encoded = await translator.encode(ids);
  let live = [{ids: [], logProb: 0, steps: [], coverage: new Float64Array(ids.length), row: 0}];
  const ends = [];
  for (let step = 0; live.length; step++) {
    signal?.throwIfAborted();
    const last = live.map(each => each.ids.at(-1) ?? config.bos_id);
    const rows = live.map(each => each.row);
    const out = await translator.advance(last, encoded, rows, pins[step]);
    encoded.state = out.state;
    const candidates = live.flatMap((before, row) => {
      const all = logSoftmax(out.logits[row]);
      const logProbs = constraints.apply(all, before.ids);
      const now = {logProbs: all, weights: out.weights?.[row]};
      return largest(logProbs, size).map(piece => {
        const logProb = Math.fround(before.logProb + logProbs[piece]); // the precision of the model's own search
        return {before, row, piece, logProb, now};
      });
    });
    candidates.sort((one, other) => other.logProb - one.logProb);
    live = [];
    for (const {before, row, piece, logProb, now} of candidates.slice(0, size - ends.length)) {
      if (logProb === NEVER) break;
      const seen = beta ? meanWeights(now.weights, ids.length) : [];
      const coverage = before.coverage.map((each, at) => each + (seen[at] ?? 0));
      const score = logProb / lengthPenalty(step + 1, alpha) + coveragePenalty(beta ? coverage : [], beta);
      const next = {ids: before.ids, logProb, score, steps: [...before.steps, now], coverage, row};
      if (piece === config.eos_id) ends.push(next);
      else live.push({...next, ids: [...before.ids, piece]});
    }
    ends.sort((one, other) => other.score - one.score);
    await onStep?.(live[0] ?? ends[0]);
    const attainable = Math.max(...live.map(each => each.logProb)) / lengthPenalty(constraints.limit + 1, alpha);
    if (ends.length >= numBest && ends[numBest - 1].score >= attainable) break;
  }
  return ends.slice(0, numBest);
}

// The log-probability that each piece of a hypothesis, and the end, loses if a source piece becomes unknown, [T][S], as
// nmt/analysis/occlusion.py has it.
export async function occlude(translator, ids, unk, {ids: written, steps}, {pins = {}, signal} = {}) {
  const parts = [];
  for (const at of ids.keys()) {
    parts.push(await translator.encode(ids.map((id, place) => (place === at ? unk : id))));
    signal?.throwIfAborted();
  }
  const joined = kind =>
    Object.keys(parts[0][kind]).map(name => [
      name,
      join(
        translator.ort.Tensor,
        parts.map(part => part[kind][name]),
      ),
    ]);
  const [memory, state] = ["memory", "state"].map(kind => Object.fromEntries(joined(kind)));
  const encoded = {memory, state, length: ids.length, areMany: true};
  const lost = [];
  let last = translator.config.bos_id;
  for (const [step, piece] of [...written, translator.config.eos_id].entries()) {
    const out = await translator.advance(Array(ids.length).fill(last), encoded, [...ids.keys()], pins[step]);
    encoded.state = out.state;
    lost.push(out.logits.map(row => steps[step].logProbs[piece] - logSoftmax(row)[piece]));
    last = piece;
    await new Promise(resolve => setTimeout(resolve)); // the browser takes keys
    signal?.throwIfAborted();
  }
  return lost;
}

// The places of the `number` largest values, largest first.
export function largest(values, number) {
  const places = [];
  for (const [place, value] of values.entries()) {
    if (places.length === number && !(value > values[places[number - 1]])) continue;
    let at = places.length;
    while (at > 0 && value > values[places[at - 1]]) at--;
    places.splice(at, 0, place);
    if (places.length > number) places.pop();
  }
  return places;
}
