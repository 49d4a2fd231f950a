"""`router_select`: the seed's rules, three languages alike, and no input that slows it down."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import thread_time
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from typer.testing import CliRunner

from pointsman import Document, Settings, Workspace
from pointsman.cli.core_commands import app
from pointsman.integrations.mcp.search_tools import route as mcp_route
from pointsman.integrations.mcp.tool_schemas import RouteArguments
from pointsman.integrations.mcp.visible_datasets import Library
from pointsman.selector import heuristic_route as heuristic
from pointsman.selector.heuristic_route import ROUTER_SELECT_TOOL, router_select
from pointsman.service.server import create_app
from pointsman.service.server.access.request_access import Access
from pointsman.text.grammar.route_words import Route, RouteByWords
from pointsman.tools.errors import InputError
from pointsman.values.settings import describe

SHORT = ("bm25", "short_or_entity_numeric")
TALK = ("dense", "conversational_or_long")
PLAIN = ("dense", "default_dense")
MIXED_SIGNALS = ("hybrid", "filters_or_mixed_signals")
EXACT = ("hybrid", "mixed_signals")

CASES = {
    "seed": [
        ("дата создания", SHORT),
        ("почему небо голубое", TALK),
        ("новости channel:tech после:2024-01-01", MIXED_SIGNALS),
        ("кот в шляпе", PLAIN),
    ],
    "en": [
        ("", SHORT),
        ("   ", SHORT),
        ("kubernetes", SHORT),
        ("neural networks", SHORT),
        ("cat in the hat", PLAIN),
        ("somewhat", SHORT),  # no "what"
        ("nowhere whatever", PLAIN),
        ("why is the sky blue", TALK),
        ("how?", TALK),
        ("Explain raft", TALK),
        ("error 404", SHORT),
        ("RFC 9110 section 15", SHORT),
        ("release of 3.11.4", SHORT),
        ("meeting on 2024-05-01", SHORT),
        ("@alice quarterly report", SHORT),
        ("#release notes for the whole team", SHORT),
        ("https://example.org/docs", SHORT),
        ("why did error 404 appear", MIXED_SIGNALS),
        ("what changed since 2024-01-01", MIXED_SIGNALS),
        ("who is @alice", MIXED_SIGNALS),
        ("news channel:tech", MIXED_SIGNALS),
        ("budget after:2023", MIXED_SIGNALS),
        ("Date: 2024-05-01 invoices", MIXED_SIGNALS),
        ("budget source:crm", MIXED_SIGNALS),
        ("plans tag:urgent author:smith", MIXED_SIGNALS),
        ("resources: the roadmap", PLAIN),  # not source:
        ("ERR_CONNECTION_RESET", SHORT),
        ("error 0x80070057 in the installer", SHORT),
        ("why ERR_CONNECTION_RESET", MIXED_SIGNALS),
        ("the reasons for ERR_CONNECTION_RESET behind corporate firewalls", EXACT),
        ("snake_", SHORT),
        ("update: the roadmap", PLAIN),  # not date:
        ("python3 decorators", PLAIN),
        ("garbage collection in modern virtual machines", PLAIN),
        ("revenue of the northern subsidiaries in the year 2019", EXACT),
        ("garbage collection in modern virtual machines " * 3, TALK),
        ("garbage collection in modern virtual machines " * 3 + "1995", TALK),
        ("garbage collection in modern virtual machines " * 30 + "1995, but how", MIXED_SIGNALS),
    ],
    "ru": [
        ("котики", SHORT),
        ("сборка мусора", SHORT),
        ("кот и пёс", PLAIN),
        ("такая же история", PLAIN),
        ("какао", SHORT),  # no «как»
        ("чтокать", SHORT),
        ("как работает сборщик мусора", TALK),
        ("Объясни сборку мусора", TALK),
        ("что?", TALK),
        ("сколько стоит билет", TALK),
        ("расскажите про осень", TALK),
        ("ГОСТ 7.32", SHORT),
        ("приказ от 12.05.2021", SHORT),
        ("@иван отчёт за квартал", SHORT),
        ("#релиз заметки для команды", SHORT),
        ("https://пример.рф/статья", SHORT),
        ("почему упал сервер 42", MIXED_SIGNALS),
        ("кто такой @иван", MIXED_SIGNALS),
        ("новости канал:техника", MIXED_SIGNALS),
        ("отчёты до:2023", MIXED_SIGNALS),
        ("приказы год:2024", MIXED_SIGNALS),
        ("отчёты с:2023 по:2024", MIXED_SIGNALS),
        ("рассказы автор:чехов", MIXED_SIGNALS),
        ("ошибка 0x80070057", SHORT),
        ("как исправить 0x80070057", MIXED_SIGNALS),
        ("Дата：2024", MIXED_SIGNALS),
        ("обход: северная дорога", PLAIN),  # not до:
        ("устройство современных виртуальных машин", PLAIN),
        ("выручка северных дочерних предприятий за 2019 год", EXACT),
        ("устройство современных виртуальных машин " * 3, TALK),
    ],
    "zh": [
        ("环保设备", SHORT),
        ("机器学习", SHORT),
        ("猫的历史", PLAIN),
        ("猫和狗", PLAIN),
        ("目的地", SHORT),  # 的 is part of a word
        ("共和国", SHORT),
        ("哪吒", SHORT),  # a name
        ("解释器", SHORT),  # an interpreter
        ("为什么天空是蓝色的", TALK),
        ("怎么安装", TALK),
        ("请解释垃圾回收", TALK),
        ("什麼是環保設備?", TALK),
        ("谁发明了电话", TALK),
        ("这样好吗", TALK),
        ("2024年计划", SHORT),
        ("第3章", SHORT),
        ("会议2024-05-01纪要", SHORT),
        ("@小明 的报告", SHORT),
        ("＃发布 说明", SHORT),
        ("见https://example.org", SHORT),
        ("为什么2024年下降", MIXED_SIGNALS),
        ("新闻 频道:科技", MIXED_SIGNALS),
        ("新闻频道：科技", MIXED_SIGNALS),
        ("小说 作者:鲁迅", MIXED_SIGNALS),
        ("新闻来源：新华社", MIXED_SIGNALS),
        ("错误0x80070057", SHORT),
        ("错误代码ERR_CONNECTION_RESET", SHORT),
        ("报告 日期：2024", MIXED_SIGNALS),
        ("预算 之后:2023", MIXED_SIGNALS),
        ("新闻channel:tech", MIXED_SIGNALS),
        ("现代虚拟机中的垃圾回收机制", PLAIN),
        ("公司北部子公司二十年来的营业收入以及2019年的净利润", EXACT),
        ("现代虚拟机中的垃圾回收机制" * 3, TALK),
    ],
}


@pytest.mark.parametrize(
    ("query", "expected"), [case for cases in CASES.values() for case in cases], ids=lambda value: str(value)[:40]
)
def test_route_and_reason(query: str, expected: tuple[str, str]) -> None:
    assert router_select(query) == {"route": expected[0], "reasons": [expected[1]]}


def test_every_language_has_a_table() -> None:
    assert all(len(CASES[language]) >= 20 for language in ("en", "ru", "zh"))
    for language in ("en", "ru", "zh"):
        assert {expected for _, expected in CASES[language]} == {SHORT, TALK, PLAIN, MIXED_SIGNALS, EXACT}


# The seed's patterns, word for word.
SEED_NUMBER = re.compile(r"\b\d+[\d\-:\./]*\b")
SEED_DATE = re.compile(r"\b(\d{4}[\-/]\d{1,2}[\-/]\d{1,2}|\d{1,2}[\./]\d{1,2}[\./]\d{2,4})\b")
SEED_ENTITY = re.compile(r"[@#][\w_]+|https?://\S+")
DIGITS = st.text("0123456789-:./ aяé_٣²@#\n", max_size=12)


@given(DIGITS)
def test_numbers_and_dates_are_the_seeds(text: str) -> None:
    is_number = heuristic._NUMBER.search(text) is not None
    assert is_number == (SEED_NUMBER.search(text) is not None)
    assert is_number or SEED_DATE.search(text) is None


@given(
    st.text("htps:/@#_ aя9\n", max_size=12)
    | st.just("https://x").flatmap(lambda url: st.text(max_size=3).map(url.__add__))
)
def test_entities_are_the_seeds(text: str) -> None:
    assert (heuristic._ENTITY.search(text) is not None) == (SEED_ENTITY.search(text) is not None)


@given(st.text())
def test_any_text_has_a_route_and_always_the_same(text: str) -> None:
    choice = router_select(text)
    assert choice["route"] in {"bm25", "dense", "hybrid"}
    assert choice == router_select(text)


@given(st.text(), st.text("\x00\x07\x1b\u200b \t\n", min_size=1, max_size=5))
def test_what_cannot_be_seen_around_a_query_changes_nothing(text: str, invisible: str) -> None:
    assert router_select(f"{invisible}{text}{invisible}") == router_select(text)


HOSTILE = [
    "1" * 64 + "a",
    "1-",
    "1-1:1./a",
    "a1",
    ":",
    "：",
    "date ",
    "e:",
    "http://",
    "@ ",
    "解释器",
    "图书馆",
    "\x00\x01",
    "слово дело ",
    " ",
    "\ud800",
    "é",
]


@pytest.mark.parametrize("unit", HOSTILE, ids=ascii)
def test_a_long_text_is_routed(unit: str) -> None:
    # No clock is asked: with the seed's own patterns several of these would not come to an end today.
    text = (unit * 200_000)[:200_000] + "x"
    assert router_select(text)["route"] == ("bm25" if not unit.strip(" \x00\x01") else "dense")


def test_only_text_is_taken() -> None:
    wrong: Callable[[object], object] = router_select  # type: ignore[assignment]
    with pytest.raises(InputError, match="not int: 5"):
        wrong(5)


def test_the_tool_schema_is_plain_json_and_names_the_argument() -> None:
    function = json.loads(json.dumps(ROUTER_SELECT_TOOL))["function"]
    assert function["name"] == "router_select"
    assert function["parameters"]["required"] == ["query"] == list(function["parameters"]["properties"])


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; from pointsman.selector.heuristic_route import router_select; router_select('почему 什么 why');"
        "print(sorted({m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names))"
    )
    modules = subprocess.check_output(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str_of_src()!r}); {code}"]
    )
    assert set(eval(modules)) <= {"pointsman", "__main__"}


def str_of_src() -> str:
    import pointsman

    return str(pointsman.__file__).rpartition("/pointsman/")[0]


class TestRules:
    """Rules of one's own come before the built-in ones."""

    @staticmethod
    def part_number(query: str) -> tuple[Route, str] | None:
        return ("bm25", "part_number") if query.startswith("PN-") else None

    def test_first_rule_that_answers_decides(self) -> None:
        rules = [self.part_number, lambda _: ("hybrid", "always")]
        assert router_select("PN-77 why does it leak?", rules) == {"route": "bm25", "reasons": ["part_number"]}
        assert router_select("why does it leak?", rules=rules) == {"route": "hybrid", "reasons": ["always"]}

    def test_built_in_rules_decide_when_no_rule_answers(self) -> None:
        assert router_select("почему небо голубое", [self.part_number]) == router_select("почему небо голубое")

    @pytest.mark.parametrize("rule", ["bm25", lambda _: "bm25", lambda _: ("keyword", "x"), lambda _: ("bm25", 1)])
    def test_invalid_rule_is_refused(self, rule: object) -> None:
        with pytest.raises(InputError, match="rule"):
            router_select("x", [rule])  # type: ignore[list-item]


