"""The console, in a real browser against the real service over a real workspace."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from browser import WAIT, Watched, axe_core, expect, serving, watching
from pointsman import Document, Settings, Workspace
from pointsman.embedders.query_vectors import QueryVectors
from pointsman.evaluation.report import Report, StrategyReport
from pointsman.evaluation.run_collection import ROUTED
from pointsman.retrieval.fusion import METHODS
from pointsman.service.server import KeyStore, create_app
from pointsman.service.server.protocol.problems import KINDS
from pointsman.service.server.routes import console_page
from pointsman.store.local.folder_backend import LocalBackend
from pointsman.values.reasons import Reason, Statement
from pointsman.values.reasons import messages as reason_messages
from pointsman.values.registry import STRATEGIES
from pointsman.workspace.past_runs import keep
from reason_words import values_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

    from pointsman.store.store_values import Lists, StoreQuery
    from pointsman.workspace.dataset import Dataset

CONSOLE = Path(__file__).parents[1] / "src" / "pointsman" / "service" / "console"
SCRIPTS = sorted([*CONSOLE.glob("*.mjs"), *CONSOLE.glob("*.js")])
NAMES = ("hostile", "rails", "город", "环境")
ATTACK = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    "<svg/onload=alert(1)> javascript:alert(2) \u202egnp.exe\u202c a hostile locomotive [x](javascript:alert(3))"
)
FAILING, PARTIAL, SLOW = "derailment", "snowdrift", "slowly"  # in a query, they do that to the dataset `город`


# ── what is served ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Site:
    """A service, and what holds it up."""

    base: str
    workspace: Workspace
    go_on: threading.Event  # lets a search for SLOW go on

    def url(self, view: str = "", **params: str | int) -> str:
        query = "&".join(f"{name}={quote(str(value))}" for name, value in params.items())
        return f"{self.base}#{view}?{query}" if view else self.base


def fill(workspace: Workspace) -> None:
    rails = workspace.dataset("rails", description="Trains, switches and signals")
    subjects = ("A switch guides trains to another track", "A red signal stops every train", "The yard opens at six")
    rails.add(
        Document(f"r{n}", f"{subjects[n % 3]}, says rule {n} of the railway. " + "It is kept. " * (n % 5),
                 {"year": 2000 + n, "rule number": n, "title": f"Rule {n}", "source": f"https://rules.example/{n}"})
        for n in range(45)
    )  # fmt: skip
    workspace.dataset("город", description="Городские службы").add(
        Document(f"г{n}", f"Городская служба {n} отвечает за транспорт, поезда и стрелочные переводы города.", {"n": n})
        for n in range(12)
    )
    workspace.dataset("环境", description="环保知识").add(
        Document(f"环{n}", f"环保设备可以净化空气和污水，第{n}种用于铁路车站。", {"类别": "环保"}) for n in range(12)
    )
    workspace.dataset("hostile", description=ATTACK).add(
        [Document('<b id="x">"&amp;', ATTACK, {"title": ATTACK, "<i>key</i>": ATTACK, "source": "javascript:alert(4)"})]
    )


def evaluate(folder: Path) -> None:
    for day, gain in ((1, 0.0), (9, 0.02)):
        strategies = {
            name: StrategyReport(
                {"ndcg@10": 0.5 + index / 10 + gain, "recall@100": 0.8 + index / 20}, 2.0**index, 3.0**index, {}
            )
            for index, name in enumerate(("bm25", "vector", "router_select", "auto"))
        }
        routes = {("dense", "default_dense"): 20, ("bm25", "<i>own</i>"): 10}
        strategies["router_select"] = replace(strategies["router_select"], routes=routes)
        keep(
            LocalBackend(folder),
            Report("rules", 45, 30, strategies).to_json(),
            time_of_run=datetime(2026, 11, day, tzinfo=UTC),
        )


def derail(dataset: Dataset, go_on: threading.Event) -> None:
    """Let a dataset fail, or be slow, where a query says so."""
    store = dataset.store
    search = store.search

    def derailing(store_queries: Sequence[StoreQuery]) -> list[Lists]:
        if any(FAILING in (store_query.text or "") for store_query in store_queries):
            raise ConnectionError("no route to the shed")
        if any(SLOW in (store_query.text or "") for store_query in store_queries):
            assert go_on.wait(WAIT)
        return search(store_queries)

    class FailingVectors(QueryVectors):
        def prepare(self, texts: Sequence[str]) -> None:
            if any(PARTIAL in text for text in texts):
                raise ConnectionError("no route to the shed")
            super().prepare(texts)

    store.search = derailing  # type: ignore[method-assign]
    dataset.query_vectors = FailingVectors(lambda: dataset.embedder)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    workspace = Workspace(folder)
    fill(workspace)
    evaluate(folder)
    go_on = threading.Event()
    derail(workspace.dataset("город"), go_on)
    with serving(create_app(workspace)) as base:
        yield Site(base, workspace, go_on)


# ── what looks at it ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def shared_page(browser: Browser, site: Site) -> Iterator[Watched]:
    """A page that many tests use, one after the other; they leave nothing behind in it."""
    context = browser.new_context(locale="en-US", viewport={"width": 1280, "height": 800})
    yield Watched(context.new_page(), site.base)
    context.close()


@pytest.fixture
def page(shared_page: Watched) -> Iterator[Page]:
    shared_page.expected = set()
    yield shared_page.page
    shared_page.check()
    shared_page.page.unroute_all()
    shared_page.page.goto("about:blank")


@pytest.fixture(scope="module")
def modules(browser: Browser, site: Site) -> Iterator[Page]:
    """A page in which modules can be imported."""
    with watching(browser, site.base) as page:
        page.goto(site.base)
        yield page


def ask_page(page: Page, url: str) -> None:
    """Go there, and wait for the answer."""
    page.goto(url)
    page.locator(".main .headline").wait_for()


def wait_until_filled(page: Page) -> None:
    """Nothing that is seen is still being asked for."""
    expect(page.locator("[aria-busy]:visible")).to_have_count(0)


def unfold(page: Page) -> None:
    """Show the path of the query, which is folded until somebody wants it."""
    page.locator("details.route").wait_for()
    page.evaluate("document.querySelector('details.route').open = true")


def drawn(page: Page) -> Any:
    """The railway when it has been drawn to the end."""
    unfold(page)
    railway = page.locator("svg.railway:not(.phase-running)")
    railway.wait_for()
    return railway


# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def fetch(
    site: Site, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(site.base[7:-1], timeout=WAIT)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/console", "text/html; charset=utf-8"),
        ("/console/main.mjs", "text/javascript; charset=utf-8"),
        ("/console/early.js", "text/javascript; charset=utf-8"),
        ("/console/console.css", "text/css; charset=utf-8"),
        ("/console/icon.svg", "image/svg+xml"),
    ],
)
def test_files_are_served_with_type_tag_and_policy(site: Site, path: str, kind: str) -> None:
    status, headers, body = fetch(site, path)
    assert (status, headers["content-type"], headers["cache-control"]) == (200, kind, "no-cache")
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    status, zipped_headers, small = fetch(site, path, headers={"Accept-Encoding": "gzip"})
    assert (status, zipped_headers["content-encoding"], gzip.decompress(small)) == (200, "gzip", body)
    assert zipped_headers["etag"] != headers["etag"]
    for tags in (headers["etag"], f'"other", W/{headers["etag"]}', "*"):
        second_status, second_headers, second_body = fetch(site, path, headers={"If-None-Match": tags})
        assert (second_status, second_headers["etag"], second_body) == (304, headers["etag"], b"")
    assert fetch(site, path, headers={"If-None-Match": '"other"'})[0] == 200
    status, head, second_body = fetch(site, path, "HEAD")
    assert (status, head["content-length"], second_body) == (200, str(len(body)), b"")


@pytest.mark.parametrize(
    "path", ["/console/__init__.py", "/console/..%2f..%2fkeys.json", "/console/../keys.json", "/console/none.mjs",
             "/console/%00", "/console/MAIN.MJS", "/console/main.mjs/"],
)  # fmt: skip
def test_nothing_else_is_served(site: Site, path: str) -> None:
    status, headers, _ = fetch(site, path)
    assert status in {400, 404}
    assert headers["content-type"] == "application/problem+json"


def test_the_folders_address_leads_to_the_page(site: Site) -> None:
    status, headers, _ = fetch(site, "/console/")
    assert (status, headers["location"]) == (308, "../")


def test_the_page_holds_no_script_and_no_style_of_its_own() -> None:
    page = (CONSOLE / "index.html").read_text("utf-8")
    assert all("src=" in tag for tag in re.findall(r"<script\b[^>]*>", page))
    assert not re.search(r"<style|style=|\son\w+=", page)
    for name in re.findall(r'(?:href|src)="console/([^"]+)"', page):
        assert name in console_page.files(), name


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_or_code_out_of_text(script: Path) -> None:
    source = script.read_text("utf-8")
    unsafe = r"(inner|outer|insertAdjacent)HTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|[\"']style[\"']"
    assert not re.search(unsafe, source)
    assert set(re.findall(r"https?://[\w./]+", source)) <= {"http://www.w3.org/2000/svg"}
    for name in re.findall(r'(?:from|import\() ?"\./([^"]+)"', source):
        assert name in console_page.files(), name


# ── modules ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_events_are_read_however_they_arrive(modules: Page) -> None:
    parsed_events = modules.evaluate(
        """async () => {
          const { events } = await import("/console/api.mjs");
          const text = ": hello\\r\\nevent: plan\\r\\ndata: {\\"a\\":\\r\\ndata: \\"环\\"}\\r\\n\\r\\n" +
            "data\\n\\nid: 7\\nevent:stage\\ndata:  two\\n\\nevent: lost\\ndata: torn";
          const bytes = new TextEncoder().encode(text);
          const read = async (size) => {
            const stream = new ReadableStream({ start(to) {
              for (let at = 0; at < bytes.length; at += size) to.enqueue(bytes.slice(at, at + size));
              to.close();
            } });
            const all = [];
            for await (const one of events(stream)) all.push([one.event, one.data]);
            return all;
          };
          return Promise.all([1, 2, 3, 7, 1000].map(read));
        }"""
    )
    assert parsed_events == [[["plan", '{"a":\n"环"}'], ["message", ""], ["stage", " two"]]] * 5


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("how do trains stop?", "A train stopped; trains stop. How do you do?", ["train", "stopped", "trains", "stop"]),
        ("parse dates", "The parser parsed a date, not data.", ["parser", "parsed", "date"]),
        ("read a form", "README, reader, readings; forms, format", ["reader", "readings", "forms"]),
        ("стрелочный перевод", "Стрелочные переводы и перевозки", ["Стрелочные", "переводы"]),
        ("что такое ёлка", "Елка — что это такое", ["Елка"]),
        ("什么是环保设备?", "净化空气的环保设备，设备", ["环保设备", "设备"]),
        ("空", "天空 空气", ["空", "空"]),
        ("the of и 的", "the train of и 的", []),
        ("<b>", "x <b>bold</b>", ["b", "b"]),
        ("", "anything", []),
    ],
)
def test_words_of_the_query_are_found(modules: Page, query: str, text: str, expected: list[str]) -> None:
    words = modules.evaluate(
        """async ([query, text]) => {
          const { finder } = await import("/console/highlight.mjs");
          return finder(query)(text).map(([from, to]) => text.slice(from, to));
        }""",
        [query, text],
    )
    assert words == expected


@pytest.mark.parametrize("kind", ["md", "txt"])
@pytest.mark.parametrize("before", [1, 5, 9])
@pytest.mark.parametrize("word", ["Weichenstellwerk", "стрелочник", "道岔引导列车", "a"])
def test_the_beginning_of_a_hit_ends_at_a_word(modules: Page, word: str, before: int, kind: str) -> None:
    text = " ".join(["x" * before, "**now**", *[word] * 400])
    shown = modules.evaluate(
        """async ([text, kind]) => {
          const { hitCard } = await import("/console/hits.mjs");
          const hit = { rank: 1, id: "a", dataset: null, caption: "a", text, metadata: { kind }, excerpt: null };
          return hitCard(hit, () => [], null).querySelector(".text").textContent;
        }""",
        [text, kind],
    )
    assert shown.endswith(" …")
    assert set(shown.removesuffix(" …").split()) <= {"x" * before, "now" if kind == "md" else "**now**", word}
    assert len(shown) > 390


def test_bullets_and_fences_of_markdown(modules: Page) -> None:
    text = "Leave:\n\n* Paid\n* **Никогда**\n\n```sh\nmake\n```\n* 5 * * *"
    preview = modules.evaluate(
        """async (text) => {
          const { hitCard } = await import("/console/hits.mjs");
          const hit = { rank: 1, id: "a", dataset: null, caption: "a", text, metadata: { kind: "md" }, excerpt: null };
          return hitCard(hit, () => [], null).querySelector(".text").textContent;
        }""",
        text,
    )
    assert preview == "Leave:\n\n• Paid\n• Никогда\n\nmake\n* 5 * * *"


def test_places_in_python_are_places_in_the_browser(modules: Page) -> None:
    text = "🚂 поезд 🚃🚃 环保 end"
    spans = [[0, 1], [8, 13], [len(text) - 3, len(text) + 9]]
    slices = modules.evaluate(
        """async ([text, spans]) => {
          const { units } = await import("/console/highlight.mjs");
          return units(text, spans).map(([from, to]) => text.slice(from, to));
        }""",
        [text, spans],
    )
    assert slices == [text[start:end] for start, end in spans]


@pytest.mark.parametrize("first", ["resolve", "reject"])
def test_what_was_asked_for_last_is_shown(modules: Page, first: str) -> None:
    """Whichever of two answers for one part of the page comes first."""
    states = modules.evaluate(
        """async (first) => {
          const { filled } = await import("/console/notices.mjs");
          const { Problem } = await import("/console/api.mjs");
          const host = document.createElement("div");
          const states = [];
          const note = () => states.push([host.textContent, host.getAttribute("aria-busy")]);
          const answers = [null, null];
          const fillings = [0, 1].map((number) =>
            filled(host, () => new Promise((resolve, reject) => { answers[number] = { resolve, reject }; })));
          answers[0][first](first === "resolve" ? new Text("first") : new Problem("locked"));
          await fillings[0];
          note();
          answers[1].resolve(new Text("last"));
          await fillings[1];
          note();
          const late = filled(host, () => new Promise((_, reject) => { answers[0] = reject; }));
          await filled(host, async () => new Text("newest"));
          answers[0](new Problem("locked"));
          await late;
          note();
          return states;
        }""",
        first,
    )
    assert states == [["", "true"], ["last", None], ["newest", None]]


def messages(modules: Page) -> dict[str, dict[str, str | dict[str, str]]]:
    by_language: dict[str, dict[str, str | dict[str, str]]] = modules.evaluate(
        'async () => (await import("/console/messages.mjs")).MESSAGES'
    )
    return by_language


def test_every_language_has_every_text(modules: Page) -> None:
    by_language = messages(modules)
    plurals = {"en": {"one", "other"}, "zh": {"other"}, "ru": {"one", "few", "many", "other"}}
    assert set(by_language) == set(plurals)
    for key, english in by_language["en"].items():
        slots = set(re.findall(r"\{\w+\}", json.dumps(english)))
        for language, texts in by_language.items():
            text = texts[key]
            forms = text if isinstance(text, dict) else {"other": text}
            if isinstance(english, dict):
                assert set(forms) == plurals[language], (language, key)
            for form in forms.values():
                assert form.strip(), (language, key)
                assert set(re.findall(r"\{\w+\}", form)) == slots, (language, key)


def test_no_text_takes_the_place_of_another() -> None:
    script = (CONSOLE / "messages.mjs").read_text("utf-8")
    keys = re.findall(r'^  "?([\w.-]+)"?: \[', script, re.MULTILINE)
    assert len(keys) > 200
    assert [key for key, count in Counter(keys).items() if count > 1] == []


def test_every_kind_of_problem_has_a_title(modules: Page) -> None:
    assert {f"problem.{slug}" for slug in KINDS} - set(messages(modules)["en"]) == set()


def test_what_the_service_says_is_read_in_every_language(modules: Page) -> None:
    """By its words in any language: those of an answer are in the language of the question."""
    values = {code: values_of(code) for code in reason_messages()}
    forms = {
        code: [Statement(code, values[code]).in_words(language) for language in ("en", "zh", "ru")] for code in values
    }
    texts_by_language = modules.evaluate(
        """async (forms) => {
          const { said, speak } = await import("/console/i18n.mjs");
          const read = {};
          for (const language of ["en", "zh", "ru"]) {
            speak(language);
            read[language] = Object.entries(forms).map(([code, texts]) => [code, texts.map((text) => said(text).text)]);
          }
          speak("en");
          return read;
        }""",
        forms,
    )
    for index, language in enumerate(("en", "zh", "ru")):
        for code, texts in texts_by_language[language]:
            if code == "of_error":  # there is nothing to translate in a name and an error
                assert texts == forms[code]
                continue
            readable = texts[:1] if code == "model" else texts  # whose remedy is not named in English
            assert readable == [forms[code][index]] * len(readable), (code, language)


def test_every_text_is_used_and_every_used_one_is_there(modules: Page) -> None:
    keys = set(messages(modules)["en"])
    source = "\n".join(path.read_text("utf-8") for path in SCRIPTS if path.name != "messages.mjs")
    keys_in_use = set(re.findall(r'\bt\(\s*"([\w.-]+)"', source))
    assert keys_in_use <= keys, keys_in_use - keys
    families = (
        r"stage|list|part|strategy|effort|rerank|theme|view|technique|problem|help|railway\.column|datasets|way|hit\.at"
    )
    for key in keys - keys_in_use:  # made out of parts, or handed on by name
        assert re.match(rf"({families})\.", key) or f'"{key}"' in source, key


# ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("language", ["en", "zh", "ru"])
def test_reasons_are_in_the_language_of_the_console(modules: Page, language: str) -> None:
    reason = Reason.join_all(Reason.of("weight", weight="0.80", span="2.1"), Reason.of("holders"))
    form = [{"code": statement.code, "values": statement.values} for statement in reason.statements]
    texts = modules.evaluate(
        """async ([language, form, english]) => {
          const { reasoned, said, speak } = await import("/console/i18n.mjs");
          speak(language);
          const later = [{ code: "later", values: {} }];
          const texts = [reasoned(form, "x"), said(`${english}; requested`), reasoned(later, "x")];
          speak("en");
          return texts;
        }""",
        [language, form, str(reason)],
    )
    requested_words = Reason.of("asked").in_language(language)
    mark = "；" if language == "zh" else "; "
    assert texts[0] == {"text": str(reason.in_language(language)), "lang": None}
    assert texts[1]["text"].replace("; ", mark) == f"{reason.in_language(language)}{mark}{requested_words}"
    assert texts[2]["text"] == "x"


def test_a_question_is_answered_and_its_words_are_marked(page: Page, site: Site) -> None:
    page.goto(site.base)
    page.fill("#q", "which signal stops a train?")
    page.keyboard.press("Enter")
    page.locator(".hit").first.wait_for()
    wait_until(page, "location.hash === '#ask?q=which+signal+stops+a+train%3F'")
    expect(page.locator(".hit")).to_have_count(5)
    first = page.locator(".hit").first
    assert {"signal", "stops", "train"} <= {mark.lower() for mark in first.locator("mark").all_inner_texts()}
    expect(first.locator(".dataset")).to_have_text("rails")
    expect(first.locator(".facts")).to_contain_text("relevant")
    expect(page.locator("[role=status]")).to_contain_text("5 hits in")
    page.locator("[data-hit='1']").click()
    details = first.locator(".more")
    expect(details.locator(".summary")).to_contain_text("Hit 1 of the answer, found by")
    expect(details.locator("svg.way")).to_have_count(1)
    expect(details.locator("dl.metadata")).to_contain_text("year")
    page.locator("[data-hit='1']").click()
    expect(details).to_be_hidden()


def test_what_was_searched_for_instead_is_said(page: Page, site: Site) -> None:
    ask_page(page, site.url("ask", q="railway swtich"))
    assert (
        page.locator(".corrected").inner_text()
        == "Showing results for railway switch · Search instead for railway swtich"
    )
    page.click(".corrected a")
    page.locator(".corrected").wait_for(state="detached")
    page.locator(".main .headline").wait_for()
    expect(page.locator("#q")).to_have_value("railway swtich")
    assert "w=1" in page.url


def test_what_was_understood_can_be_taken_away_part_by_part(page: Page, site: Site) -> None:
    ask_page(page, site.url("ask", q="rule -yard «red signal» year:>=2010"))
    chips = page.locator(".understood .chip")
    assert {text.rstrip("×\n") for text in chips.all_inner_texts()} == {'"red signal"', "-yard", "year:>=2010"}
    assert str(chips.first.get_attribute("title")).startswith("Search without ")
    page.locator(".understood a", has_text="red signal").click()
    page.wait_for_url(lambda url: "red" not in url.partition("#")[2])
    page.locator(".understood .chip", has_text="red signal").wait_for(state="detached")  # after the address
    page.locator(".understood .chip", has_text="-yard").wait_for()
    expect(page.locator("#q")).to_have_value("rule -yard year:>=2010")
    expect(page.locator(".understood .chip")).to_have_count(2)


def test_a_field_with_a_blank_in_its_name_is_one_part(page: Page, site: Site) -> None:
    ask_page(page, site.url("ask", q="red signal rule number:40"))
    part = page.locator(".understood a.chip")
    assert part.inner_text().rstrip("×\n") == '"rule number":40'
    part.click()
    page.wait_for_url(lambda url: "40" not in url.partition("#")[2])  # nor does the port count
    page.wait_for_function("document.querySelector('#q').value === 'red signal'")  # after the address


def test_the_hard_form_of_a_sentence_is_one_click_away(page: Page, site: Site) -> None:
    ask_page(page, site.url("ask", q="what does «red signal» mean?"))
    offer = page.locator(".understood .chip.hard")
    expect(offer).to_have_text('Only with "red signal"')
    offer.click()
    page.wait_for_url(lambda url: "y=hard" in url)
    page.locator(".understood .chip", has_text="×").wait_for()
    expect(offer).to_have_count(0)
    expect(page.locator("#q")).to_have_value("what does «red signal» mean?")


@pytest.mark.parametrize("name", ["constructor", "__proto__", "toString", "hasOwnProperty", "valueOf"])
def test_names_that_every_object_has_are_no_views_and_no_values(page: Page, site: Site, name: str) -> None:
    page.goto(f"{site.url('ask')[: site.url('ask').index('#')]}#{name}")
    page.locator("#q").wait_for()
    page.evaluate("(name) => localStorage.setItem('pointsman.language', name)", name)
    ask_page(page, site.url("ask", q="red signal", r=name, s=name if name == "" else "bm25"))
    expect(page.locator(".hit").first).to_be_attached()


def test_the_address_holds_the_question_and_back_leads_back(page: Page, site: Site) -> None:
    options: dict[str, Any] = {"k": 3, "s": "bm25", "d": "rails,环境", "f": "year >= 2020", "n": 0}
    ask_page(page, site.url("ask", q="red signal", **options))
    expect(page.locator(".hit")).to_have_count(3)
    expect(page.locator("#q")).to_have_value("red signal")
    expect(page.locator("#filter")).to_have_value("year >= 2020")
    expect(page.locator("#strategy")).to_have_value("bm25")
    assert not page.is_checked("#refuse")
    expect(page.locator(".chip[aria-pressed=true]")).to_have_text(["rails", "环境"])
    assert set(page.locator(".hit .dataset").all_inner_texts()) == {"rails"}
    page.evaluate("document.querySelectorAll('[data-hit]').forEach((hit) => hit.click())")
    metadata_texts = page.locator("dl.metadata").all_inner_texts()
    years = [int(year) for text in metadata_texts for year in re.findall(r"year\s+(\d+)", text)]
    assert len(years) == 3
    assert min(years) >= 2020
    page.fill("#q", "yard")
    page.keyboard.press("Enter")
    page.locator("mark", has_text="yard").first.wait_for()
    page.click("header nav a >> text=Datasets")
    page.locator("table.datasets").wait_for()
    page.go_back()
    page.locator("mark", has_text="yard").first.wait_for()
    page.go_back()
    page.locator("mark", has_text="signal").first.wait_for()
    expect(page.locator("#q")).to_have_value("red signal")
    page.click("header nav a >> text=Compare")
    page.click("header nav a >> text=Ask")  # it is found as it was left
    expect(page.locator("#q")).to_have_value("red signal")


@pytest.mark.parametrize(("width", "height", "limit"), [(1440, 900, 330), (390, 844, 420)])
def test_the_answer_comes_first(browser: Browser, site: Site, width: int, height: int, limit: int) -> None:
    with watching(browser, site.base, width=width, height=height) as page:
        for query, first in (("which signal stops a train?", ".hit"), ("railway swtich", ".hit"),
                             ("best pizza recipe in Naples with buffalo mozzarella", "section.refused")):  # fmt: skip
            ask_page(page, site.url("ask", q=query))
            page.locator(".chip").first.wait_for()
            top = page.locator(first).first.evaluate("(element) => element.getBoundingClientRect().top")
            assert 0 < top <= limit, query
            expect(page.locator("svg.railway")).to_be_hidden()
        page.goto(site.url("ask", q="red signal", s="bm25", f="year >= 2020", n=0, k=3))
        page.locator(".hit").first.wait_for()
        tags = page.locator(".options .set .tag").all_inner_texts()
        assert tags == ["bm25", "3 hits", "year >= 2020", "never refuse"]


def test_the_railway_shows_stages_in_the_order_in_which_they_ran(page: Page, site: Site) -> None:
    query = "what is a switch and what is a signal"
    spans = site.workspace.search(query, strategy="decomposition", datasets=["rails"]).trace.spans
    ran = [span.stage for span in sorted(spans, key=lambda span: span.started) if span.stage != "retrieve"]
    assert ran.index("plan") < ran.index("transform") < ran.index("fuse")
    ask_page(page, site.url("ask", q=query, s="decomposition", d="rails"))
    stages = drawn(page).locator(".station").evaluate_all("all => all.map((one) => one.dataset.stage)")
    assert stages == ["query", *ran, "answer"]
    overlaps = page.evaluate(
        """async () => {
          const { begin, advance } = await import("/console/journey.mjs");
          const span = (stage) => ({ stage, detail: "a", milliseconds: 1, started: 0, count: null, error: null });
          let journey = advance(begin("q"), "plan", { strategy: "hyde", datasets: ["a"], reason: "requested" });
          for (const stage of ["plan", "transform"]) journey = advance(journey, "stage", span(stage));
          journey = advance(journey, "branch", span("retrieve"));
          journey = advance(journey, "stage", span("fuse"));
          return [journey.before, journey.after].map((stages) => stages.map(({ stage }) => stage));
        }"""
    )
    assert overlaps == [["plan", "transform"], ["fuse"]]  # also while it is under way


def test_the_railway_shows_stages_and_branches(page: Page, site: Site) -> None:
    ask_page(page, site.url("ask", q="switch"))
    railway = drawn(page)
    stages = railway.locator(".station").evaluate_all("all => all.map((one) => one.dataset.stage)")
    assert stages[0] == "query"
    assert stages[-1] == "answer"
    line = ["plan", "fuse", "refuse"]
    assert [stage for stage in stages if stage in line] == line
    branches = railway.locator(".branch").evaluate_all("all => all.map((one) => one.dataset.branch)")
    assert sorted(branches) == sorted(NAMES)
    expect(railway.locator("[data-branch=rails]")).to_contain_text("BM25")
    assert re.search(r"\d ms", railway.locator("[data-branch=rails]").text_content())
    assert "Answered with 5 hits" in (railway.get_attribute("aria-label") or "")
    expect(page.locator(".route summary .choice")).to_contain_text("hybrid")
    page.click("text=Show as a table")
    rows = page.locator(".as-table tbody tr").all_inner_texts()
    assert sum(row.startswith("Retrieve") for row in rows) == len(NAMES)
    page.click("text=/Where .* went/")
    expect(page.locator("svg.timetable rect").nth(len(NAMES) + 3)).to_be_attached()


def test_the_railway_is_drawn_while_the_search_is_under_way(page: Page, site: Site) -> None:
    site.go_on.clear()
    page.goto(site.url("ask", q=f"{SLOW} switch"))
    unfold(page)
    try:
        page.locator("svg.phase-running [data-branch=rails].done").wait_for()
        late = page.locator("svg.phase-running [data-branch=город]")
        assert "pending" in (late.get_attribute("class") or "")
        assert "under way" in (late.text_content() or "")
        expect(page.locator(".station.answer.pending")).to_have_count(1)
        expect(page.locator(".hit")).to_have_count(0)
    finally:
        site.go_on.set()
    page.locator(".hit").first.wait_for()
    assert "done" in drawn(page).locator("[data-branch=город]").get_attribute("class")


def test_a_search_can_be_stopped_and_asked_again(page: Page, site: Site) -> None:
    site.go_on.clear()
    page.goto(site.url("ask", q=f"{SLOW} signal"))
    unfold(page)
    try:
        page.locator("svg.phase-running [data-branch=rails].done").wait_for()
        page.keyboard.press("Escape")
        page.locator(".main >> text=The search was stopped.").wait_for()
    finally:
        site.go_on.set()
    page.locator("svg.railway.phase-failed").wait_for()
    page.click(".ask button[type=submit]")
    page.locator(".hit").first.wait_for()


def test_why_a_document_is_not_there(page: Page, site: Site) -> None:
    ask_page(page, site.url("ask", q="red signal", d="rails"))
    page.fill("#why", "r2")
    page.select_option("#why-dataset", "rails")
    page.keyboard.press("Tab")
    page.locator(".why button").click()
    page.locator(".why .summary").wait_for()
    wait_until(page, "location.hash.includes('why=r2')")
    assert re.search(r"It ranked \d+ of \d+ after|No list found it", page.locator(".why .summary").inner_text())
    expect(page.locator(".why table tbody tr").nth(2)).to_be_attached()
    for text in ("rules.example/7", "opens at six, says rule 8"):  # a file name, words
        page.fill("#why", text)
        page.select_option("#why-dataset", "")
        page.locator(".why button").click()
        page.locator(f".why h3 code >> text=/^r{text[-1]}$/").wait_for()
    expect(page.locator(".why .others a")).to_have_count(4)
    page.locator(".why .others a").first.click()
    page.locator(".why h3 code >> text=/^r8$/").wait_for(state="detached")
    expect(page.locator(".hits .hit")).to_have_count(5)  # the answer has stayed
    page.fill("#why", "zzqx")
    page.locator(".why button").click()
    wait_until(page, "location.hash.includes('zzqx')")


def test_a_refusal_shows_the_nearest_and_can_be_overruled(page: Page, site: Site) -> None:
    ask_page(page, site.url("ask", q="best pizza recipe in Naples with buffalo mozzarella"))
    refusal = page.locator("section.refused")
    expect(refusal).to_contain_text("The best candidate is")
    expect(refusal.locator(".hit")).to_have_count(5)
    expect(drawn(page).locator(".station.refuse.refused .halt")).to_have_count(1)
    assert "Refused" in (drawn(page).get_attribute("aria-label") or "")
    page.click("text=Answer anyway")
    page.locator("section.refused").wait_for(state="detached")
    page.locator(".hit").nth(4).wait_for()
    wait_until(page, "location.hash.includes('n=0')")


def test_a_branch_that_failed_ends_at_a_buffer_stop(page: Page, site: Site) -> None:
    ask_page(page, site.url("ask", q=f"{FAILING} of a train at a switch", n=0))
    branch = drawn(page).locator("[data-branch=город].failed")
    expect(branch.locator(".buffer")).to_have_count(1)
    expect(branch).to_contain_text("no route to the shed")
    notes = page.locator("section.degraded").inner_text()
    assert "Some parts of the search did not work" in notes
    assert "город" in notes
    expect(page.locator(".hit")).to_have_count(5)
    unfold(page)
    page.click("text=Show as a table")
    expect(page.locator(".as-table .bad")).to_have_count(1)


def test_a_branch_that_worked_in_part_bears_a_sign(page: Page, site: Site) -> None:
    ask_page(page, site.url("ask", q=f"поезда {PARTIAL}", n=0))
    expect(drawn(page).locator("[data-branch=город].partial .sign")).to_have_count(1)
    expect(page.locator("section.degraded")).to_contain_text("only words were searched")


@pytest.mark.parametrize(("width", "lang"), [(1280, "en-US"), (360, "ru-RU")])
def test_the_page_fits_its_width(browser: Browser, site: Site, width: int, lang: str) -> None:
    with watching(browser, site.base, width=width, lang=lang) as page:
        ask_page(
            page, site.url("ask", q="what is a switch and what is a signal", s="decomposition", why="r2", f="year > 1")
        )
        box = drawn(page).bounding_box()
        assert box["height"] > box["width"]  # it is narrow in both: beside the hits, or below them
        page.locator(".why .summary").wait_for()
        page.locator("[data-hit='1']").click()
        page.locator(".under button").click()
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        for view in ("ask", "compare", "datasets", "evaluation"):
            page.locator(f"header nav a[href^='#{view}']").click()
            page.locator(f"pm-{view}:visible").wait_for()
            wait_until_filled(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view


# ── hits ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Workspace]]:
    """A service over files; the address of its first page."""
    openpyxl = pytest.importorskip("openpyxl", reason="a workbook is among the files")
    folder = tmp_path_factory.mktemp("files")
    book = openpyxl.Workbook()
    book.active.append(["Station", "Fare"])
    book.create_sheet("Times").append(["Night train", "23:10"])
    book.save(folder / "fares.xlsx")
    sections = (
        "# Switches\n\nSteps 🚂 to throw a switch:\n\n- look at the blades\n- set the lever\n",
        "# Signals\n\nA red signal stops every train. " + "Nobody passes it without an order. " * 20,
        "# Yard\n\nThe yard opens at six. " + "The yard master holds the keys. " * 20,
    )
    (folder / "guide.md").write_text("\n\n".join(sections), "utf-8")
    (folder / "tool.py").write_text("def stop_train(signal):\n    if signal.red:\n        return True\n", "utf-8")
    for name in ("one", "two", "three"):
        (folder / f"{name}.txt").write_text("The platform clock is five minutes fast." + " " * len(name), "utf-8")
    workspace = Workspace(tmp_path_factory.mktemp("of_files"))
    workspace.index(folder, "notes")
    with serving(create_app(workspace)) as base:
        yield base, workspace


def test_a_hit_leads_to_its_place_in_the_source_and_can_be_linked_to(
    browser: Browser, files: tuple[str, Workspace]
) -> None:
    base, workspace = files
    with watching(browser, base) as page:
        ask_page(page, f"{base}#ask?q=red+signal+stops+every+train&n=0&k=3")
        hit = page.locator(".hit", has_text="A red signal stops").first
        assert re.search(r"guide\.md, lines? \d+", hit.locator(".source").inner_text())
        hit.locator("[data-hit]").first.click()
        hit.locator(".around > summary").click()
        mark = hit.locator(".around mark")
        mark.wait_for()
        expected_hit = next(hit for hit in workspace.search("red signal stops every train", refuse=False).hits
                     if "A red signal stops" in hit.text)  # fmt: skip
        assert mark.text_content() == expected_hit.citation.quote
        context_text = hit.locator(".around .whole").text_content() or ""
        assert "set the lever" in context_text  # the neighbours are there
        assert "The yard opens at six" in context_text
        hit.locator(".leads a").click()
        wait_until(page, "location.hash.includes('hit=')")
        address = page.url
    with watching(browser, base) as page:
        page.goto(address)
        page.locator(".hit .more:visible").wait_for()
        expect(page.locator(".hit", has=page.locator(".more:visible")).first).to_contain_text("A red signal stops")
        page.goto(re.sub("q=[^&]*", "q=night+train", re.sub("hit=[^&]*", "hit=nothing", address)))
        page.locator(".gone >> text=The linked hit is not in this answer").wait_for()


def test_sheets_lists_and_code_are_shown_as_what_they_are(browser: Browser, files: tuple[str, Workspace]) -> None:
    base, _ = files
    with watching(browser, base) as page:
        ask_page(page, f"{base}#ask?q=night+train&n=0&k=1")
        expect(page.locator(".hit .source")).to_have_text("fares.xlsx, sheet 2, row 1")
        ask_page(page, f"{base}#ask?q=def+stop_train+signal&n=0&k=1&s=bm25")
        page.locator(".hit .source", has_text="tool.py").wait_for()
        text = page.locator(".hit .text").first
        assert text.inner_text().splitlines()[1].startswith("    if signal.red:")
        assert "mono" in text.evaluate("(element) => getComputedStyle(element).fontFamily").lower()
        ask_page(page, f"{base}#ask?q=throw+a+switch+lever&n=0&k=1&s=bm25")
        page.locator(".hit .source", has_text="guide.md").wait_for()
        assert "- look at the blades\n- set the lever" in page.locator(".hit .text").first.inner_text()


def test_hits_with_the_same_text_are_folded_into_the_first(browser: Browser, files: tuple[str, Workspace]) -> None:
    base, workspace = files
    hits = workspace.search("platform clock", k=3, strategy="bm25", refuse=False).hits
    assert len({hit.text for hit in hits}) == 1
    assert len(hits) == 3
    with watching(browser, base) as page:
        ask_page(page, f"{base}#ask?q=platform+clock&n=0&k=3&s=bm25")
        expect(page.locator(".hit:visible")).to_have_count(1)
        page.click("text=2 more like this")
        expect(page.locator(".hit:visible")).to_have_count(3)


# ── other views ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_strategies_side_by_side(page: Page, site: Site) -> None:
    page.goto(site.url("compare"))
    page.fill("#cq", "which signal stops a train?")
    page.keyboard.press("Enter")
    page.locator("table.overlap").wait_for()
    wait_until_filled(page)
    heads = page.locator("table.ranks thead th code").all_inner_texts()
    assert heads == ["bm25", "vector", "hybrid", "rrf"]
    states = page.locator("table.ranks .state").all_inner_texts()
    assert all(re.fullmatch(r"\d+ hits", state) for state in states)  # no time: one call proves nothing
    ranks = page.locator("table.ranks tbody tr").evaluate_all(
        "all => all.map((row) => [...row.querySelectorAll('td')].map((cell) => Number.parseInt(cell.innerText) || 0))"
    )
    for column, name in enumerate(heads):
        numbers = sorted(row[column] for row in ranks if row[column])
        assert numbers == list(range(1, len(numbers) + 1)), name
    expect(page.locator(".move").first).to_be_attached()
    for name in ("bm25", "vector"):
        page.click(f".chip[data-name={name}]")
    page.click("form:visible button[type=submit]")
    page.locator("table.ranks thead th code").nth(2).wait_for(state="detached")
    assert page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('s')") == "hybrid,rrf"
    page.click("table.ranks thead a >> text=rrf")
    page.locator(".main .headline").wait_for()
    expect(page.locator("#strategy")).to_have_value("rrf")


def test_a_strategy_that_fails_is_told_in_its_column(page: Page, shared_page: Watched, site: Site) -> None:
    shared_page.expected = {422}
    page.goto(site.url("compare", q="signal", s="bm25,nonsense"))
    page.locator(".state.bad").wait_for()
    expect(page.locator(".state.bad")).to_contain_text("Invalid input")
    expect(page.locator("table.ranks tbody tr").nth(3)).to_be_attached()


def test_datasets_are_well_and_can_be_read(page: Page, site: Site) -> None:
    page.goto(site.url("datasets"))
    rows = page.locator("table.datasets tbody tr")
    rows.first.wait_for()
    expect(rows).to_have_count(len(NAMES))
    row = rows.filter(has_text="rails")
    expect(row).to_contain_text("45")
    expect(row).to_contain_text("up to date")
    row.locator("button").click()
    row.locator(".good >> text=sound: 45 documents").wait_for()
    row.locator("a").click()
    page.locator("ul.documents li").first.wait_for()
    names = page.locator("ul.documents summary .name").all_inner_texts()
    assert names[0] == "https://rules.example/0"  # no id
    page.click(".pages >> text=Next")
    page.locator(".pages >> text=Next").wait_for(state="detached")
    expect(page.locator("ul.documents li")).to_have_count(5)
    for button in ("First page", "Previous"):
        page.click(f".pages >> text={button}")
        page.locator(".pages >> text=Previous").wait_for(state="detached")
        page.click(".pages >> text=Next")
        page.locator(".pages >> text=Previous").wait_for()
    page.click(".pages >> text=Previous")
    page.locator(".pages >> text=Previous").wait_for(state="detached")
    assert page.locator("ul.documents summary .name").all_inner_texts() == names
    page.fill("#document", "r7")
    page.keyboard.press("Enter")
    page.locator("ul.documents li").nth(1).wait_for(state="detached")
    expect(page.locator("dl.metadata")).to_contain_text("Rule 7")
    page.fill("#document", "RULES.example/3")
    page.keyboard.press("Enter")
    page.locator("ul.documents li").nth(10).wait_for()
    expect(page.locator("ul.documents li")).to_have_count(11)  # 3, and 30 to 39


def test_datasets_list_files_with_their_passages(browser: Browser, files: tuple[str, Workspace]) -> None:
    base, workspace = files
    with watching(browser, base) as page:
        page.goto(f"{base}#datasets?name=notes")
        page.locator("li.file").first.wait_for()
        names = page.locator(".browse > ul > li > details > summary .name").all_inner_texts()
        assert names == sorted(
            {str(document.metadata["source"]) for document in workspace.dataset("notes")}, key=names.index
        )
        assert "#" not in "".join(names)
        guide = page.locator("li.file", has_text="guide.md")
        count = len(workspace.dataset("notes").ids(source="guide.md"))
        expect(guide).to_contain_text(f"{count} passages")
        guide.locator("summary").first.click()
        expect(guide.locator("li")).to_have_count(count)
        assert re.match(r"lines? \d+", guide.locator("li .name").first.inner_text())


def test_compare_and_datasets_can_be_used_on_a_narrow_page(browser: Browser, site: Site) -> None:
    with watching(browser, site.base, width=360) as page:
        page.goto(site.url("compare", q="red signal"))
        page.locator("table.overlap").wait_for()
        wait_until_filled(page)
        cell = page.locator("table.ranks tbody tr").first.locator("td").last
        assert cell.evaluate("(element) => element.getBoundingClientRect().right") <= 360
        page.goto(site.url("datasets", name="rails"))
        button = page.locator("table.datasets tr", has_text="rails").locator("button")
        assert button.evaluate("(element) => element.getBoundingClientRect().right") <= 360


def test_a_document_leads_to_why_it_was_not_found(page: Page, site: Site) -> None:
    ask_page(page, site.url("ask", q="red signal"))
    page.click("header nav a >> text=Datasets")
    page.goto(site.url("datasets", name="rails", id="r2"))
    page.click("text=Why is it, or is it not, a hit for")
    page.locator(".why .summary").wait_for()
    expect(page.locator("#why")).to_have_value("r2")


def test_evaluations_are_drawn(page: Page, site: Site) -> None:
    page.goto(site.url("evaluation"))
    page.locator("svg.chart").nth(2).wait_for()
    bars, points, lines = (page.locator("svg.chart").nth(index) for index in range(3))
    expect(bars.locator(".bar")).to_have_count(4)
    expect(bars.locator(".value.best")).to_have_text("0.820")
    expect(points.locator(".point")).to_have_count(4)
    expect(lines.locator(".curve")).to_have_count(4)
    page.locator("section.plot summary").first.click()
    expect(page.locator("section.plot table").first).to_contain_text("0.8200")
    page.select_option("#e-measure", "recall@100")
    page.locator("svg.chart .value.best >> text=0.950").wait_for()
    counts = page.get_by_role("region", name="Questions by route of router_select").locator("tbody tr")
    assert counts.nth(0).inner_text().split("\t") == [
        "dense",
        "default_dense neither a number, nor a name, nor a question: search by vectors",
        "20",
    ]
    assert counts.nth(1).inner_text().split("\t") == ["bm25", "<i>own</i>", "10"], "words of a rule are no markup"
    page.select_option("#e-run", label=page.locator("#e-run option").nth(1).inner_text())
    wait_until(page, "location.hash.includes('run=')")


@pytest.mark.parametrize(
    ("language", "words"),
    [
        (
            "en",
            (
                "created: guessed",
                "updated: set by",
                "creatd: set by date_columns, and",
                "created, updated hold dates",
            ),
        ),
        ("zh", ("created（推测）", "updated（由", "creatd（由 date_columns 指定），但", "created, updated 都有日期")),
        (
            "ru",
            (
                "created (выбрано",
                "updated (задано",
                "creatd (задано в date_columns), но",
                "даты есть в created, updated",
            ),
        ),
    ],
)
def test_datasets_tell_their_date_column(
    browser: Browser, tmp_path: Path, language: str, words: tuple[str, ...]
) -> None:
    settings = Settings(date_columns=("two=updated", "three=creatd"))
    workspace = Workspace(tmp_path, settings=settings)
    dates = {"created": "2024-05-01", "updated": "2024-06-01"}
    for name, metadata in {
        "one": {"created": "2024-05-01"},
        "two": dates,
        "three": {},
        "four": dates,
        "none": {},
    }.items():
        workspace.dataset(name).add([Document("a", "A signal stops trains.", metadata)])
    with serving(create_app(workspace)) as base, watching(browser, base) as page:
        page.goto(base)
        page.evaluate(f"import('/console/i18n.mjs').then((texts) => texts.speak('{language}'))")
        page.goto(f"{base}#datasets")
        for name, wanted in zip(("one", "two", "three", "four"), words, strict=True):
            page.locator("table.datasets tr", has=page.locator(f"a:text-is('{name}')")).locator(
                f"text={wanted}"
            ).wait_for()
        row = page.locator("table.datasets tr", has=page.locator("a:text-is('none')"))
        expect(row.locator("th .about").last).to_have_text("")


@pytest.mark.parametrize("language", ["en", "zh", "ru"])
def test_a_question_is_routed_by_its_form_and_counted(browser: Browser, tmp_path: Path, language: str) -> None:
    rules: Any = [{"words": ["PN-"], "route": "hybrid", "reason": "<b>part</b>"}]
    workspace = Workspace(tmp_path, settings=Settings(route_rules=rules))
    for name in ("notes", "other"):
        workspace.dataset(name).add([Document("a", "A signal stops trains.")])
    words = dict(zip(("en", "zh", "ru"), reason_messages()["conversational_or_long"], strict=True))
    with serving(create_app(workspace)) as base, watching(browser, base) as page:
        page.goto(base)
        page.evaluate("import('/console/i18n.mjs').then((texts) => texts.speak('ru'))")
        page.goto(f"{base}#datasets?name=notes")
        routed = page.locator("p", has=page.locator("strong code"))
        numbers = "[...document.querySelectorAll('.browse table .number')].map((cell) => Number(cell.textContent))"
        questions = (("why do trains stop?", "dense"), ("why does it stop", "dense"), ("PN-7", "hybrid"))
        for count, (question, route) in enumerate(questions, 1):
            page.fill("#route", question)
            page.locator("#route").press("Enter")
            wait_until(page, f"{numbers}.reduce((sum, number) => sum + number, 0) === {count}")
            page.locator(f"strong code:text-is('{route}')").wait_for()
        page.locator("code:text-is('<b>part</b>') >> nth=0").wait_for()
        page.evaluate(f"import('/console/i18n.mjs').then((texts) => texts.speak('{language}'))")
        rows = page.locator(".browse table tbody tr").all_inner_texts()
        assert [re.split(r"\s", row)[0] for row in rows] == ["dense", "hybrid"]
        assert words[language] in rows[0]
        assert rows[0].split()[-1] == "2"
        page.fill("#route", "why do trains stop?")
        page.locator("#route").press("Enter")
        routed.filter(has_text=words[language]).wait_for()
        page.goto(f"{base}#datasets?name=other")
        page.locator(".browse h2 >> text=other").wait_for()
        expect(page.locator(".browse table")).to_have_count(0)


def test_the_route_of_the_last_question_stays(browser: Browser, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.dataset("notes").add([Document("a", "A signal stops trains.")])
    with serving(create_app(workspace)) as base, watching(browser, base) as page:
        held: list[Route] = []

        def hold_first(route: Route) -> None:
            if "PN-7" in (route.request.post_data or ""):
                held.append(route)
            else:
                route.continue_()

        page.route("**/api/route", hold_first)
        page.goto(f"{base}#datasets?name=notes")
        for question in ("PN-7", "why do trains stop when the signal is red?"):
            page.fill("#route", question)
            page.locator("#route").press("Enter")
        page.locator("strong code:text-is('dense')").wait_for()
        with page.expect_response("**/api/route"):
            held[0].continue_()
        page.evaluate("() => new Promise((done) => setTimeout(done, 50))")  # what follows the answer runs at once
        expect(page.locator("strong code")).to_have_text(["dense"])


def test_nothing_measured_and_nothing_indexed_say_what_to_do(browser: Browser, tmp_path: Path) -> None:
    with serving(create_app(Workspace(tmp_path))) as base, watching(browser, base, expected=(422,)) as page:
        page.goto(f"{base}#evaluation")
        page.locator("text=pointsman eval").wait_for()
        page.goto(f"{base}#datasets")
        page.locator("text=There are no datasets yet").wait_for()
        page.goto(f"{base}#ask")
        page.locator("text=There are no datasets yet.").wait_for()
        page.locator("pm-ask .welcome code >> text=pointsman index FILES… --dataset NAME").wait_for()
        ask_page(page, f"{base}#ask?q=trains")
        expect(page.locator("section.refused")).to_have_count(1)
        expect(page.locator("text=Answer anyway")).to_have_count(0)


def test_the_empty_page_offers_questions_from_the_documents(browser: Browser, files: tuple[str, Workspace]) -> None:
    base, _ = files
    with watching(browser, base) as page:
        page.goto(base)
        page.locator(".examples a").first.wait_for()
        assert {"Switches", "Yard"} <= set(page.locator(".examples a").all_inner_texts())
        page.click(".examples a >> text=Yard")
        page.locator(".hit >> text=The yard opens at").first.wait_for()
        expect(page.locator("#q")).to_have_value("Yard")


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_asked_for_kept_and_forgotten(browser: Browser, site: Site, tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    grant = keys.create("reader of rails", datasets=["rails"], scopes=["read"])
    app = create_app(Workspace(site.workspace.path), keys=keys)
    with serving(app) as base, watching(browser, base, expected=(401, 403)) as page:
        page.goto(f"{base}#ask?q=red+signal")
        dialog = page.locator("dialog[open]")
        dialog.wait_for()
        page.keyboard.press("Escape")
        page.locator(".problem[data-slug=unauthorized]").first.wait_for()
        page.locator(".main .problem button >> text=Enter a key").click()
        page.fill("#key", "wrong key")
        page.keyboard.press("Enter")
        dialog.locator("text=no spaces and only ASCII").wait_for()
        page.fill("#key", "pm_wrong")
        page.keyboard.press("Enter")
        dialog.locator("text=did not accept this key").wait_for()
        page.fill("#key", grant.text)
        page.keyboard.press("Enter")
        page.locator(".hit").first.wait_for()
        page.locator("#who >> text=reader of rails").wait_for()
        assert page.evaluate("[sessionStorage.length, Object.values(localStorage).join()]") == [1, ""]
        expect(page.locator(".chip")).to_have_text(["rails"])
        assert grant.text not in page.content()
        page.goto(f"{base}#evaluation")
        page.locator("text=Evaluations cover the whole workspace").wait_for()
        page.reload()
        page.locator("#who >> text=reader of rails").wait_for()
        page.click("#who")
        page.click("dialog >> text=Forget this key")
        page.locator("#who >> text=no key").wait_for()
        assert page.evaluate("sessionStorage.length") == 0


def test_late_refusals_of_no_key_leave_the_dialog_and_the_name_of_the_key_alone(
    browser: Browser, site: Site, tmp_path: Path
) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    grant = keys.create("reader of rails", datasets=["rails"], scopes=["read"])
    app = create_app(Workspace(site.workspace.path), keys=keys)
    routes: dict[str, Route] = {}

    def hold(route: Route) -> None:
        if "authorization" in route.request.headers:
            route.continue_()
        else:
            routes[route.request.url.rpartition("/")[2]] = route

    def refuse(page: Page, name: str) -> None:
        with page.expect_response(f"**/api/{name}"):
            routes[name].continue_()
        page.wait_for_timeout(100)  # for what must not happen

    with serving(app) as base, watching(browser, base, expected=(401,)) as page:
        for name in ("me", "datasets"):
            page.route(f"**/api/{name}", hold)
        page.goto(f"{base}#ask?q=red+signal")
        page.locator("dialog[open]").wait_for()
        page.fill("#key", grant.text)
        refuse(page, "datasets")
        expect(page.locator("#key")).to_have_value(grant.text)
        page.keyboard.press("Enter")
        page.locator("#who >> text=reader of rails").wait_for()
        refuse(page, "me")
        expect(page.locator("#who")).to_have_text("reader of rails")
        expect(page.locator("dialog[open]")).to_have_count(0)


@pytest.mark.parametrize(
    ("status", "slug", "title"),
    [(500, "internal", "Internal error"), (503, "locked", "Another process is writing")],
)
def test_problems_are_told_with_their_request(
    page: Page, shared_page: Watched, site: Site, status: int, slug: str, title: str
) -> None:
    document = {"type": f"/problems/{slug}", "title": "x", "status": status, "detail": "the log says more",
                "instance": "urn:request:abc123"}  # fmt: skip
    shared_page.expected = {status}
    page.route(
        "**/api/stream",
        lambda route: route.fulfill(status=status, json=document, content_type="application/problem+json"),
    )
    page.goto(site.url("ask", q="signal"))
    card = page.locator(".main .problem")
    card.wait_for()
    problem_text = card.inner_text()
    assert title in problem_text
    assert "the log says more" in problem_text
    assert "abc123" in problem_text
    unfold(page)
    page.locator("svg.railway.phase-failed").wait_for()
    page.unroute("**/api/stream")
    page.click("text=Try again")
    page.locator(".hit").first.wait_for()


def test_too_many_requests_wait_as_long_as_asked(page: Page, shared_page: Watched, site: Site) -> None:
    document = {"type": "/problems/too-many-requests", "title": "x", "status": 429, "detail": "slower"}
    shared_page.expected = {429}
    page.route(
        "**/api/stream",
        lambda route: route.fulfill(status=429, json=document, headers={"Retry-After": "1"}),
    )
    page.goto(site.url("ask", q="signal"))
    retry = page.locator(".main .problem button")
    retry.wait_for()
    assert retry.is_disabled()
    page.locator("text=in 1 second").wait_for()
    page.unroute("**/api/stream")
    page.locator(".main .problem button:enabled").click()
    page.locator(".hit").first.wait_for()


def test_strange_and_broken_answers_are_told(page: Page, shared_page: Watched, site: Site) -> None:
    shared_page.expected = {502}
    page.route("**/api/stream", lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))
    page.goto(site.url("ask", q="signal"))
    page.locator(".problem[data-slug=strange]").wait_for()
    page.unroute("**/api/stream")
    half_answer = 'event: plan\ndata: {"strategy":"hybrid","datasets":["rails"],"reason":"asked for"}\n\nevent: bran'
    page.route("**/api/stream", lambda route: route.fulfill(body=half_answer, content_type="text/event-stream"))
    page.click("text=Try again")
    page.locator(".problem[data-slug=interrupted]").wait_for()
    expect(drawn(page).locator("[data-branch=rails].failed")).to_have_count(1)
    page.unroute("**/api/stream")
    problem = 'event: problem\ndata: {"type":"/problems/unavailable","title":"x","status":503,"detail":"later"}\n\n'
    page.route("**/api/stream", lambda route: route.fulfill(body=problem, content_type="text/event-stream"))
    page.click("text=Try again")
    page.locator(".problem[data-slug=unavailable] >> text=later").wait_for()


def test_without_a_network_it_says_so_and_goes_on_later(browser: Browser, site: Site) -> None:
    with watching(browser, site.base) as page:
        ask_page(page, site.url("ask", q="signal"))
        wait_until(page, "['compare', 'datasets', 'evaluation'].every((view) => customElements.get(`pm-${view}`))")
        page.context.set_offline(True)
        page.fill("#q", "yard")
        page.keyboard.press("Enter")
        page.locator(".problem[data-slug=network]").wait_for()
        page.click("header nav a >> text=Datasets")
        page.locator("pm-datasets .problem[data-slug=network]").wait_for()
        page.context.set_offline(False)
        page.locator("pm-datasets .problem >> text=Try again").click()
        page.locator("table.datasets").wait_for()


def test_a_wrong_filter_is_told_by_the_service(page: Page, shared_page: Watched, site: Site) -> None:
    shared_page.expected = {422}
    page.goto(site.url("ask", q="signal", f="year >="))
    page.locator(".problem[data-slug=invalid-input] .detail").wait_for()


# ── hostile documents ────────────────────────────────────────────────────────────────────────────────────────────────


def test_hostile_text_is_shown_and_does_nothing(page: Page, shared_page: Watched, site: Site) -> None:
    shared_page.expected = {422}  # of the last question
    ask_page(page, site.url("ask", q="a hostile locomotive", d="hostile", n=0))
    page.locator("[data-hit='1']").click()
    hit = page.locator(".hit").first
    for selector in (".title", ".text.whole", "dl.metadata"):
        shown_text = hit.locator(selector).inner_text()
        assert "<script>document.title='owned'</script>" in shown_text, selector
        assert "U+202E" in shown_text, selector
        assert "\u202e" not in shown_text, selector
    expect(page.locator(".hit img, .hit script, .hit b#x, .hit i, .hit svg[onload]")).to_have_count(0)
    expect(page.locator("a[href^='javascript']")).to_have_count(0)
    page.goto(site.url("datasets", name="hostile"))
    page.locator("ul.documents summary").first.click()
    expect(page.locator("ul.documents .whole")).to_contain_text("<img src=x")
    page.goto(site.url("compare", q="a hostile locomotive"))
    page.locator("table.overlap").wait_for()
    expect(page.locator("main img, main script")).to_have_count(0)
    page.goto(site.url("ask", q="<img src=x onerror=alert(1)>", why="<script>", s="<b>"))
    page.locator(".problem").first.wait_for()
    assert page.title() == "Pointsman"


# ── keyboard, language, colours ──────────────────────────────────────────────────────────────────────────────────────


def focus(page: Page) -> str:
    identity: str = page.evaluate("document.activeElement.dataset.hit ?? document.activeElement.id")
    return identity


def wait_until(page: Page, expression: str) -> None:
    """`Page.wait_for_function` asks again by an eval, which the page's policy forbids."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def test_the_keyboard_is_enough(browser: Browser, site: Site) -> None:
    with watching(browser, site.base) as page:  # what is chosen there is kept
        keyboard(page, site)


