/**
 * Elements out of plain values. Text becomes text nodes and nothing else: documents are hostile, and so is whatever
 * a service says. There is no way in this module, and none beside it, from a string to markup.
 *
 * A function in the place of a text or an attribute is asked again whenever the language changes (`relabel`).
 */

const SVG = "http://www.w3.org/2000/svg";

/** @type {WeakMap<Element, Array<() => void>>} */
const labels = new WeakMap();

/** @typedef {Node | string | number | null | undefined | false | (() => string)} Child */

/**
 * An HTML element.
 * @param {string} tag its name; `.class` may follow
 * @param {Record<string, unknown>} [attributes] `on` holds listeners; true, false and null set or leave out; a function
 *   is asked again when the language changes
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(...named(tag, attributes)), attributes, children);
}

/**
 * An SVG element; as `h`.
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, ...named(tag, attributes)), attributes, children);
}

/**
 * Let a text or attribute of an element follow the language.
 * @param {Element} element
 * @param {() => void} update
 */
export function live(element, update) {
  update();
  const known = labels.get(element);
  if (known) known.push(update);
  else {
    labels.set(element, [update]);
    element.setAttribute("data-live", "");
  }
}

/**
 * Say everything below a node anew, after the language has changed.
 * @param {ParentNode} root
 */
export function relabel(root) {
  for (const element of root.querySelectorAll("[data-live]")) labels.get(element)?.forEach((update) => update());
}

function named(tag, attributes) {
  const [name, ...classes] = tag.split(".");
  if (classes.length) attributes.class = [...classes, attributes.class].filter(Boolean).join(" ");
  return [name];
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (typeof value === "function") live(element, () => set(element, name, value()));
    else set(element, name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    if (typeof child === "function") {
      const text = document.createTextNode("");
      live(element, () => (text.data = child()));
      element.append(text);
    } else element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (name === "value" && "value" in element) element.value = value;
  else element.setAttribute(name, value === true ? "" : value);
}
