/** The path of one document: its rank in every list and after every stage, as a drawing, a table and a sentence. */

import { h, s } from "./dom.mjs";
import { figureOf, fitted } from "./drawing.mjs";
import { plain } from "./highlight.mjs";
import { figure, listed, number, said, t } from "./i18n.mjs";
import { scored, sourceName, stageName } from "./railway.mjs";

/**
 * @typedef {{stage: string, source: string, rank: number | null, score: number | null, count: number,
 *   lowest: number | null, reason: string | null}} Step as in `POST /api/explain`
 */

/**
 * Returns the steps of every hit of an answer, from the rankings in its trace.
 * @param {any} answer
 * @returns {(dataset: string | null, id: string) => Step[]}
 */
export function stepsOf(answer) {
  const records = (answer.trace?.records ?? []).map(({ stage, source, ranking, dropped }) => ({
    stage,
    source,
    places: new Map(ranking.map(([dataset, id, score], at) => [pair(dataset, id), { rank: at + 1, score }])),
    reasons: new Map(dropped.map(([dataset, id, reason]) => [pair(dataset, id), reason])),
    lowest: ranking.at(-1)?.[2] ?? null,
  }));
  return (dataset, id) =>
    records.map(({ stage, source, places, reasons, lowest }) => {
      const { rank = null, score = null } = places.get(pair(dataset, id)) ?? {};
      const reason = reasons.get(pair(dataset, id)) ?? null;
      return { stage, source, rank, score, count: places.size, lowest, reason };
    });
}

/**
 * Describes in one sentence where a document is ranked, or why it is not.
 * @param {{steps: Step[], rank: number | null, summary?: string}} explanation
 * @returns {Node}
 */
export function wayInWords({ steps, rank, summary: told = "" }) {
  const lists = steps.filter(({ stage }) => stage === "retrieve");
  const found = lists.filter((step) => step.rank !== null);
  const by = found.map((step) => t("way.by", { list: sourceName(step.source), rank: step.rank, n: step.count }));
  if (rank !== null)
    return words(found.length ? t("way.found", { rank, by: listed(by) }) : t("way.number", { rank }));
  const out = steps.find(({ reason }) => reason);
  if (out) return h("span", {}, t("way.taken_out", { stage: stageName(out.stage) }), " ", quoted(out.reason));
  if (!found.length) {
    const known = said(told);
    if (!lists.length || !known.lang) return quoted(told);
    const missed = lists.map((step) =>
      step.score === null || step.lowest === null
        ? t("way.holds_others", { list: sourceName(step.source), n: step.count })
        : t(step.score > step.lowest ? "way.filtered" : "way.too_low", {
            list: sourceName(step.source),
            score: figure(step.score, 3),
            lowest: figure(step.lowest, 3),
            n: step.count,
          }),
    );
    return words(`${t("way.no_list")} ${missed.join("; ")}`);
  }
  const last = steps.findLast((step) => step.rank !== null);
  const answered = steps.at(-1).stage === "answer" ? steps.at(-1).count : 0;
  const after = last.stage === "retrieve" ? sourceName(last.source) : stageName(last.stage);
  return words(t("way.fell", { rank: last.rank, n: last.count, stage: after, answered }));
}

/**
 * Draws the path: stacked lists lead into the stages; ranks run downwards, the first on top.
 * @param {Step[]} steps
 * @returns {HTMLElement}
 */
export function wayFigure(steps) {
  return figureOf((width) => {
    const most = Math.max(10, ...steps.map(({ count }) => count));
    const [top, bottom, left, right] = [30, 150, 44, width - 34];
    const gap = (right - left) / Math.max(steps.length - 1, 1);
    const y = (rank) => top + ((bottom - top) * Math.log(rank)) / Math.log(most);
    const absent = bottom + 24;
    const points = steps.map((step, at) => ({ ...step, x: left + at * gap, y: step.rank ? y(step.rank) : absent }));
    const lists = points.filter(({ stage }) => stage === "retrieve");
    const stages = points.filter(({ stage }) => stage !== "retrieve");
    const parts = [];
    for (const rank of [1, 10, 100, 1000].filter((one) => one <= most)) {
      parts.push(s("path", { class: "grid", d: `M${left - 10} ${y(rank)}H${right + 12}` }));
      parts.push(s("text", { class: "sub end", x: left - 16, y: y(rank) + 4 }, number(rank)));
    }
    parts.push(s("path", { class: "grid dashed", d: `M${left - 10} ${absent}H${right + 12}` }));
    parts.push(s("text", { class: "sub end", x: left - 16, y: absent + 4 }, "–"));
    const first = stages[0];
    if (first) for (const from of lists) if (from.rank) parts.push(link(from, first, "from-list"));
    stages.slice(1).forEach((to, at) => parts.push(link(stages[at], to, "by-stage")));
    points.forEach((one, at) => {
      const name = one.stage === "retrieve" ? sourceName(one.source) : stageName(one.stage);
      const kind = `${one.rank ? "there" : "absent"} ${one.stage === "retrieve" ? "list" : "stage"}`;
      parts.push(
        s("circle", { class: kind, cx: one.x, cy: one.y, r: one.stage === "answer" ? 7 : 5 }),
        s("text", { class: "name", x: one.x, y: at % 2 && gap < 76 ? absent + 34 : absent + 20 },
          fitted(name, gap < 76 ? gap * 2 - 8 : gap - 6, 12)),
      );
      if (one.rank) parts.push(s("text", { class: "count", x: one.x, y: one.y - 10 }, number(one.rank)));
    });
    const height = absent + (gap < 76 ? 42 : 28);
    const box = { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" };
    return s("svg", { class: "way", ...box, "aria-label": t("way.drawn") }, parts);
  });
}

/**
 * Shows the path as a table.
 * @param {Step[]} steps
 * @returns {HTMLElement}
 */
export function wayTable(steps) {
  const heads = ["where", "rank", "score", "lowest"].map((name) => h("th", { scope: "col" }, () => t(`way.${name}`)));
  const rows = steps.map((step) => {
    const name = () => (step.stage === "retrieve" ? sourceName(step.source) : stageName(step.stage));
    return h("tr", { class: step.stage === "retrieve" ? "list" : null },
      h("th", { scope: "row" }, name),
      h("td.number", {}, () => step.rank === null ? t("way.absent_of", { n: step.count })
        : t("way.rank_of", { rank: step.rank, n: step.count })),
      h("td.number", {}, () => scored(step.score)),
      h("td.number", {}, () => scored(step.lowest)));
  });
  return h("div.scroll", { tabindex: 0, role: "region", "aria-label": () => t("way.table") },
    h("table.narrow", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)));
}

function link(from, to, kind) {
  const middle = (from.x + to.x) / 2;
  return s("path", { class: `link ${kind}${from.rank && to.rank ? "" : " lost"}`,
    d: `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}` });
}

function words(text) {
  return document.createTextNode(text);
}

function quoted(text) {
  const { text: told, lang } = said(text);
  return h("q", { lang }, plain(told));
}

function pair(dataset, id) {
  return `${dataset ?? ""}\n${id}`;
}
