/** The language of the interface: texts, numbers, and known messages of the service. */

import { relabel } from "./dom.mjs";
import { kept } from "./keep.mjs";
import { MESSAGES } from "./messages.mjs";
import { REASONS } from "./reasons.mjs"; // made by the service

/** The languages, by their own names. */
export const LANGUAGES = { en: "English", zh: "中文", ru: "Русский" };

const chosen = kept("localStorage", "language");
let language = preferred();
document.documentElement.lang = tag();

/** @returns {string} the language's code */
export function current() {
  return language;
}

/**
 * Changes the language.
 * @param {string} code
 */
export function speak(code) {
  if (!Object.hasOwn(LANGUAGES, code)) return;
  chosen.set(code);
  language = code;
  document.documentElement.lang = tag();
  relabel(document);
  document.dispatchEvent(new CustomEvent("languagechanged"));
}

/**
 * A text of the interface.
 * @param {string} key
 * @param {Record<string, string | number>} [values] numbers are formatted for the language; `n` decides the
 *   plural
 * @returns {string}
 */
export function t(key, values = {}) {
  if (!Object.hasOwn(MESSAGES[language], key)) throw new RangeError(`no text ${key} in ${language}`);
  const found = MESSAGES[language][key];
  const text = typeof found === "string" ? found : (found[plurals().select(values.n)] ?? found.other);
  return text.replace(/\{(\w+)\}/g, (_, name) =>
    typeof values[name] === "number" ? number(values[name]) : String(values[name]),
  );
}

/**
 * Returns whether this text exists.
 * @param {string} key
 */
export function has(key) {
  return Object.hasOwn(MESSAGES.en, key);
}

/** Patterns of values that are not of any words up to the next statement. */
const VALUES = {
  error: "[A-Z]\\w+(?:: (?:(?!; ).)+)?", stage: "\\w+", of: "[^:;：；]+", part: "(?:(?!; |；)[^\\n])+",
  quoted: "'[^;；]*'", position: "\\d+", count: "[\\d,]+",
};

/**
 * The codes of reasons by their words in each language, which traces have: those that say most first. A value has no
 * end of a statement in it, and an error begins with its type.
 */
const CODES = Object.entries(REASONS)
  .flatMap(([code, texts]) => texts
    .filter((text) => text.split("{").length === texts[0].split("{").length) // else a value would be missing
    .map((text) => [code, text, text.replace(/\{\w+\}/g, "").length]))
  .sort(([, , length], [, , other]) => other - length)
  .map(([code, text]) => {
    const words = text.replace(/[.*+?^$()|[\]\\]/g, "\\$&").replace(/\{(\w+)\}/g, (_, name) =>
      `(?<${name}>${VALUES[name] ?? "(?:(?!; |；).)+"})`);
    return [new RegExp(`(?:calibrated(?: with variants)?: )?${words}(?:; |；|$)`, "sy"), code];
  });

/**
 * A reason, or a part of one, in the language of the interface.
 * @param {string} code
 * @param {Record<string, string | number>} [values]
 * @returns {string}
 */
export function worded(code, values = {}) {
  const words = REASONS[code][Object.keys(LANGUAGES).indexOf(language)];
  return words.replace(/\{(\w+)\}/g, (_, name) => (name === "part" || name === "cause" ? said(String(values[name])).text : String(values[name])));
}

/**
 * Returns a reason in the language of the interface if its codes are known, else as the service said it.
 * @param {{code: string, values: Record<string, string | number>}[]} reasons
 * @param {string} text
 * @returns {{text: string, lang: string | null}} its language if different from that of the interface
 */
export function reasoned(reasons, text) {
  if (!reasons.length || !reasons.every(({ code }) => Object.hasOwn(REASONS, code))) return said(text);
  const parts = reasons.map(({ code, values }) => worded(code, values));
  return { text: parts.join(language === "zh" ? "；" : "; "), lang: null };
}

/**
 * Translates a message of the service if it is known, else returns it unchanged.
 * @param {string} text
 * @param {number} [depth] of parts in parts
 * @returns {{text: string, lang: string | null}} its language if different from that of the interface
 */
export function said(text, depth = 3) {
  if (text.length > 500 || !depth) return asWritten(text); // it quotes somebody else, whose words could take long
  const parts = [];
  for (let at = 0, match = null; at < text.length; at += match[0].length) {
    const known = CODES.find(([pattern]) => {
      pattern.lastIndex = at;
      match = pattern.exec(text);
      return match && (match.groups?.part === undefined || !said(match.groups.part, depth - 1).lang);
    });
    if (!known || (known[1] === "of_error" && match[0] === text)) return asWritten(text);
    parts.push(worded(known[1], match.groups ?? {}));
  }
  return { text: parts.join(language === "zh" ? "；" : "; "), lang: null };
}

function asWritten(text) {
  return { text, lang: /\p{Script=Han}/u.test(text) ? "zh" : "en" };
}

/**
 * What a station of the journey tells, translated; the words of a question stay as they are.
 * @param {{stage: string, error: string | null, detail: string | null}} one
 */
export function toldBy({ stage, error, detail }) {
  const text = error ?? detail ?? "";
  return stage === "query" ? asWritten(text) : said(text);
}

/**
 * @param {number} value
 * @param {number} [digits] maximum decimals
 */
export function number(value, digits = 3) {
  return format({ maximumFractionDigits: digits }).format(value);
}

/**
 * Formats with a fixed number of digits, so that figures align.
 * @param {number} value
 * @param {number} digits
 */
export function figure(value, digits) {
  return format({ minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
}

/** @param {number} value a score, whatever its scale */
export function score(value) {
  return format({ maximumSignificantDigits: 4 }).format(value);
}

/** @param {number} value between 0 and 1 */
export function percent(value) {
  const digits = value < 0.1 ? 1 : 0;  // rounded down, so that 49.6 % is not called 50 % beside the word for less
  return format({ style: "percent", maximumFractionDigits: digits, roundingMode: "floor" }).format(value + 1e-9);
}

/** @param {number} value */
export function milliseconds(value) {
  const digits = value < 10 ? 2 : value < 100 ? 1 : 0;
  return format({ style: "unit", unit: "millisecond", maximumFractionDigits: digits }).format(value);
}

/** @param {number} value */
export function bytes(value) {
  const power = Math.min(Math.floor(Math.log10(Math.max(value, 1)) / 3), 4);
  const unit = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"][power];
  return format({ style: "unit", unit, maximumSignificantDigits: 3 }).format(value / 1000 ** power);
}

/** @param {string} iso */
export function moment(iso) {
  const time = new Date(iso);
  if (Number.isNaN(time.valueOf())) return iso;
  return new Intl.DateTimeFormat(tag(), { dateStyle: "medium", timeStyle: "short" }).format(time);
}

/** @param {string[]} parts */
export function listed(parts) {
  return new Intl.ListFormat(tag(), { type: "conjunction" }).format(parts);
}

const formats = new Map();

function format(options) {
  const key = language + JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(tag(), options));
  return formats.get(key);
}

function plurals() {
  if (!formats.has(language)) formats.set(language, new Intl.PluralRules(tag()));
  return formats.get(language);
}

function tag() {
  return language === "zh" ? "zh-Hans" : language;
}

function preferred() {
  const wanted = [chosen.get(), ...navigator.languages].map((one) => one?.slice(0, 2).toLowerCase());
  return wanted.find((one) => Object.hasOwn(LANGUAGES, one)) ?? "en";
}
