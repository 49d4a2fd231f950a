/**
 * The path of a query as a value: what has happened, and what is still to come. It is built from the events of a
 * running search, or from an answer's trace; every step returns a new value.
 */

/**
 * @typedef {{stage: string, detail: string, ms: number, started: number, count: number | null, error: string | null}}
 *   Stage
 * @typedef {{dataset: string, part: string, lists: {source: string, count: number}[], ms: number | null,
 *   started: number, count: number | null, error: string | null, state: "pending" | "done" | "failed" | "partial",
 *   detail: string}} Branch `part` is the variant of the query that was searched for; empty for the query itself
 * @typedef {{query: string, refuses: boolean, phase: "running" | "done" | "refused" | "failed", plan: {strategy: string, reason: string,
 *   datasets: string[], weights: Record<string, number>} | null, before: Stage[], branches: Branch[], after: Stage[],
 *   hits: number | null, total: number | null}} Journey `before` and `after`: the stages that ran before and after
 *   retrieval, in the order in which they ran; the plan is one of them
 */

/**
 * Returns the journey of a new query.
 * @param {string} query
 * @param {boolean} [refuses] whether the answer may be refused
 * @returns {Journey}
 */
export function begin(query, refuses = true) {
  const nothing = { plan: null, before: [], branches: [], after: [], hits: null, total: null };
  return { query, refuses, phase: "running", ...nothing };
}

/**
 * Returns the journey after an event of the stream.
 * @param {Journey} journey
 * @param {string} event
 * @param {any} data
 * @returns {Journey}
 */
export function advance(journey, event, data) {
  if (event === "plan") {
    const branches = data.datasets.map((dataset) => pending(dataset));
    return { ...journey, plan: { ...data, weights: {} }, branches };
  }
  if (event === "branch") return { ...journey, branches: arrived(journey.branches, branch(data, names(journey))) };
  if (event === "stage") return passed(journey, data);
  if (event === "result") return fromAnswer(journey.query, data);
  return journey;
}

/**
 * Returns the journey that led to an answer.
 * @param {string} query
 * @param {any} answer with a trace
 * @returns {Journey}
 */
export function fromAnswer(query, answer) {
  const { datasets, reason, weights, strategy } = answer;
  let journey = { ...begin(query), plan: { strategy, reason, datasets, weights } };
  for (const span of answer.trace?.spans ?? []) {
    if (span.stage === "retrieve")
      journey = { ...journey, branches: [...journey.branches, branch(span, datasets)] };
    else journey = passed(journey, span);
  }
  return {
    ...journey,
    phase: answer.refused ? "refused" : "done",
    hits: answer.hits.length,
    total: answer.milliseconds,
  };
}

/**
 * Returns the journey ended by an error.
 * @param {Journey} journey
 * @returns {Journey}
 */
export function broken(journey) {
  const branches = journey.branches.map((one) => (one.state === "pending" ? { ...one, state: "failed" } : one));
  return { ...journey, phase: "failed", branches };
}

function passed(journey, span) {
  const where = journey.branches.some(({ state }) => state !== "pending") ? "after" : "before";
  return { ...journey, [where]: [...journey[where], stageOf(span)] };
}

function stageOf({ stage, detail, milliseconds, count, error, started }) {
  return { stage, detail, ms: milliseconds, started, count, error };
}

function names(journey) {
  return journey.plan?.datasets ?? [];
}

function pending(dataset) {
  const open = { ms: null, started: 0, count: null, error: null, state: "pending", detail: "" };
  return { dataset, part: "", lists: [], ...open };
}

/** Converts a span to a branch; its detail is `dataset, part: 12 by bm25, 100 by vector`, or the name alone. */
function branch({ detail, milliseconds, count, error, started }, datasets) {
  const known = datasets
    .filter((name) => detail === name || detail.startsWith(`${name}:`) || detail.startsWith(`${name},`))
    .toSorted((a, b) => b.length - a.length)[0];
  const dataset = known ?? detail.split(/[:,]/, 1)[0];
  const rest = detail.slice(dataset.length);
  const colon = rest.indexOf(":");
  const part = (colon < 0 ? rest : rest.slice(0, colon)).replace(/^, /, "");
  const found = colon < 0 ? "" : rest.slice(colon);
  const lists = [...found.matchAll(/(\d+) by ([^,;]+)/g)].map(([, n, source]) => ({ source, count: Number(n) }));
  const state = error === null ? "done" : count === null ? "failed" : "partial";
  return { dataset, part, lists, ms: milliseconds, started, count, error, state, detail };
}

function arrived(branches, one) {
  const at = branches.findIndex(({ dataset, part, state }) => dataset === one.dataset && part === one.part &&
    state === "pending");
  if (at < 0) {
    const after = branches.findLastIndex(({ dataset }) => dataset === one.dataset);
    return branches.toSpliced(after < 0 ? branches.length : after + 1, 0, one);
  }
  return branches.with(at, one);
}
