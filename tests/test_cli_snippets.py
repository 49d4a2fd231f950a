"""What the command line prints of a passage ends at a word, and shows Markdown as it is read: without its marks."""

from __future__ import annotations

from time import process_time

import pytest

from pointsman.cli.printed_answers import snippet


@pytest.mark.parametrize("word", ["Weichenstellwerk", "стрелочник", "a"])
@pytest.mark.parametrize("before", range(1, 13))
def test_a_snippet_ends_at_a_word(word: str, before: int) -> None:
    words = ["x" * before, *[word] * 400]
    printed = snippet(" ".join(words), "none").plain
    assert printed.endswith("…")
    assert set(printed.removesuffix("…").split()) <= set(words)
    assert len(printed) > 150


def test_text_without_spaces_is_cut() -> None:
    assert snippet("道岔引导列车" * 200, "道岔").plain == ("道岔引导列车" * 200)[:320] + "…"
    assert snippet("x" * 2000, "none").plain == "x" * 320 + "…"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**Never** open the *valve*, __rule 7__ says.", "Never open the valve, rule 7 says."),
        ("**Никогда** не открывайте _клапан_.", "Никогда не открывайте клапан."),
        ("2 ** 3, snake_case_name, f(**options), a*b*c and 2 * 3 * 4", None),
    ],
)
def test_marks_of_emphasis(text: str, expected: str | None) -> None:
    assert snippet(text, "none", is_markdown=True).plain == (expected or text)
    assert snippet(text, "none").plain == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Leave:\n\n* Paid leave\n  * `weeks` of it\n+ **Никогда** не ждать",
            "Leave: • Paid leave • `weeks` of it • Никогда не ждать",
        ),
        ("* 叉\n* [a link](b.md)\n- as it stands", "• 叉 • [a link](b.md) - as it stands"),
        ("Run:\n\n```bash\nmake test\n```\n\nThen\n~~~\nls\n~~~", "Run: make test Then ls"),
        ("```make```, * 5 * * * cron\n* * *\n* 5 * * * cron", None),
    ],
)
def test_bullets_and_fences(text: str, expected: str | None) -> None:
    assert snippet(text, "none", is_markdown=True).plain == (expected or " ".join(text.split()))
    assert snippet(text, "none").plain == " ".join(text.split())


def test_marks_made_to_be_slow_are_not() -> None:
    start = process_time()
    for text in ("* " * 20_000, "```" * 20_000, " \t" * 20_000, "*a " * 20_000, "\n* " * 20_000, "~~~\n" * 20_000):
        snippet(text, "none", is_markdown=True)
    assert process_time() - start < 3
