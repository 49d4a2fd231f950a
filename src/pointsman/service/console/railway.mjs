/**
 * The path of a query as a railway: a switch sends the query over the datasets' lines, which meet again where lists
 * are fused; then come the stations to the answer. Failed branches end at a buffer stop, with a sign.
 *
 * If space is short, the line runs downwards. A table gives the same in words.
 */

import { line } from "./catalog.mjs";
import { h, s } from "./dom.mjs";
import { Drawing, fitted, figureOf, ticks } from "./drawing.mjs";
import { plain } from "./highlight.mjs";
import { current, has, milliseconds, number, score, t, toldBy } from "./i18n.mjs";

/** @typedef {import("./journey.mjs").Journey} Journey */

const MOST = 12; // lines drawn; the table has all
const GAP = 82; // between stations
const LANE = 50;
const ROW = 46;
const TRACKS = 300; // pixels needed by lines between switch and fuse

/** `<pm-railway>`; its journey is set again on every change. */
export class Railway extends Drawing {
  /** @type {Journey | null} */
  #journey = null;

  /** @param {Journey | null} journey */
  set journey(journey) {
    this.#journey = journey;
    this.redraw();
  }

  draw(width) {
    if (!this.#journey) return null;
    const model = modelled(this.#journey);
    const upright = width < TRACKS + (model.before.length + model.after.length) * GAP;
    return upright ? downwards(model, width) : across(model, width);
  }
}

customElements.define("pm-railway", Railway);

/**
 * Returns the name of a stage in the interface language.
 * @param {string} stage
 */
export function stageName(stage) {
  return has(`stage.${stage}`) ? t(`stage.${stage}`) : stage;
}

/**
 * Returns the name of a list, such as `bm25` or `subquestion 1`.
 * @param {string} source
 */
export function sourceName(source) {
  const [, kind, at] = /^(\w+?) (\d+)$/.exec(source) ?? [];
  return kind && has(`part.${kind}`) ? t(`part.${kind}`, { at }) : has(`list.${source}`) ? t(`list.${source}`) : source;
}

/**
 * Describes the journey in one sentence, for users who cannot see the drawing.
 * @param {Journey} journey
 */
export function summary(journey) {
  const { plan, branches, hits, total, phase } = journey;
  if (!plan) return t("railway.begun");
  const lost = branches.filter(({ state }) => state === "failed").length;
  const told = [t("railway.over", { strategy: plan.strategy, n: plan.datasets.length })];
  if (lost) told.push(t("railway.lost", { n: lost }));
  if (phase === "running") told.push(t("railway.under_way"));
  else if (phase === "refused") told.push(t("railway.refused"));
  else if (phase === "failed") told.push(t("railway.failed"));
  else told.push(t("railway.answered", { n: hits, time: milliseconds(total) }));
  return told.join(" ");
}

/** Stations and lines, including future ones as far as known. */
function modelled(journey) {
  const { phase, plan, branches } = journey;
  const running = phase === "running";
  const done = (stage) => ({ ...stage, label: stageName(stage.stage), state: stage.error ? "degraded" : "done" });
  const before = [{ stage: "query", label: t("stage.query"), state: "done", detail: journey.query }];
  const way = { stage: "plan", label: plan ? plan.strategy : t("stage.plan"), state: plan ? "done" : "pending" };
  const weights = Object.entries(plan?.weights ?? {}).map(([name, weight]) => `${name} ×${number(weight, 2)}`);
  const fork = { ...way, detail: plan?.reason ?? "", weights, kind: "switch", count: null };
  before.push(...journey.before.map((stage) => (stage.stage === "plan" ? { ...stage, ...fork } : done(stage))));
  if (!before.some(({ kind }) => kind === "switch")) before.push(fork);
  const after = journey.after.map(done);
  for (const stage of journey.refuses ? ["fuse", "refuse"] : ["fuse"]) {
    if (running && !after.some((one) => one.stage === stage))
      after.push({ stage, label: stageName(stage), state: "pending", detail: "" });
  }
  if (phase === "refused") {
    const at = after.findLastIndex(({ stage }) => stage === "refuse");
    if (at >= 0) after[at] = { ...after[at], state: "refused" };
  }
  const state = phase === "done" ? "done" : running ? "pending" : "unreached";
  after.push({ stage: "answer", label: t("stage.answer"), state, count: state === "done" ? journey.hits : null, ms: null, detail: "" });
  const drawn = branches.length > MOST ? chosen(branches) : branches;
  return { before, after, lines: drawn, more: branches.length - drawn.length, journey };
}

/** Selects the lines to draw if there are too many: failed ones first, then those with most hits. */
function chosen(branches) {
  const worth = ({ state, count }) => (state === "failed" || state === "partial" ? Infinity : (count ?? 0));
  const best = new Set(branches.toSorted((a, b) => worth(b) - worth(a)).slice(0, MOST - 1));
  return branches.filter((one) => best.has(one));
}

// ── from left to right ───────────────────────────────────────────────────────────────────────────────────────────────

function across({ before, after, lines, more, journey }, width) {
  const rows = Math.max(lines.length + (more > 0), 1);
  const height = Math.max(rows * LANE, 84) + 34;
  const y = height / 2;
  const left = 40;
  const right = width - 40;
  const free = right - left - (before.length + after.length - 2) * GAP;
  const beforeLast = (before.at(-2)?.label.length ?? 0) * 3.8; // half of it
  const wider = Math.max(before.at(-1).label.length * 7.6 + beforeLast + 12 - GAP, 0); // labels left of the lines
  const switchAt = left + (before.length - 1) * GAP + wider;
  const fuseAt = switchAt + free - wider;
  const parts = [];
  parts.push(track(`M${left} ${y}H${switchAt}`, before.at(-1).state === "pending" ? "pending" : "done"));
  const open = after.findIndex(({ state }) => state === "pending" || state === "unreached");
  const reached = fuseAt + Math.max((open < 0 ? after.length : open) - 1, 0) * GAP;
  if (open !== 0) parts.push(track(`M${fuseAt} ${y}H${reached}`, "done"));
  if (open >= 0) parts.push(track(`M${open === 0 ? fuseAt : reached} ${y}H${right}`, "pending"));
  lines.forEach((one, at) => parts.push(lane(one, switchAt, fuseAt, y, y + (at - (rows - 1) / 2) * LANE)));
  if (more > 0) {
    const below = y + ((rows - 1) / 2) * LANE;
    parts.push(text(t("railway.more", { n: more }), (switchAt + fuseAt) / 2, below + 4, "sub"));
  }
  before.slice(0, -1).forEach((one, at) => parts.push(station(one, left + at * GAP, y)));
  parts.push(station(before.at(-1), switchAt, y, "end"));
  after.forEach((one, at) => parts.push(station(one, fuseAt + at * GAP, y, at ? "" : "start")));
  return picture(journey, width, height, parts);
}

function lane(one, from, to, middle, y) {
  const bend = 58;
  const [start, end] = [from + bend + 12, to - bend];
  const stop = end - 26;
  const ends = one.state === "failed";
  const way = `M${from} ${middle}C${from + bend * 0.7} ${middle} ${start - bend * 0.7} ${y} ${start} ${y}`;
  const rest = ends ? `H${stop}` : `H${end}C${end + bend * 0.7} ${y} ${to - bend * 0.7} ${middle} ${to} ${middle}`;
  const room = stop - start - 62;
  const name = one.part ? `${one.dataset} · ${sourceName(one.part)}` : one.dataset;
  const made = s("g", { class: `branch ${line(one.dataset)} ${one.state}`, "data-branch": name });
  made.append(
    s("title", { lang: one.error && "en" }, branchTold(one)),
    track(way + rest, one.state === "pending" ? "pending" : one.state),
    nameOf(one, room, start, y - 9),
    foundText(one, ends ? stop - start : room, start, y + 19),
  );
  if (ends) made.append(buffer(stop, y));
  else if (one.state !== "pending") {
    made.append(one.state === "partial" ? warning(stop, y) : s("circle", { class: "stop", cx: stop, cy: y, r: 6 }));
    made.append(text(number(one.count), stop, y - 12, "count"), text(milliseconds(one.ms), stop, y + 20, "sub"));
  }
  return made;
}

function station(one, x, y, side = "") {
  const made = s("g", { class: `station ${one.state} ${one.stage}`, "data-stage": one.stage });
  const told = toldBy(one);
  if (told.text) made.append(s("title", { lang: told.lang, "data-content": one.stage === "query" },
    `${one.label}: ${told.text}`));
  made.append(symbol(one, x, y));
  const at = x + ({ start: -8, end: 8 }[side] ?? 0);
  const bold = one.kind === "switch" ? " strong" : "";
  const label = text(fitted(one.label, GAP + 24, 12.5), at, y - 18, `name ${side}${bold}`);
  if (bold) label.setAttribute("data-content", ""); // a strategy's name
  made.append(label);
  const below = [];
  if (typeof one.ms === "number") below.push(milliseconds(one.ms));
  if (typeof one.count === "number" && one.stage !== "transform") below.push(counted(one));
  below.push(...(one.weights ?? []));
  below.forEach((told, row) => made.append(text(fitted(told, GAP, 11), at, y + 27 + row * 14, `sub ${side}`)));
  return made;
}

// ── downwards ────────────────────────────────────────────────────────────────────────────────────────────────────────

function downwards({ before, after, lines, more, journey }, width) {
  const x = 18;
  const step = Math.min(18, 110 / Math.max(lines.length, 1));
  const texts = x + Math.max(lines.length - 1, 0) * step + 24;
  const room = width - texts - 8;
  const row = (at) => 24 + at * ROW;
  const switchAt = row(before.length - 1);
  const fuseRow = before.length + lines.length + (more > 0);
  const fuseAt = row(fuseRow);
  const parts = [track(`M${x} ${row(0)}V${switchAt}`, before.at(-1).state === "pending" ? "pending" : "done")];
  const open = after.findIndex(({ state }) => state === "pending" || state === "unreached");
  const reached = row(fuseRow + Math.max((open < 0 ? after.length : open) - 1, 0));
  const last = row(fuseRow + after.length - 1);
  if (open !== 0) parts.push(track(`M${x} ${fuseAt}V${reached}`, "done"));
  if (open >= 0) parts.push(track(`M${x} ${open === 0 ? fuseAt : reached}V${last}`, "pending"));
  lines.forEach((one, at) => {
    const [lx, ly] = [x + at * step, row(before.length + at)];
    const [top, bottom] = [switchAt + 30, fuseAt - 30];
    const way = `M${x} ${switchAt}C${x} ${switchAt + 20} ${lx} ${top - 20} ${lx} ${top}`;
    const ends = one.state === "failed";
    const rest = ends ? `V${ly}` : `V${bottom}C${lx} ${bottom + 20} ${x} ${fuseAt - 20} ${x} ${fuseAt}`;
    const name = one.part ? `${one.dataset} · ${sourceName(one.part)}` : one.dataset;
    const made = s("g", { class: `branch ${line(one.dataset)} ${one.state}`, "data-branch": name });
    made.append(s("title", { lang: one.error && "en" }, branchTold(one)), track(way + rest, one.state));
    if (ends) made.append(buffer(lx, ly, true));
    else if (one.state === "partial") made.append(warning(lx, ly));
    else if (one.state === "done") made.append(s("circle", { class: "stop", cx: lx, cy: ly, r: 6 }));
    const numbers = ends || one.state === "pending" ? [] : [number(one.count), milliseconds(one.ms)];
    const right = numbers.join(" · ");
    made.append(
      nameOf(one, room - right.length * 6.5, texts, ly - 2),
      text(right, width - 6, ly - 2, "sub end"),
      foundText(one, room, texts, ly + 13),
    );
    parts.push(made);
  });
  if (more > 0) parts.push(text(t("railway.more", { n: more }), texts, row(fuseRow - 1) + 4, "sub start"));
  const stop = (one, at) => {
    const y = row(at);
    const made = s("g", { class: `station ${one.state} ${one.stage}`, "data-stage": one.stage });
    const below = [];
    if (typeof one.count === "number" && one.stage !== "transform") below.push(counted(one));
    if (typeof one.ms === "number") below.push(milliseconds(one.ms));
    const { text: detail, lang } = toldBy(one);
    const ours = one.stage === "query" || one.error || lang === null || lang === current();
    const told = [...(one.weights ?? []), ours ? detail : ""].filter(Boolean).join(" · ");
    const label = text(one.label, texts, told ? y - 2 : y + 4, one.kind === "switch" ? "name start strong" : "name start");
    if (one.kind === "switch") label.setAttribute("data-content", ""); // a strategy's name
    const note = text(fitted(told, room, 11), texts, y + 13, "sub start");
    if (one.stage === "query") note.setAttribute("data-content", "");
    made.append(symbol(one, x, y), label, text(below.join(" · "), width - 6, told ? y - 2 : y + 4, "sub end"), note);
    return made;
  };
  before.forEach((one, at) => parts.push(stop(one, at)));
  after.forEach((one, at) => parts.push(stop(one, fuseRow + at)));
  return picture(journey, width, last + 26, parts);
}

// ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────

function picture(journey, width, height, parts) {
  const box = { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": summary(journey) };
  return s("svg", { class: `railway phase-${journey.phase}`, ...box }, parts);
}

function track(d, state) {
  return s("path", { class: `track ${state}`, d });
}

function text(content, x, y, kind) {
  return s("text", { x, y, class: kind }, content);
}

/** A dataset's name, and the variant of the query searched for in it. */
function nameOf({ dataset, part }, room, x, y) {
  const own = s("tspan", { "data-content": true }, fitted(dataset, room));
  const variant = part && fitted(` · ${sourceName(part)}`, room - dataset.length * 6.7);
  return s("text", { x, y, class: "name start" }, own, variant);
}

function symbol({ kind, state, stage }, x, y) {
  if (kind === "switch") return s("path", { class: "switch", d: `M${x - 11} ${y}l11 -11l11 11l-11 11z` });
  if (state === "refused") return s("g", {}, s("circle", { class: "halt", cx: x, cy: y, r: 10 }),
    s("path", { class: "bar", d: `M${x - 5} ${y}h10` }));
  if (state === "degraded") return warning(x, y);
  const size = stage === "query" || stage === "answer" ? 10 : 7;
  return s("circle", { class: "stop", cx: x, cy: y, r: size });
}

/** A warning, also recognisable by its shape. */
function warning(x, y) {
  const triangle = s("path", { class: "sign", d: `M${x} ${y - 11}l11 19h-22z` });
  return s("g", {}, triangle, s("path", { class: "mark", d: `M${x} ${y - 5}v6M${x} ${y + 4}v1.5` }));
}

function buffer(x, y, down = false) {
  const bar = down ? `M${x - 8} ${y}h16` : `M${x} ${y - 8}v16`;
  const cross = `M${x - 4.5} ${y - 4.5}l9 9m0 -9l-9 9`;
  const [cx, cy] = down ? [0, 13] : [15, 0];
  return s("g", { class: "buffer" }, s("path", { d: bar }),
    s("path", { class: "cross", d: cross, transform: `translate(${cx} ${cy})` }));
}

function counted({ stage, count }) {
  return stage === "answer" ? t("hits", { n: count }) : number(count);
}

function found({ lists, error, state }) {
  if (state === "failed") return error ?? t("railway.not_back");
  if (state === "pending") return t("railway.under_way");
  if (error) return error;
  return lists.map(({ source, count }) => `${sourceName(source)} ${number(count)}`).join(" · ") || t("nothing");
}

/** The number of hits of a branch, or the service's error message. */
function foundText(one, room, x, y) {
  const kind = one.state === "failed" ? "sub start bad" : "sub start";
  return s("text", { x, y, class: kind, lang: one.error && "en" }, fitted(found(one), room, 11));
}

function branchTold(one) {
  const name = [one.dataset, one.part && sourceName(one.part)].filter(Boolean).join(", ");
  if (one.state === "pending") return `${name}: ${t("railway.under_way")}`;
  if (one.state === "failed") return `${name}: ${t("railway.branch_failed")} ${one.error ?? ""}`;
  return `${name}: ${found(one)}, ${milliseconds(one.ms)}`;
}

// ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Shows where time was spent: every stage and branch on one axis.
 * @param {Journey} journey a finished one
 * @returns {HTMLElement}
 */
export function timetable(journey) {
  return figureOf((width) => {
    const total = Math.max(journey.total ?? 0, 0.001);
    const [left, right] = [8, width - 8];
    const x = (ms) => left + ((right - left) * ms) / total;
    const stages = [...journey.before, ...journey.after];
    const lanes = Math.max(journey.branches.length, 1);
    const step = Math.max(2.5, Math.min(7, 40 / lanes));
    const bottom = 20 + lanes * step;
    const parts = stages.map((one) => {
      const wide = Math.max(x(one.ms) - left, 1.5);
      const name = `${stageName(one.stage)}: ${milliseconds(one.ms)}`;
      const bar = { class: `time ${one.stage}`, x: x(one.started), y: 4, width: wide, height: 11, rx: 2 };
      return s("rect", bar, s("title", {}, name));
    });
    journey.branches.forEach((one, at) => {
      if (one.ms === null) return;
      const bar = { x: x(one.started), y: 19 + at * step, width: Math.max(x(one.ms) - left, 1.5), height: step - 1.5 };
      parts.push(s("rect", { class: `time ${line(one.dataset)}`, ...bar }, s("title", { lang: one.error && "en" }, branchTold(one))));
    });
    for (const ms of ticks(0, total, Math.min(8, Math.max(2, Math.floor(width / 90))))) {
      parts.push(s("path", { class: "grid", d: `M${x(ms)} 2V${bottom + 3}` }));
      const anchor = x(ms) < 40 ? "sub start" : x(ms) > width - 40 ? "sub end" : "sub";
      parts.push(text(milliseconds(ms), x(ms) - (x(ms) < 40 ? 6 : 0), bottom + 15, anchor));
    }
    const label = t("railway.time", { time: milliseconds(total) });
    const box = { viewBox: `0 0 ${width} ${bottom + 20}`, width, height: bottom + 20, role: "img" };
    return s("svg", { class: "timetable", ...box, "aria-label": label }, parts);
  });
}

/**
 * The journey as a table.
 * @param {Journey} journey
 * @returns {HTMLElement}
 */
export function asTable(journey) {
  const rows = [];
  const row = (stage, what, one, bad) => {
    const note = toldBy(bad ? one : { ...one, error: null });
    const cells = [
      h("th", { scope: "row" }, stage),
      h("td", {}, plain(what)),
      h("td.number", {}, typeof one.count === "number" ? number(one.count) : "–"),
      h("td.number", {}, typeof one.ms === "number" ? milliseconds(one.ms) : "–"),
      h("td.number", {}, typeof one.started === "number" ? milliseconds(one.started) : "–"),
      h("td", { lang: note.lang }, bad ? h("strong.bad", {}, "⚠ ") : null, plain(note.text)),
    ];
    rows.push(h("tr", {}, cells));
  };
  for (const one of journey.before)
    row(stageName(one.stage), one.stage === "plan" ? journey.plan.strategy : "",
      one.stage === "plan" ? { ...one, detail: journey.plan.reason } : one, one.error !== null);
  for (const one of journey.branches) {
    const what = [one.dataset, one.part && sourceName(one.part)].filter(Boolean).join(", ");
    row(stageName("retrieve"), what, { ...one, detail: "" }, one.error !== null);
    if (one.error === null) rows.at(-1).lastChild.append(found(one));
  }
  for (const one of journey.after) row(stageName(one.stage), "", one, one.error !== null);
  const heads = ["stage", "what", "candidates", "took", "began", "note"].map((name) =>
    h("th", { scope: "col" }, t(`railway.column.${name}`)),
  );
  return h("div.scroll", { tabindex: 0, role: "region", "aria-label": t("railway.table") },
    h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)));
}

/** @param {number | null} value */
export function scored(value) {
  return value === null ? "–" : score(value);
}