def keyboard(page: Page, site: Site) -> None:
    page.goto(site.base)
    page.locator("#q:focus").wait_for()  # at the start there is nothing else to do
    page.goto(site.url("evaluation"))
    page.reload()
    page.locator("svg.chart").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert focus(page) == "main"
    page.keyboard.press("/")
    page.locator("#q:focus").wait_for()
    page.keyboard.type("red signal / ? j")
    page.keyboard.press("Enter")
    page.locator(".hit").first.wait_for()
    page.keyboard.press("ArrowDown")
    assert focus(page) == "1"
    for key, rank in (("j", "2"), ("j", "3"), ("k", "2"), ("ArrowDown", "3"), ("ArrowUp", "2"), ("k", "1"), ("k", "1")):
        page.keyboard.press(key)
        assert focus(page) == rank
    outline = page.evaluate("(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])"
                            "(getComputedStyle(document.activeElement))")  # fmt: skip
    assert outline == ["solid", "3px"]
    page.keyboard.press("Enter")
    expect(page.locator("#hit-1")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#hit-1")).to_be_hidden()
    assert focus(page) == "1"
    page.keyboard.press("?")
    page.locator("dialog[open]").wait_for()
    page.keyboard.press("j")  # the dialog minds its own keys
    page.keyboard.press("Escape")
    page.locator("dialog[open]").wait_for(state="detached")
    page.keyboard.press("3")
    page.locator("table.datasets").wait_for()
    page.keyboard.press("1")
    page.locator(".hit").first.wait_for()
    page.keyboard.press("?")
    page.uncheck("#shortcuts")
    page.keyboard.press("Escape")
    address = page.evaluate("location.hash")
    page.keyboard.press("3")
    assert page.evaluate("location.hash") == address
    expect(page.locator(".hit").first).to_be_visible()


ENGLISH_TEXTS = """(known) => {
  const out = [];
  const skip = "[lang=en], title[lang], [data-content], code, kbd, pre, script, noscript, .brand, .unseen:empty";
  const words = (text) => (text.replace(/\\w+_\\w+/g, "").match(/[A-Za-z]{2,}/g) ?? []) // settings keep their names
    .filter((word) => !known.includes(word));
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.nodeType === 1 ? node : node.parentElement;
    if (element.closest(skip)) continue;
    if (node.nodeType === 3) { if (words(node.data).length) out.push(node.data); }
    else for (const name of ["aria-label", "title", "placeholder", "alt"]) {
      const text = element.getAttribute(name) ?? "";
      if (words(text).length) out.push(text);
    }
  }
  return [...new Set(out)];
}"""
TRANSLATABLE = re.findall(
    "[A-Za-z]{2,}",
    "Pointsman English BM25 auto kB MB ndcg recall id Id ASCII Esc Enter lang ru year and rails hostile dashscope "
    + " ".join([*METHODS, *STRATEGIES.names(), ROUTED]),
)
"""Names that are the same in every language."""


@pytest.mark.parametrize(("lang", "code", "name"), [("zh-CN", "zh-Hans", "zh"), ("ru-RU", "ru", "ru")])
def test_nothing_is_left_in_english(browser: Browser, site: Site, lang: str, code: str, name: str) -> None:
    with watching(browser, site.base) as page:  # in English; then it is switched
        ask_page(page, site.url("ask", q="which signal stops a train?", why="r2", f="year > 1"))
        page.locator(".why .summary").wait_for()
        page.locator("[data-hit='1']").click()
        unfold(page)
        page.click("text=Show as a table")
        page.click(".options > summary")
        page.click("text=What each strategy does")
        page.click("text=/Where .* went/")
        page.select_option("#language", name)
        page.wait_for_timeout(100)  # drawings follow in the next frame
        assert page.evaluate("document.documentElement.lang") == code
        expect(page.locator(".hit")).to_have_count(5)
        expect(page.locator("#hit-1")).to_be_visible()
        assert page.evaluate(ENGLISH_TEXTS, TRANSLATABLE) == []
        for view in ("compare", "datasets", "evaluation"):
            page.goto(site.url(view, q="red signal", name="rails"))
            page.locator("table.ranks:visible, ul.documents:visible, svg.chart:visible").first.wait_for()
            wait_until_filled(page)
            assert page.evaluate(ENGLISH_TEXTS, TRANSLATABLE) == [], view
        for words in ("best pizza recipe in Naples with buffalo mozzarella", f"{FAILING} of trains"):
            ask_page(page, site.url("ask", q=words))
            assert page.evaluate(ENGLISH_TEXTS, TRANSLATABLE) == [], words
        page.reload()
        page.locator(".hit").first.wait_for()
        assert page.evaluate("document.documentElement.lang") == code  # it was kept
    with watching(browser, site.base, lang=lang) as page:
        page.goto(site.base)
        assert page.evaluate("document.documentElement.lang") == code  # by what the browser prefers


def test_numbers_are_written_as_the_language_writes_them(browser: Browser, site: Site) -> None:
    with watching(browser, site.base, lang="ru-RU") as page:
        page.goto(site.url("evaluation"))
        page.locator(".value.best >> text=0,820").wait_for()
        ask_page(page, site.url("ask", q="стрелочный перевод", k=2, n=0))
        assert re.search(r"2 результата за [\d,]+\s?мс", page.locator(".main .headline").inner_text())
        assert "стрелочные" in [mark.lower() for mark in page.locator("mark").all_inner_texts()]


def test_colours_follow_the_system_until_they_are_chosen(browser: Browser, site: Site) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    with watching(browser, site.base, theme="dark") as page:
        page.goto(site.base)
        dark = page.evaluate(paper)
        page.emulate_media(color_scheme="light")
        light = page.evaluate(paper)
        assert dark != light
        page.click("#theme")
        page.click("#theme")
        assert "dark" in (page.get_attribute("#theme", "aria-label") or "")
        assert page.evaluate(paper) == dark
        page.reload()
        assert page.evaluate(paper) == dark
        page.click("#theme")
        assert page.evaluate(paper) == light


# ── accessibility ────────────────────────────────────────────────────────────────────────────────────────────────────


def findings(page: Page, *rules: str) -> list[str]:
    """What axe-core finds serious or critical, and where; by all of its rules unless some are named."""
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    violations = page.evaluate("async (options) => (await axe.run(document, options)).violations", options)
    return [
        f"{violation['id']}: {node['html'][:120]}"
        for violation in violations
        if violation["impact"] in {"serious", "critical"}
        for node in violation["nodes"]
    ]


def scenes(page: Page, site: Site) -> Iterator[str]:
    """Every view, and what can be opened in it, one after the other."""
    ask_page(page, site.url("ask", q="which signal stops a train?", why="r2", f="year > 1"))
    page.locator(".why .summary").wait_for()
    page.locator("[data-hit='1']").click()
    unfold(page)
    page.click("text=Show as a table")
    page.click(".options > summary")
    page.click("text=What each strategy does")
    page.click("text=/Where .* went/")
    yield "ask"
    ask_page(page, site.url("ask", q="best pizza recipe in Naples with buffalo mozzarella"))
    yield "refused"
    ask_page(page, site.url("ask", q=f"{FAILING} of a train", n=0))
    yield "degraded"
    page.goto(site.url("ask", q="signal", f="year >="))
    page.locator(".problem").wait_for()
    yield "problem"
    page.goto(site.url("compare", q="red signal"))
    page.locator("table.overlap").wait_for()
    wait_until_filled(page)
    yield "compare"
    page.goto(site.url("datasets", name="rails"))
    page.locator("ul.documents summary").first.click()
    page.locator("table.datasets button").first.click()
    page.locator(".checked .good").wait_for()
    yield "datasets"
    page.goto(site.url("evaluation"))
    page.locator("svg.chart").nth(2).wait_for()
    page.locator("section.plot summary").first.click()
    yield "evaluation"
    page.click("#who")
    yield "key"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    yield "help"


def test_axe_finds_nothing_serious(browser: Browser, site: Site) -> None:
    pytest.importorskip("axe_core_python", reason="accessibility is tested with axe-core")
    with watching(browser, site.base, axe=True, expected=(422,)) as page:
        page.add_init_script(axe_core())
        page.goto(site.base)
        by_scene = {}
        for scene in scenes(page, site):
            page.emulate_media(color_scheme="light")
            by_scene[scene, "light"] = findings(page)
            page.emulate_media(color_scheme="dark")
            by_scene[scene, "dark"] = findings(page, "color-contrast")  # all that the colours change
        assert len(by_scene) == 18
        assert {scene: violations for scene, violations in by_scene.items() if violations} == {}
