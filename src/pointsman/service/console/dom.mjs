/**
 * Creates elements from plain values. Text only ever becomes text nodes: documents and the service's messages are
 * untrusted. Neither this module nor any other turns a string into markup.
 *
 * A function in place of a text or an attribute is called again whenever the language changes (`relabel`).
 */

const SVG = "http://www.w3.org/2000/svg";

/** @type {WeakMap<Element, Array<() => void>>} */
const labels = new WeakMap();

/** @typedef {Node | string | number | null | undefined | false | (() => string)} Child */

/**
 * Creates an HTML element.
 * @param {string} tag its name; `.class` may follow
 * @param {Record<string, unknown>} [attributes] `on` holds listeners; true sets an attribute, false and null omit it;
 *   a function is called again when the language changes
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(...named(tag, attributes)), attributes, children);
}

/**
 * Creates an SVG element, like `h`.
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, ...named(tag, attributes)), attributes, children);
}

/**
 * Updates a text or attribute of an element when the language changes.
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
 * Updates all texts below a node after a change of language.
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
