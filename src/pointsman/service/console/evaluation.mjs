/** Evaluation: the quality and the cost of each strategy on labelled collections. */

import { get, keys } from "./api.mjs";
import { h } from "./dom.mjs";
import { figure, milliseconds, moment, number, t } from "./i18n.mjs";
import { filled, problemCard } from "./notices.mjs";
import { address, here } from "./place.mjs";
import { bars, history, plotted, scatter } from "./plots.mjs";
import { routeCounts } from "./routes.mjs";

const MEASURE = "ndcg@10";

/** `<pm-evaluation>` */
export class EvaluationView extends HTMLElement {
  #runs = null;
  #built = false;

  connectedCallback() {
    if (this.#built) return;
    this.#built = true;
    keys.addEventListener("changed", () => {
      this.#runs = null;
      if (this.isConnected && !this.hidden) this.show(here().params);
    });
  }

  /** @param {URLSearchParams} params */
  show(params) {
    filled(this, async () => {
      try {
        this.#runs = (await get("evaluations")).runs;
      } catch (error) {
        if (error.status === 403) return forbidden(error);
        throw error;
      }
      return this.#runs.length ? shown(this.#runs, params) : none();
    });
  }
}

customElements.define("pm-evaluation", EvaluationView);

function forbidden(error) {
  const card = problemCard(error);
  return [h("div.welcome", {}, h("h2", {}, () => t("evaluation.forbidden")),
    h("p", {}, () => t("evaluation.forbidden.more"))), card];
}

function none() {
  return h("div.welcome", {}, h("h2", {}, () => t("evaluation.none")), h("p", {}, () => t("evaluation.none.more")),
    h("pre", {}, h("code", {}, "pointsman eval questions.csv --workspace WORKSPACE")));
}

function shown(runs, params) {
  const collections = [...new Set(runs.map(({ dataset }) => dataset))];
  const collection = collections.includes(params.get("on")) ? params.get("on") : collections[0];
  const own = runs.filter(({ dataset }) => dataset === collection);
  const run = own.find(({ time }) => time === params.get("run")) ?? own[0];
  const measures = measuresOf(run);
  const measure = measures.includes(params.get("m")) ? params.get("m")
    : measures.includes(MEASURE) ? MEASURE : measures[0];
  const go = (change) => {
    const to = { on: collection, run: run === own[0] ? "" : run.time, m: measure === MEASURE ? "" : measure, ...change };
    location.hash = address("evaluation", to);
  };
  const found = Object.entries(run.strategies).map(([name, one]) => ({ name, value: one[measure] ?? 0,
    p50: one.latency_ms?.p50 ?? 0, p95: one.latency_ms?.p95 ?? 0, ...(run.against_best_fixed?.[name] ?? {}) }));
  const picks = h("div.fields.card", {},
    pick("on", "evaluation.collection", collections.map((one) => [one, () => one]), collection,
      (on) => go({ on, run: "" })),
    pick("run", "evaluation.run", own.map(({ time }) => [time, () => moment(time)]), run.time, (time) => go({ run: time })),
    pick("measure", "evaluation.measure", measures.map((one) => [one, () => one]), measure, (m) => go({ m })),
    h("p.muted", {}, () => t("evaluation.about", { documents: run.documents, queries: run.queries })));
  const label = () => t("evaluation.bars", { measure });
  const parts = [h("h1.unseen", {}, () => t("view.evaluation")), picks,
    h("div.plots", {},
      plotted(label, bars(found, label), () => t("table"), table(run, measures)),
      plotted(() => t("evaluation.cost", { measure }), scatter(found, { label: () => t("evaluation.cost", { measure }),
        x: () => t("evaluation.median"), y: () => measure }), () => t("table"), table(run, measures)))];
  for (const [name, { routes }] of Object.entries(run.strategies)) if (routes?.length) parts.push(routeCounts(name, routes));
  if (own.length > 1) parts.push(over(own.toReversed(), measure));
  return parts;
}

function measuresOf(run) {
  const first = Object.values(run.strategies)[0] ?? {};
  return Object.keys(first).filter((name) => typeof first[name] === "number");
}

function pick(id, label, options, value, change) {
  const select = h("select", { id: `e-${id}`, on: { change: ({ target }) => change(target.value) } },
    options.map(([one, told]) => h("option", { value: one, "data-content": true }, told)));
  select.value = value;
  return h("div.field", {}, h("label", { for: `e-${id}` }, () => t(label)), select);
}

function table(run, measures) {
  const best = (measure) => Math.max(...Object.values(run.strategies).map((one) => one[measure]));
  const heads = [h("th", { scope: "col" }, () => t("evaluation.strategy")),
    ...measures.map((measure) => h("th", { scope: "col" }, h("code", {}, measure))),
    h("th", { scope: "col" }, h("code", {}, "p50")), h("th", { scope: "col" }, h("code", {}, "p95"))];
  const rows = Object.entries(run.strategies).map(([name, one]) => h("tr", {},
    h("th", { scope: "row" }, h("code", {}, name)),
    measures.map((measure) => h("td.number", {}, one[measure] === best(measure)
      ? h("strong", {}, () => figure(one[measure], 4)) : () => figure(one[measure] ?? 0, 4))),
    ["p50", "p95"].map((name_) => h("td.number", {}, () => milliseconds(one.latency_ms?.[name_] ?? 0)))));
  return scroll(() => t("evaluation.table"), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows));
}

/** Shows how a collection's figures changed between runs. */
function over(runs, measure) {
  const names = [...new Set(runs.flatMap(({ strategies }) => Object.keys(strategies)))];
  const series = names.map((name) => ({
    name,
    points: runs.filter(({ strategies }) => typeof strategies[name]?.[measure] === "number")
      .map(({ time, strategies }) => ({ time, value: strategies[name][measure] })),
  })).filter(({ points }) => points.length);
  const label = () => t("evaluation.history", { measure });
  const rows = runs.map((run) => h("tr", {}, h("th", { scope: "row" }, () => moment(run.time)),
    h("td.number", {}, () => number(run.queries)),
    names.map((name) => h("td.number", {}, () => typeof run.strategies[name]?.[measure] === "number"
      ? figure(run.strategies[name][measure], 4) : "–"))));
  const heads = [h("th", { scope: "col" }, () => t("evaluation.run")), h("th", { scope: "col" },
    () => t("evaluation.queries")), ...names.map((name) => h("th", { scope: "col" }, h("code", {}, name)))];
  return plotted(label, history(series, label), () => t("table"),
    scroll(label, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)));
}

function scroll(label, ...parts) {
  return h("div.scroll", { tabindex: 0, role: "region", "aria-label": label }, h("table.narrow", {}, parts));
}
