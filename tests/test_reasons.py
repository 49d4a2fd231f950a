"""Reasons: statements with a code, in words of one language, the same at every interface; a refusal is said once."""

from __future__ import annotations

import copy
import json
import pickle
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

import pointsman
from pointsman import Document, RetrievalContext
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.retrieval.judge.kept_calibrations import Reranking
from pointsman.retrieval.plan.recommended_strategy import recommend
from pointsman.values.reasons import Reason, Statement, in_language, language_of, messages
from pointsman.workspace.calibration.dataset_calibration import Fit
from reason_words import is_sentence, sentences_in_source, sentences_of, values_of

QUESTIONS = {"en": "what do penguins eat?", "zh": "企鹅吃什么？", "ru": "что едят пингвины?"}
HAN, CYRILLIC = re.compile("[\u4e00-\u9fff]"), re.compile("[а-я]")
TERMS = re.compile(r"[\w.]*_\w+|--[\w-]+|'[^']*'|HyDE|invoices|hyde|hybrid|query2doc|decomposition|multi_query")
"""What is not translated: names of settings, options, datasets, documents and strategies."""


NOT_SAID = {
    "Async version of `{}`.": "a docstring",
    "Pictures: photos, drawings, illustrations, screenshots and other images.": "for the model that routes",
    "Written text: facts, explanations, definitions, documents.": "for the model that routes",
    "calibrated with variants": "the name of a scale",
    "{} with variants": "the name of a scale",
    "embedder of {}": "a name",
    "background of {}": "a name",
    "hits without documents": "in an error",
    "{}: the calibrations": "in an error",
    "fitted to {} labelled queries by pointsman tune": "kept with the policy",
    "beats the default on {} labelled queries, by pointsman tune": "kept with the policy",
    "models have half of timeout={}: raise timeout": "in an error",
    "raise it with Budget(…)": "in an error",
    "raise llm_timeout": "in an error",
    "raise the seconds of its Budget": "in an error",
    "the cosines": "in an error",
    "the reranker {}": "in an error",
    "newer first": "a value",
    "of sources": "a name",
    "one word": "the name of a variant",
    "other groups": "the name of a question",
    "query engine": "a name",
    "weight of MMR": "in an error",
    "words and {}": "a value",
    "{} for each {}": "the name of a way of ranking",
}
"""Texts in the source of a search that people don't read as its words, and why."""


CODES_OF_KINDS = {"of", "of_error", *(code for code in messages() if code.startswith(("order_", "odds_")))}
"""Codes that are made, and those that are forms of a text."""


def is_in(text: str, language: str) -> bool:
    """Whether a sentence has words of this language alone."""
    words = TERMS.sub("", text)
    scripts = {"zh": HAN.search(words), "ru": CYRILLIC.search(words), "en": re.search("[a-z]{2}", words)}
    return {name for name, match in scripts.items() if match} == {language}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pointsman.open(tmp_path_factory.mktemp("reasons")) as workspace:
        dataset = workspace.dataset("invoices")
        dataset.add([Document(f"i{number}", f"Invoice {number}: paper and toner.") for number in range(9)])
        yield workspace


def test_every_language_names_the_same_values() -> None:
    for code, texts in messages().items():
        english, *translations = ({name for _, name, _, _ in Formatter().parse(words) if name} for words in texts)
        for names in translations:
            assert names == english or (code == "model" and not names), code


@pytest.mark.parametrize("language", QUESTIONS)
def test_a_refusal_is_in_the_language_of_its_question(workspace: pointsman.Workspace, language: str) -> None:
    answer = workspace.search(QUESTIONS[language])
    assert answer.refused is not None
    assert is_in(answer.refused.reason, language)
    assert is_in(answer.reason, language)
    assert answer.heading is not None
    assert is_in(answer.heading, language)
    assert [statement.code for statement in answer.refused.reasons] == ["improbable"]
    assert answer.reasons[0].code == "calibrated"
    assert answer.to_prompt().count(answer.heading) == 1
    assert answer.to_prompt().startswith(answer.heading)


@pytest.mark.parametrize("language", QUESTIONS)
def test_no_sentence_mixes_languages(workspace: pointsman.Workspace, language: str, tmp_path: Path) -> None:
    settings = pointsman.Settings(policy="heuristic")
    with pointsman.open(tmp_path, settings=settings, embedder=HashingEmbedder()) as own_workspace:
        own_workspace.dataset("notes").add([Document("a", "Invoice: paper and toner.")])
        answer = own_workspace.search(QUESTIONS[language])
    assert [statement.code for statement in answer.reasons][1:] == ["passed_over", "model"]
    for sentence in re.split("[;；] ?", answer.reason)[: 2 if language == "en" else None]:
        assert is_in(sentence, language), sentence
    assert is_in(str(recommend(QUESTIONS[language]).reason), language)


def template(code: str) -> str:
    return re.sub(r"\{\w+\}", "{}", messages()[code][0])


def test_what_a_search_says_has_words_in_every_language() -> None:
    """Each sentence of each text in the source; what has none would leave the whole text in English."""
    known_sentences = {sentence for code in messages() for sentence in sentences_of(template(code))}
    sentences = {(sentence, location) for sentence, location in sentences_in_source() if is_sentence(sentence)}
    assert len(sentences) > 150
    assert {
        location: sentence
        for sentence, location in sentences
        if not {sentence, f"{{}} {sentence}"} & known_sentences and sentence not in NOT_SAID
    } == {}


