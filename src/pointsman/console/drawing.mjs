/** Drawings that fit the room they have, and are drawn anew when that or the language changes. */

import { live } from "./dom.mjs";

/** An element that draws itself into the width that it has. */
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

  /** Draw again before the next frame. */
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

/** A drawing that a function makes out of a width. */
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
 * Round numbers between two bounds, some `count` of them.
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
 * A text cut so that it takes no more than a width; letters are taken for as wide as they are on average.
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
