"""README in Chinese and Russian says what the English one says: the same headings, examples, options and links."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {"en": "README.md", "zh": "README.zh.md", "ru": "README.ru.md"}
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def page(language: str) -> str:
    return (ROOT / PAGES[language]).read_text(encoding="utf-8")


def prose(language: str) -> str:
    return FENCED.sub("", page(language))


def options(text: str) -> Counter[str]:
    """Names, options and commands within sentences."""
    return Counter(re.findall(r"`([^`\n]+)`", re.sub(r"\s+", " ", text)))


def links(text: str) -> Counter[str]:
    return Counter(target for target in re.findall(r"\]\(([^)]+)\)", text) if target not in PAGES.values())


@pytest.mark.parametrize("language", ["zh", "ru"])
class TestTranslation:
    def test_headings(self, language: str) -> None:
        levels = [re.findall(r"^#+", line)[0] for line in prose("en").splitlines() if line.startswith("#")]
        assert [re.findall(r"^#+", line)[0] for line in prose(language).splitlines() if line.startswith("#")] == levels

    def test_examples(self, language: str) -> None:
        assert FENCED.findall(page(language)) == FENCED.findall(page("en"))

    def test_options(self, language: str) -> None:
        assert options(prose(language)) == options(prose("en"))

    def test_links(self, language: str) -> None:
        assert links(page(language)) == links(page("en"))

    def test_paragraphs_and_items_are_as_many(self, language: str) -> None:
        blocks = [block[:2] == "- " for block in re.split(r"\n\s*\n|\n(?=- )", prose("en").strip())]
        assert [block[:2] == "- " for block in re.split(r"\n\s*\n|\n(?=- )", prose(language).strip())] == blocks

    def test_it_is_written_in_its_language(self, language: str) -> None:
        letters = "[\u4e00-\u9fff]" if language == "zh" else "[а-яё]"
        for block in re.split(r"\n\s*\n", prose(language).strip())[1:]:
            assert re.search(letters, block), block


@pytest.mark.parametrize("language", PAGES)
def test_each_names_the_others(language: str) -> None:
    first_lines = page(language)[:200]
    assert all(f"]({other_page})" in first_lines for other, other_page in PAGES.items() if other != language)


def test_one_idea_has_one_word_in_chinese_and_russian() -> None:
    """The glossary says which, and which are never used: of a word its beginning."""
    root = Path(__file__).parents[1]
    glossary = (
        (root / "docs" / "glossary.md").read_text("utf-8").split("## In Chinese and Russian")[1].split("\n## ")[0]
    )
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in glossary.splitlines() if line.startswith("| ")]
    paths = ["README.zh.md", "README.ru.md", "docs/cli.zh.md", "docs/cli.ru.md"]
    package = "src/pointsman"
    paths += [f"{package}/{path}" for path in ("cli/help_texts.json", "values/messages.json")]
    paths.append(f"{package}/service/console/messages.mjs")
    texts = {path: (root / path).read_text("utf-8").lower() for path in paths}
    for _, *terms, rejected_terms in rows[1:]:
        for term in ", ".join(terms).split(", "):
            stem = term[:-1] if len(term) > 4 else term  # without the ending of Russian words
            assert any(stem in text for text in texts.values()), term
        for term in rejected_terms.split(", "):
            pattern = re.compile(term if term > "一" else rf"(?<!\w){term}")
            assert {path: match[0] for path, text in texts.items() if (match := pattern.search(text))} == {}
