/** Plots of evaluations: bars have figures, colours have shapes, and every plot has a table. */

import { h, s } from "./dom.mjs";
import { figureOf, fitted, ticks } from "./drawing.mjs";
import { figure, milliseconds, moment, number } from "./i18n.mjs";

const SHAPES = ["circle", "square", "triangle", "diamond", "cross", "ring"];

/**
 * A horizontal bar for each name, with its value; the best is marked.
 * @param {{name: string, value: number}[]} found
 * @param {() => string} label
 * @returns {HTMLElement}
 */
export function bars(found, label) {
  return figureOf((width) => {
    const most = Math.max(...found.map(({ value }) => value), 0.001);
    const names = Math.min(140, 14 + Math.max(...found.map(({ name }) => name.length)) * 7.2);
    const room = width - names - 64;
    const parts = found.flatMap(({ name, value }, at) => {
      const y = 6 + at * 28;
      const best = value === most ? " best" : "";
      return [
        s("text", { class: "name end code", x: names - 10, y: y + 15 }, fitted(name, names - 12)),
        s("rect", { class: `bar${best}`, x: names, y: y + 2, width: Math.max((room * value) / most, 1), height: 18,
          rx: 3 }),
        s("text", { class: `value start${best}`, x: names + (room * value) / most + 8, y: y + 16 }, figure(value, 3)),
      ];
    });
    return frame(width, found.length * 28 + 10, label(), parts);
  });
}

/**
 * Quality against time: a point for each name at its median, a whisker to its 95th percentile.
 * @param {{name: string, p50: number, p95: number, value: number}[]} found
 * @param {{label: () => string, x: () => string, y: () => string}} told
 * @returns {HTMLElement}
 */
export function scatter(found, { label, x: xName, y: yName }) {
  return figureOf((width) => {
    const [left, right, top, bottom] = [52, width - 18, 22, 226];
    const values = found.map(({ value }) => value);
    const pad = Math.max((Math.max(...values) - Math.min(...values)) * 0.18, 0.01);
    const [low, high] = [Math.max(Math.min(...values) - pad, 0), Math.min(Math.max(...values) + pad, 1)];
    const times = found.flatMap(({ p50, p95 }) => [p50, p95]).map((one) => Math.max(one, 0.01));
    const [from, to] = [Math.log10(Math.min(...times) * 0.8), Math.log10(Math.max(...times) * 1.25)];
    const x = (ms) => left + ((right - left) * (Math.log10(Math.max(ms, 0.01)) - from)) / (to - from);
    const y = (value) => bottom - ((bottom - top) * (value - low)) / (high - low);
    const parts = axis(ticks(low, high, 5), y, left, right);
    let free = -Infinity;
    for (const ms of logarithmic(10 ** from, 10 ** to)) {
      parts.push(s("path", { class: "grid", d: `M${x(ms)} ${top}V${bottom}` }));
      if (x(ms) < free || x(ms) > right - 10) continue;
      free = x(ms) + 62;
      parts.push(s("text", { class: "sub", x: x(ms), y: bottom + 16 }, milliseconds(ms)));
    }
    parts.push(s("text", { class: "sub end", x: right, y: bottom + 34 }, xName()),
      s("text", { class: "sub start", x: 4, y: 12 }, yName()));
    const taken = [];
    found.toSorted((a, b) => b.value - a.value).forEach((one) => {
      const at = found.indexOf(one);
      const [px, py] = [x(one.p50), y(one.value)];
      const wide = one.name.length * 7;
      const flip = px + 12 + wide > right;
      const clash = (y_) => taken.some(([tx, ty, tw]) => Math.abs(ty - y_) < 13 && px < tx + tw + 10 && tx < px + wide + 10);
      const ly = [-9, 18, -22, 31, -35, 44].map((by) => py + by).find((one) => !clash(one)) ?? py - 9;
      taken.push([flip ? px - wide : px, ly, wide]);
      parts.push(s("g", { class: `point line-${at % 8}` },
        s("title", {}, `${one.name}: ${figure(one.value, 4)}, ${milliseconds(one.p50)} – ${milliseconds(one.p95)}`),
        s("path", { class: "whisker", d: `M${px} ${py}H${x(one.p95)}m0 -4v8` }),
        shape(SHAPES[at % SHAPES.length], px, py),
        s("text", { class: `name code ${flip ? "end" : "start"}`, x: px + (flip ? -8 : 8), y: ly }, one.name)));
    });
    return frame(width, bottom + 42, label(), parts);
  });
}

