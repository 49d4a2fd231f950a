/** Routes by the form of a question, as `router_select` chooses them, and how many questions took each. */

import { get, post } from "./api.mjs";
import { h } from "./dom.mjs";
import { number, reasoned, t } from "./i18n.mjs";
import { problemCard } from "./notices.mjs";

/** A form that tells the route of a question, and why; the service counts it for the dataset. */
export function routeForm(name) {
  const answer = h("div", { "aria-live": "polite" });
  const counts = h("div");
  let asked = 0;
  const input = h("input", { type: "text", id: "route", autocomplete: "off", required: true });
  const count = async () => {
    const { routes } = await get(`datasets/${encodeURIComponent(name)}`);
    counts.replaceChildren(...(routes?.length ? [routeCounts(name, routes)] : [])); // null while access is on
  };
  const tell = async (event) => {
    event?.preventDefault();
    const mine = (asked += 1);
    try {
      if (event) {
        const { heuristic: { route, reasons } } = await post("route", { query: input.value, datasets: [name] });
        if (mine !== asked) return; // another question was asked meanwhile
        answer.replaceChildren(h("p", {}, h("strong", {}, h("code", {}, route)), " ", reasons.map(inWords)));
      }
      await count();
    } catch (error) {
      if (mine === asked) answer.replaceChildren(problemCard(error));
    }
  };
  tell();
  return h("section", {},
    h("form", { on: { submit: tell } }, h("label", { for: "route" }, () => t("datasets.route")), " ", input, " ",
      h("button", { type: "submit" }, () => t("evaluation.route"))),
    answer, counts);
}

/** The questions that took each route for each reason, as a table. */
export function routeCounts(name, routes) {
  const label = () => t("evaluation.routes", { name });
  const heads = ["evaluation.route", "evaluation.reason", "evaluation.queries"]
    .map((key) => h("th", { scope: "col" }, () => t(key)));
  const rows = routes.map(({ route, reason, queries }) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, route)),
    h("td", {}, inWords(reason)), h("td.number", {}, () => number(queries))));
  return h("section", {}, h("h2", {}, label), h("div.scroll", { tabindex: 0, role: "region", "aria-label": label },
    h("table.narrow", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows))));
}

/** The code of a reason, and its words; one of a rule of the settings has only those it was given. */
function inWords(reason) {
  return [h("code", {}, reason), " ", () => {
    const { text } = reasoned([{ code: reason, values: {} }], reason);
    return text === reason ? "" : text;
  }];
}