def test_every_text_of_the_catalogue_is_said() -> None:
    """By its code, or by its English words."""
    sentences = {sentence for sentence, _ in sentences_in_source()}
    source = "\n".join(path.read_text("utf-8") for path in Path(pointsman.__file__).parent.rglob("*.py"))
    for code in messages():
        words = set(sentences_of(template(code)))
        if code.startswith("problem_"):
            continue  # see test_problem_words
        has_words = words <= sentences or {sentence.removeprefix("{} ") for sentence in words} <= sentences
        assert has_words or f'"{code}"' in source or messages()[code][0] in source or code in CODES_OF_KINDS, code
    assert NOT_SAID.keys() <= sentences


def test_no_code_has_two_texts() -> None:
    catalogue = (Path(pointsman.__file__).parent / "values" / "messages.json").read_text("utf-8")
    codes = [code for code, _ in json.JSONDecoder(object_pairs_hook=list).decode(catalogue)]
    assert sorted(set(codes)) == sorted(codes)
    templates = [template(code) for code in codes if is_sentence(template(code))]
    assert sorted(set(templates)) == sorted(templates)


def test_a_text_is_known_by_its_english_words() -> None:
    for code, language in product(messages(), QUESTIONS):
        statement = Statement(code, values_of(code))
        words = statement.in_words(language)
        assert words.strip(), code
        assert in_language(statement.in_words("en"), language) == words
        joined_reason = Reason.join_all(Reason.of("holders"), statement.in_words("en"), Reason.of("words"))
        mark = "；" if language == "zh" else "; "
        outer_words = [str(Reason.of(edge).in_language(language)) for edge in ("holders", "words")]
        assert joined_reason.in_language(language) == mark.join([outer_words[0], words, outer_words[1]])


def test_a_text_with_other_words_stays_whole() -> None:
    for text in (
        "the order is kept; the moon is full",
        "fuse: not an error; the order is kept",
        "the order is kept, too",
    ):
        assert in_language(text, "ru") == text


def test_words_of_another_language_keep_the_whole_in_english() -> None:
    reason = Reason.join_all("the dataset was named by the model", Reason.of("calibrated"))
    assert reason.in_language("zh") == reason
    assert (
        Reason.join_all("模型选择了这个数据集", Reason.of("words")).in_language("zh")
        == "模型选择了这个数据集；数据集只有词语"
    )


def test_codes_travel_with_the_answer(workspace: pointsman.Workspace) -> None:
    answer = workspace.search(QUESTIONS["ru"])
    form = json.loads(json.dumps(answer.to_dict()))
    assert form["refused"]["reasons"][0]["values"].keys() == {"chance", "wanted", "id"}
    read_answer = RetrievalContext.from_dict(form)
    assert (read_answer.reasons, read_answer.reason) == (answer.reasons, answer.reason)
    assert read_answer.refused is not None
    assert answer.refused is not None
    assert read_answer.refused.reasons == answer.refused.reasons


def test_a_reason_is_copied_with_its_parts() -> None:
    reason = Reason.of("holders").in_language("zh")
    for clone in (copy.deepcopy(reason), pickle.loads(pickle.dumps(reason))):
        assert (clone, clone.statements) == (reason, reason.statements)
    assert Reason("").statements == ()


def test_an_unknown_code_is_shown_in_its_own_words() -> None:
    assert Statement("of a later version", {"text": "so"}).in_words("ru") == "so"
    assert Statement("of a later version").in_words() == "of a later version"


def test_languages_without_words_read_english() -> None:
    assert [language_of(text) for text in ("was ist das für ein Ding", "これは何ですか", "", "що це їсть")] == [
        "en"
    ] * 4


@pytest.mark.parametrize("text", ["ValueError: " + "y: " * 1_000, "a: b: c: d: " * 3 + "no passage", "x" * 10_000])
def test_a_text_of_somebody_else_is_not_read_for_long(text: str) -> None:
    """A server's error stands in answers: of parts in parts and long texts the words are left as they are."""
    assert in_language(text, "zh") == text


NAMES = re.compile(
    "jina:m|TimeoutError|rerank：|rerank:|a：|a:|pointsman calibrate|notes|words|both|vector|nDCG|OSError: gone"
)
RERANKING = Reranking("jina:m", True, "40 labelled questions", 0.5, 0.6, 0.05, 12.0)


@pytest.mark.parametrize(
    "reason",
    [
        RERANKING.reason,
        f"notes: {replace(RERANKING, adopted=False, questions='30 questions made from the documents').reason}",
        replace(RERANKING, problem="it failed on 3 of 9 questions: rerank: TimeoutError").reason,
        "notes: fitted to 60 labelled questions by pointsman calibrate; a: unchanged after 60 labelled questions",
        "notes: none could be made: a calibration is made from 20 documents on; there are 3",
        "none could be made from the documents: OSError: gone",
        "notes: a calibration is being made from the documents",
        str(Fit("words", 0.043, 0.123, 0.1, 0.05, adopted=True)),
        str(Fit("both", 0.043, None, 0.1, -0.05, adopted=False)),
        "60 labelled questions can be used in 'notes'; at least 20 are needed to calibrate",
    ],
)
def test_what_is_fitted_to_a_dataset_has_words(reason: str) -> None:
    for language in ("zh", "ru"):
        assert is_in(NAMES.sub("", in_language(reason, language)), language)


def test_a_long_calibration_has_words() -> None:
    fits = [str(Fit(form, 0.043, 0.123, 0.1, 0.05, adopted=True)) for form in ("both", "vector", "words")]
    reason = Reason.join_all("60 labelled questions", *fits * 3, RERANKING.reason, "nothing was stored")
    assert len(reason) > 500
    assert is_in(NAMES.sub("", reason.in_language("ru")), "ru")