/**
 * Values over time: a line for each name.
 * @param {{name: string, points: {time: string, value: number}[]}[]} series
 * @param {() => string} label
 * @returns {HTMLElement}
 */
export function history(series, label) {
  return figureOf((width) => {
    const wide = Math.min(110, 16 + Math.max(...series.map(({ name }) => name.length)) * 7.4);
    const [left, right, top, bottom] = [52, width - wide, 14, 190];
    const values = series.flatMap(({ points }) => points.map(({ value }) => value));
    const pad = Math.max((Math.max(...values) - Math.min(...values)) * 0.15, 0.01);
    const [low, high] = [Math.max(Math.min(...values) - pad, 0), Math.min(Math.max(...values) + pad, 1)];
    const times = [...new Set(series.flatMap(({ points }) => points.map(({ time }) => time)))].toSorted();
    const x = (time) => left + ((right - left - 20) * times.indexOf(time)) / Math.max(times.length - 1, 1) + 8;
    const y = (value) => bottom - ((bottom - top) * (value - low)) / (high - low);
    const parts = axis(ticks(low, high, 5), y, left, right);
    parts.push(s("text", { class: "sub start", x: left, y: bottom + 18 }, moment(times[0])));
    if (times.length > 1 && right - left > 300)
      parts.push(s("text", { class: "sub end", x: right, y: bottom + 18 }, moment(times.at(-1))));
    const ends = new Map(); // positions of the names: at the lines' ends, one below another
    let above = -Infinity;
    for (const { name, points } of series.toSorted((a, b) => b.points.at(-1).value - a.points.at(-1).value)) {
      above = Math.max(above + 14, y(points.at(-1).value) + 4);
      ends.set(name, above);
    }
    series.forEach(({ name, points }, at) => {
      const d = points.map(({ time, value }, i) => `${i ? "L" : "M"}${x(time)} ${y(value)}`).join("");
      parts.push(s("g", { class: `series line-${at % 8}` }, s("path", { class: "curve", d }),
        points.map(({ time, value }) => s("g", {}, s("title", {}, `${name}, ${moment(time)}: ${figure(value, 4)}`),
          shape(SHAPES[at % SHAPES.length], x(time), y(value)))),
        s("text", { class: "name start code", x: right + 2, y: ends.get(name) }, fitted(name, wide))));
    });
    return frame(width, bottom + 28, label(), parts);
  });
}

/**
 * A plot with a heading, and its data as a table.
 * @param {() => string} title
 * @param {HTMLElement} plot
 * @param {() => string} name of the table
 * @param {HTMLElement} table
 * @returns {HTMLElement}
 */
export function plotted(title, plot, name, table) {
  return h("section.card.plot", {}, h("h2", {}, title), plot, h("details", {}, h("summary", {}, name), table));
}

function axis(values, y, left, right) {
  return values.flatMap((value) => [
    s("path", { class: "grid", d: `M${left} ${y(value)}H${right}` }),
    s("text", { class: "sub end", x: left - 6, y: y(value) + 4 }, number(value, 3)),
  ]);
}

function frame(width, height, label, parts) {
  const box = { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label };
  return s("svg", { class: "chart", ...box }, parts);
}

function logarithmic(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const digit of [1, 2, 5]) found.push(digit * 10 ** power);
  return found.filter((one) => one >= low && one <= high);
}

function shape(kind, x, y) {
  switch (kind) {
    case "square":
      return s("rect", { class: "shape", x: x - 4.5, y: y - 4.5, width: 9, height: 9 });
    case "triangle":
      return s("path", { class: "shape", d: `M${x} ${y - 6}l5.5 10h-11z` });
    case "diamond":
      return s("path", { class: "shape", d: `M${x} ${y - 6}l6 6l-6 6l-6 -6z` });
    case "cross":
      return s("path", { class: "shape open", d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` });
    case "ring":
      return s("circle", { class: "shape open", cx: x, cy: y, r: 4.5 });
    default:
      return s("circle", { class: "shape", cx: x, cy: y, r: 5 });
  }
}
