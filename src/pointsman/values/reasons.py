"""Reasons as statements with a code, put into words where they are read: in English, Chinese or Russian.

A `Reason` is a text, so whatever takes a reason in words takes one; its statements tell programs, and interfaces in
another language, what it says. The language of an answer is that of its question; the console has a language of its
own, and the same codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Self

from pointsman.text.language import detect

TEXT: Final = ""
"""The code of a statement in words of its own, such as those of a language model: its value ``text``."""

WORDS: Final[Mapping[str, tuple[str, str, str]]] = {
    # above the hits of an answer that is refused, or hardly an answer
    "nearest": (
        "Probably no answer here. Nearest:",
        "这里可能没有答案。最接近的内容：",
        "Скорее всего, ответа здесь нет. Ближайшее:",
    ),
    "unsure": (
        "Nothing here says this surely. Nearest:",
        "这里没有内容明确回答此问题。最接近的是：",
        "Точного ответа здесь не видно. Ближайшее:",
    ),
    # of a hit; the ranges are those of `pointsman.values.types.ODDS`
    "odds_strong": ("strong match", "匹配度高", "явное совпадение"),
    "odds_possible": ("possible match", "可能匹配", "возможное совпадение"),
    "odds_nearest": ("nearest", "最接近", "ближайшее"),
    # of an answer that is refused
    "no_results": ("No results", "没有结果", "Ничего не найдено"),
    "no_word": ("the question has no words", "问题中没有词语", "в вопросе нет слов"),
    "improbable": (
        "No relevant results: the best candidate has relevance {chance}, and {wanted} is needed; the closest is {id}",
        "没有相关结果：最佳候选的相关概率为 {chance}，需要 {wanted}；最接近的是 {id}",
        "Подходящего нет: лучший кандидат подходит с вероятностью {chance}, а нужно {wanted}; ближайший — {id}",
    ),
    "too_irrelevant": (
        "No relevant results: the closest, {id}, has relevance {chance}; at least {wanted} is required",
        "没有相关结果：最接近的 {id} 相关概率为 {chance}，至少需要 {wanted}",
        "Подходящего нет: ближайший, {id}, подходит с вероятностью {chance}; нужно не меньше {wanted}",
    ),
    "threshold": (
        "the best hit reaches {score} of {minimum} ({scale})",
        "最佳结果为 {score}，需要 {minimum}（{scale}）",
        "лучший результат набирает {score} из {minimum} ({scale})",
    ),
    "anyway": ("--refuse never answers anyway", "--refuse never 仍然作答", "--refuse never всё равно ответит"),
    "lower": (
        "a lower --min-relevance shows more",
        "降低 --min-relevance 可显示更多",
        "меньшее --min-relevance покажет больше",
    ),
    "filter": (
        "each hit matches the filter; the words don't",
        "每条结果都符合筛选条件，但与问题的词语不符",
        "каждый результат подходит под фильтр, но не под слова вопроса",
    ),
    "syntax": (
        "each hit holds {terms}; the other words don't match",
        "每条结果都含有 {terms}，但与其他词语不符",
        "в каждом результате есть {terms}, но остальные слова не подходят",
    ),
    # of what could not be done as asked
    "truncated": (
        "too long a question for the embedder, which reads {held} of {characters} characters: shorten or divide it",
        "问题超出嵌入模型的长度上限，只读取前 {held} 个字符（共 {characters} 个）：请缩短或分开提问",
        "вопрос слишком длинный: модель читает первые {held} знаков из {characters}; сократите или разделите его",
    ),
    "in_turn": (
        "{count} datasets are searched in turn, {most} at once: raise the limit of open files, or name fewer datasets",
        "{count} 个数据集分批检索，每批 {most} 个：请提高打开文件数的上限，或指定较少的数据集",
        "{count} наборов — по очереди, сразу {most}: повысьте предел открытых файлов или назовите меньше наборов",
    ),
    # of the order of hits, where one stands above another that is more relevant
    "order_fuse": (
        "the order is that of all evidence together, while relevance judges each hit by itself",
        "排序依据全部证据的总分，相关度则单独评判每条结果",
        "порядок — по всем данным вместе, а вероятность считается для каждого результата отдельно",
    ),
    "order_retrieve": (
        "the order is that of the scores in the list, while relevance judges each hit by itself",
        "排序依据列表中的得分，相关度则单独评判每条结果",
        "порядок — по оценкам в списке, а вероятность считается для каждого результата отдельно",
    ),
    "order_rerank": (
        "the order is the reranker's, while relevance judges each hit by itself",
        "排序由重排模型给出，相关度则单独评判每条结果",
        "порядок задал реранкер, а вероятность считается для каждого результата отдельно",
    ),
    "order_exact": (
        "what holds exactly what is asked for comes first, whatever its relevance",
        "含有所问确切内容的排在前面，不论相关度",
        "сначала то, где есть именно названное, какова бы ни была вероятность",
    ),
    "order_versions": (
        "what is in force comes before what it replaced, whatever its relevance",
        "现行的排在被取代的前面，不论相关度",
        "действующее стоит выше заменённого, какова бы ни была вероятность",
    ),
    "order_recency": (
        "newer hits come first, as the question speaks of time, whatever their relevance",
        "问题涉及时间，较新的排在前面，不论相关度",
        "в вопросе речь о времени, поэтому новое стоит выше, какова бы ни была вероятность",
    ),
    "order_diversify": (
        "hits that say something else come earlier, whatever their relevance",
        "内容不同的结果提前，不论相关度",
        "результаты о другом стоят раньше, какова бы ни была вероятность",
    ),
    "order_other": (
        "the stage {stage!r} sets the order, whatever the relevance",
        "排序由阶段 {stage!r} 决定，不论相关度",
        "порядок задала стадия {stage!r}, какова бы ни была вероятность",
    ),
    # of a strategy
    "asked": ("requested", "按要求", "так задано"),
    "calibrated": (
        "keyword and vector evidence together, by the calibrated sum",
        "关键词与向量的证据按校准后的总和合并",
        "слова и векторы вместе, по калиброванной сумме",
    ),
    "foreign": (
        "every list there is, by reciprocal rank where scores are foreign",
        "合并所有列表；分数不可比时按倒数排名",
        "все списки; где оценки чужие — по обратным рангам",
    ),
    "vectors": ("the datasets keep vectors only", "数据集只有向量", "в наборах только векторы"),
    "words": ("the datasets keep words only", "数据集只有词语", "в наборах только слова"),
    "no_dataset": ("there is no dataset yet", "还没有数据集", "наборов ещё нет"),
    "weight": (
        "vectors have weight {weight}: the best cosine is {span} σ above the mean of random documents",
        "向量权重 {weight}：最佳余弦高出随机文档均值 {span} σ",
        "вес векторов {weight}: лучший косинус на {span} σ выше среднего случайных документов",
    ),
    "tuned_weight": (
        "vectors have weight {weight}, {factor} by your labels: the best cosine is {span} σ above chance",
        "向量权重 {weight}：最佳余弦高出随机文档均值 {span} σ，按您的标注乘以 {factor}",
        "вес векторов {weight}: лучший косинус на {span} σ выше случайного, {factor} по вашим меткам",
    ),
    "holders": ("what holds the word comes first", "含有该词的排在前面", "сначала то, где есть это слово"),
    "languages": (
        "cosines across languages are raised: {added}",
        "跨语言的余弦已调高：{added}",
        "косинусы между языками повышены: {added}",
    ),
    "rare_script": (
        "words in a script that is rare in {names} are not searched there",
        "在 {names} 中少见的文字，其词语不在那里搜索",
        "слова на письме, редком в {names}, там не ищутся",
    ),
    "compares": (
        "“{cue}” compares: each side is searched by its own question",
        "比较词“{cue}”：适合拆成子问题，分别检索",
        "«{cue}» — сравнение: каждая сторона ищется отдельным вопросом",
    ),
    "ends_asking": (
        "a question, as it ends in a question mark: a generated answer finds similar passages",
        "疑问句（问号结尾）：适合用HyDE，以假设答案检索",
        "вопрос (в конце вопросительный знак): гипотетический ответ находит похожие на него тексты",
    ),
    "asks": (
        "a question, as it opens with “{cue}”: a generated answer finds similar passages",
        "疑问句（疑问词“{cue}”）：适合用HyDE，以假设答案检索",
        "вопрос (вопросительное слово «{cue}»): гипотетический ответ находит похожие на него тексты",
    ),
    "short": (
        "a short query, its words: {cue}; several ways to say it find more",
        "短查询（约{cue}个词）：多种说法可以找到更多",
        "короткий запрос, слов: {cue}; несколько формулировок найдут больше",
    ),
    "neither": (
        "neither a comparison, nor a question, nor short: keyword and vector search together",
        "既非比较，也非疑问句，也不短：关键词与向量混合检索",
        "не сравнение, не вопрос и не короткий запрос: поиск по словам и векторам вместе",
    ),
    "wording": (
        "by its wording, {strategy} would be next",
        "仅按措辞，其次是{strategy}",
        "по одной формулировке следом идёт {strategy}",
    ),
    "passed_over": (
        "{names} cannot be used here, so {strategy} is recommended",
        "{names}在此不可用，因此改用{strategy}",
        "{names} здесь недоступно, поэтому {strategy}",
    ),
    "model": (
        "it needs a language model: {why}",
        "需要语言模型：请设置 llm_provider 或 llm_base_url",
        "нужна языковая модель: задайте llm_provider или llm_base_url",
    ),
    "no_vectors": ("there are no vectors to search", "没有可搜索的向量", "нет векторов для поиска"),
    "no_keywords": ("there is no keyword index to search", "没有可搜索的关键词索引", "нет индекса слов для поиска"),
    "no_both": (
        "no dataset keeps both indexes",
        "没有同时具有两种索引的数据集",
        "ни в одном наборе нет обоих индексов",
    ),
}
"""The words of each code, by language; the console is given the same."""

_LANGUAGES: Final = ("en", "zh", "ru")


def language_of(question: str) -> str:
    """Return the language in which the asker reads: that of the question if there are words for it, else English.

    >>> language_of("что едят пингвины?"), language_of("企鹅吃什么"), language_of("was fressen Pinguine")
    ('ru', 'zh', 'en')
    """
    language = "en" if question.isascii() else detect(question)
    return language if language in _LANGUAGES else "en"


class Statement(NamedTuple):
    """One statement.

    Attributes:
        code: what it says; `TEXT` if its words are its own.
        values: what it names, by the names in its words.
    """

    code: str
    values: Mapping[str, Any] = {}

    def in_words(self, language: str = "en") -> str:
        """Return the statement in a language; in its own words if its code is not known."""
        words = WORDS.get(self.code)
        if words is None:
            return str(self.values.get("text", self.code))
        return words[_LANGUAGES.index(language)].format_map(self.values)


class Reason(str):
    """A reason in words, and the statements that it is made of.

    >>> reason = Reason.join_all(Reason.of("weight", weight="0.80", span="2.1"), Reason.of("holders"))
    >>> reason.in_language("zh"), reason.statements[1].code
    ('向量权重 0.80：最佳余弦高出随机文档均值 2.1 σ；含有该词的排在前面', 'holders')
    """

    statements: tuple[Statement, ...]

    def __new__(cls, text: str, statements: Iterable[Statement] | None = None) -> Self:
        """Return a reason with these words.

        Args:
            text: the words.
            statements: what they say; None: one statement with these words, or those of a text that is a reason.
        """
        reason = super().__new__(cls, text)
        if statements is None:
            statements = (
                text.statements if isinstance(text, Reason) else (Statement(TEXT, {"text": text}),) if text else ()
            )
        reason.statements = tuple(statements)
        return reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.statements)

    @classmethod
    def of(cls, code: str, **values: Any) -> Self:
        """Return a reason of one statement, in English."""
        statement = Statement(code, values)
        return cls(statement.in_words(), (statement,))

    @classmethod
    def join_all(cls, *reasons: str) -> Self:
        """Return one reason that says all of these, in English; empty ones say nothing."""
        return cls._in_words(tuple(statement for reason in reasons for statement in Reason(reason).statements), "en")

    def in_language(self, language: str) -> Self:
        """Return the reason in ``"en"``, ``"zh"`` or ``"ru"``; in English if a statement has other words."""
        foreign_texts = [
            str(statement.values.get("text", "")) for statement in self.statements if statement.code not in WORDS
        ]
        return self._in_words(
            self.statements, "en" if any(language_of(text) != language for text in foreign_texts) else language
        )

    @classmethod
    def _in_words(cls, statements: tuple[Statement, ...], language: str) -> Self:
        mark = "；" if language == "zh" else "; "
        return cls(mark.join(statement.in_words(language) for statement in statements), statements)


def reason_of(form: Mapping[str, Any]) -> Reason:
    """Return the reason of an answer or a refusal as ``to_dict`` writes it.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the value is invalid.
    """
    statements = form.get("reasons")  # services of earlier versions give none
    if not isinstance(form["reason"], str):
        raise TypeError(f"reason is {form['reason']!r:.80}")
    return Reason(
        form["reason"],
        statements and [Statement(statement["code"], dict(statement["values"])) for statement in statements],
    )


def in_language(text: str, language: str) -> str:
    """Return a text in a language if it is a reason; as it is if not."""
    return text.in_language(language) if isinstance(text, Reason) else text
