/** Icons beside words, never instead of them. */

import { s } from "./dom.mjs";

const PICTURES = {
  halt: () => [s("circle", { cx: 10, cy: 10, r: 8.5, class: "full" }), s("path", { d: "M6 10h8", class: "gap" })],
  warning: () => [s("path", { d: "M10 2.5l8 14.5h-16z" }), s("path", { d: "M10 8v4.2m0 2.2v.3" })],
  key: () => [s("path", { d: "M11.2 10.3a4.2 4.2 0 1 1 1-3a4.2 4.2 0 0 1-1 3zL18 17m-2.7-2.7l-1.9 1.9" })],
  switch: () => [s("path", { d: "M1.5 10l8.5-8.5l8.5 8.5l-8.5 8.5z", class: "full" })],
  line: () => [s("path", { d: "M1 10h18", class: "thick" }), s("circle", { cx: 10, cy: 10, r: 3.5, class: "hole" })],
  buffer: () => [s("path", { d: "M0 10h8", class: "dashed" }), s("path", { d: "M9 4v12m4 -9l6 6m0 -6l-6 6" })],
};

/**
 * @param {keyof PICTURES} name
 * @returns {SVGElement}
 */
export function sign(name) {
  const box = { viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true", class: `sign sign-${name}` };
  return s("svg", box, PICTURES[name]());
}
