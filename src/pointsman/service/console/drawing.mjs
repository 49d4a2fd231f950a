/** Drawings that fit the available width, and are redrawn when the width or the language changes. */

import { live } from "./dom.mjs";

/** An element that draws itself to fit its width. */
export class Drawing extends HTMLElement {
  #observer = new ResizeObserver(() => this.#resized());
  #width = 0;
  #wanted = 0;

  connectedCallback() {
    this.#observer.observe(this);
    if (!this.hasAttribute("data-live")) live(this, () => this.redraw());
  }

  disconnectedCallback() {
    this.#observer.disconnect();
  }

  /** Redraws before the next frame. */
  redraw() {
    if (this.#wanted || !this.isConnected) return;
    this.#wanted = requestAnimationFrame(() => {
      this.#wanted = 0;
      this.#width = this.clientWidth;
      if (this.#width) this.replaceChildren(...[this.draw(this.#width)].flat().filter(Boolean));
    });
  }

  /**
   * @param {number} _width in pixels
   * @returns {Node | Node[] | null}
   */
  draw(_width) {
    throw new TypeError("a drawing draws something");
  }

  #resized() {
    if (Math.abs(this.clientWidth - this.#width) > 1) this.redraw();
  }
}

/** A drawing made by a function of the width. */
class Figure extends Drawing {
  /** @type {(width: number) => Node | Node[] | null} */
  make = () => null;

  draw(width) {
    return this.make(width);
  }
}

customElements.define("pm-figure", Figure);

/**
 * @param {(width: number) => Node | Node[] | null} make
 * @param {string} [name] a class
 * @returns {HTMLElement}
 */
export function figureOf(make, name = "") {
  const element = document.createElement("pm-figure");
  element.className = name;
  element.make = make;
  return element;
}

/**
 * Returns about `count` round numbers between two bounds.
 * @param {number} low
 * @param {number} high
 * @param {number} [count]
 * @returns {number[]}
 */
export function ticks(low, high, count = 5) {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / count));
  const step = power * [1, 2, 5, 10].find((factor) => span / (power * factor) <= count);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, at) => (first + at) * step);
}

/**
 * Cuts a text to a width, assuming letters of average width.
 * @param {string} text
 * @param {number} width in pixels
 * @param {number} [size] of the letters, in pixels
 */
export function fitted(text, width, size = 12) {
  let taken = 0;
  let kept = "";
  for (const letter of text) {
    taken += size * (/[\u2e80-\uffef]/u.test(letter) ? 1 : 0.56);
    if (taken > width) return `${kept.slice(0, -1)}…`;
    kept += letter;
  }
  return text;
}