class TestRulesOfSettings:
    """Rules in settings are words and phrases, checked where they are given, and obeyed wherever a query is routed."""

    RULE: ClassVar = {"words": ["PN-", "деталь", "发票"], "route": "bm25", "reason": "part_number"}
    RULES_IN_JSON = json.dumps([RULE, {"words": ["How  is"], "route": "hybrid", "reason": "everyday: как обычно"}])

    @pytest.mark.parametrize(
        ("query", "reason"),
        [
            ("why does pn-77 leak?", "part_number"),
            ("почему течёт Деталь?", "part_number"),
            ("为什么增值税发票不见了", "part_number"),
            ("Well, how is it", "everyday: как обычно"),
            ("why is the PN wrong", "conversational_or_long"),
            ("почему детальность важна", "conversational_or_long"),
            ("how isolated is it", "conversational_or_long"),
            ("why " + "x " * 1000 + "PN-77", "filters_or_mixed_signals"),
        ],
    )
    def test_whole_words_and_phrases_decide_in_every_language(self, query: str, reason: str) -> None:
        rules = Settings.load(environ={"POINTSMAN_ROUTE_RULES": self.RULES_IN_JSON}).route_rules
        assert router_select(query, rules)["reasons"] == [reason]

    @pytest.mark.parametrize(
        ("rules", "message"),
        [
            ("PN-", "a list of at most 100 rules, in JSON as .*not 'PN-'"),
            ([RULE] * 101, "a list of at most 100 rules"),
            ([RULE, "PN-"], "rule 2 has words, route and reason and nothing else, not 'PN-'"),
            ([RULE, {**RULE, "pattern": "x"}], "rule 2 has words, route and reason and nothing else"),
            ([{**RULE, "route": "sparse"}], "rule 1 has as its route one of bm25, dense, hybrid, not 'sparse'"),
            ([{**RULE, "route": []}], "rule 1 has as its route"),
            ([{**RULE, "words": "PN-"}], "rule 1 has as its words a list of 1 to 20 words or phrases, not 'PN-'"),
            ([{**RULE, "words": []}], "rule 1 has as its words a list"),
            (
                [{**RULE, "words": ["x", " "]}],
                "rule 1 has as its words texts of 1 to 100 characters on one line, not ' '",
            ),
            ([{**RULE, "words": ["x" * 101]}], "rule 1 has as its words texts"),
            ([{**RULE, "reason": 7}], "rule 1 has as its reason a text of 1 to 100 characters on one line, not 7"),
            ([{**RULE, "reason": "a\nb"}], "rule 1 has as its reason"),
        ],
    )
    def test_wrong_rule_is_named_with_the_remedy(self, rules: Any, message: str) -> None:
        with pytest.raises(InputError, match=f"route_rules is .*{message}"):
            Settings(route_rules=rules)
        with pytest.raises(InputError, match=r"route_rules \(from POINTSMAN_ROUTE_RULES\)"):
            Settings.load(environ={"POINTSMAN_ROUTE_RULES": json.dumps(rules)})

    def test_file_and_copies_keep_the_rules(self, tmp_path: Path) -> None:
        file = tmp_path / "pointsman.toml"
        file.write_text('[[pointsman.route_rules]]\nwords = ["PN-"]\nroute = "bm25"\nreason = "part"\n', "utf-8")
        settings = Settings.load(file, environ={}).updated(timeout=3)
        assert settings.route_rules == (RouteByWords(("PN-",), "bm25", "part"),)
        row = next(row for row in describe(settings) if row["name"] == "route_rules")
        assert row["value"] == [{"words": ["PN-"], "route": "bm25", "reason": "part"}]
        assert row["origin"] == f"{file}:route_rules"

    def test_python_service_mcp_and_command_line_obey_alike(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("POINTSMAN_ROUTE_RULES", self.RULES_IN_JSON.replace("part_number", "weight"))
        expected = {"route": "bm25", "reasons": ["weight"]}  # also a code of another message, which has parts
        query = "why does PN-77 leak?"
        with Workspace(tmp_path / "w", embedder=None, settings=Settings.load()) as workspace:
            workspace.dataset("d", indexing_technique="keyword").add([Document("1", "PN-77 leaks")])
            routing = workspace.route(query)
            assert (routing.heuristic, routing.heuristic_reason) == (expected, "weight")
            library = Library(workspace, None, ("auto",), 5.0)
            answer = mcp_route(library, Access.open(), RouteArguments(query=query))
            assert answer.model_dump()["heuristic"] == expected
            with TestClient(create_app(workspace), base_url="http://localhost") as client:
                assert client.post("/api/route", json={"query": query}).json()["heuristic"] == expected
        for folder in (tmp_path / "w", tmp_path / "none"):
            run = CliRunner().invoke(app, ["route", query, "--json", "-w", str(folder)])
            assert json.loads(run.stdout)["heuristic"] == expected

    def test_rules_made_for_it_do_not_hold_up_a_search(self) -> None:
        words = [f"{'a ' * 40}{number}" for number in range(20)]
        rule_forms: Any = [{"words": words, "route": "bm25", "reason": "r"}] * 100
        rules = Settings(route_rules=rule_forms).route_rules
        router_select("a", rules)
        start = thread_time()
        router_select("a " * 10_000, rules)
        assert thread_time() - start < 2
