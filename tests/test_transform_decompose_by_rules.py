"""Taking questions apart by rules: what is, what is not, chains and bridges."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman import recommend
from pointsman.retrieval.plan.transform import Hop, RuleDecomposer, bridge_entities, chain, subquestions
from pointsman.text import fold
from pointsman.tools.errors import InputError
from pointsman.values.types import Query

COMPARISONS = [
    ("Compare Kafka and RabbitMQ", ["Kafka", "RabbitMQ"]),
    (
        "compare Kafka with RabbitMQ in terms of throughput",
        ["Kafka in terms of throughput", "RabbitMQ in terms of throughput"],
    ),
    ("What is the difference between local and global variables?", ["local variables", "global variables"]),
    ("TCP vs UDP", ["TCP", "UDP"]),
    ("Java 8 vs 11", ["Java 8", "Java 11"]),
    ("How does BM25 differ from TF-IDF?", ["BM25", "TF-IDF"]),
    (
        "Who is older, Annie Morton or Terry Richardson?",
        ["Who is older Annie Morton?", "Who is older Terry Richardson?"],
    ),
    ("Which is older, the Eiffel Tower or Big Ben?", ["Which is older the Eiffel Tower?", "Which is older Big Ben?"]),
    (
        "Are Sutera and Rhodotypos both types of shrub?",
        ["Are Sutera types of shrub?", "Are Rhodotypos types of shrub?"],
    ),
    ("Are both Rome and Paris capitals?", ["Are Rome capitals?", "Are Paris capitals?"]),
    ("A和B有什么区别", ["A", "B"]),
    ("比较Java与Python的性能", ["Java的性能", "Python的性能"]),
    ("Go跟Rust哪个更快？", ["Go更快", "Rust更快"]),
    ("垃圾站和垃圾堆放场有什么不同？", ["垃圾站", "垃圾堆放场"]),
    ("法学与政治学专业与外交学专业有哪些区别？", ["法学与政治学专业", "外交学专业"]),
    ("сравни Java и Kotlin", ["Java", "Kotlin"]),
    ("Сравни производительность PostgreSQL и MySQL", ["производительность PostgreSQL", "производительность MySQL"]),
    ("Сравните климат Москвы и Сочи", ["климат Москвы", "климат Сочи"]),
    ("Compare Python and Java syntax", ["Python syntax", "Java syntax"]),
    ("What are the pros and cons of React versus Vue?", ["pros and cons of React", "pros and cons of Vue"]),
    ("Чем отличается ArrayList от LinkedList?", ["ArrayList", "LinkedList"]),
    ("Чем интеграционное тестирование отличается от модульного?", ["интеграционное тестирование", "модульного"]),
    ("В чём разница между http и https?", ["http", "https"]),
    ("что старше, Рим или Афины?", ["что старше Рим?", "что старше Афины?"]),
]
CONJUNCTIONS = [
    ("What is BM25 and how does it work?", ["What is BM25?", "What is BM25? how does it work?"]),
    ("Who wrote Emma? When was it published?", ["Who wrote Emma?", "Who wrote Emma? When was it published?"]),
    ("1) What is RRF? 2) What is BM25?", ["What is RRF?", "What is BM25?"]),
    (
        "Which band released Counterparts and had a drummer who was famous?",
        ["Which band released Counterparts?", "Which band had a drummer who was famous?"],
    ),
    ("Что такое индекс, а также как его создать?", ["Что такое индекс?", "Что такое индекс? как его создать?"]),
    (
        "Объясните, что такое индекс и как он строится",
        ["Объясните, что такое индекс?", "Объясните, что такое индекс? как он строится?"],
    ),
    ("Что такое XSD? В чём его преимущества?", ["Что такое XSD?", "Что такое XSD? В чём его преимущества?"]),
    ("什么是向量检索，它和关键词检索有什么区别？", ["什么是向量检索？", "什么是向量检索？ 它和关键词检索有什么区别？"]),
    ("谁发明了电话以及什么时候发明的？", ["谁发明了电话？", "什么时候发明的？"]),
    ("北京和上海的人口分别是多少", ["北京的人口是多少？", "上海的人口是多少？"]),
    ("请问苹果与华为的创始人各是谁？", ["苹果的创始人是谁？", "华为的创始人是谁？"]),
    ("铁、铜以及铝的熔点分别为多少？", ["铁的熔点为多少？", "铜的熔点为多少？", "铝的熔点为多少？"]),
]
CHAINS = [
    ("Who directed the film that won the Palme d'Or?", "film that won the Palme d'Or", "the film"),
    ("When did the author of Brand die?", "author of Brand", "the author"),
    ("Who kidnapped Temüjin's first wife in 1180?", "Temüjin's first wife", "the first wife"),
    ("Where was the wife of Peter the Great born?", "wife of Peter the Great", "the wife"),
    ("Где родился автор романа «Война и мир»?", "автор романа «Война и мир»", "автор"),
    ("В какой стране вышел фильм, который получил «Оскар»?", "фильм, который получил «Оскар»", "фильм"),
    ("《红楼梦》的作者的出生地在哪里？", "《红楼梦》的作者", "作者"),
    ("获得奥斯卡奖的电影的导演是谁？", "获得奥斯卡奖的电影", "电影"),
]
SEEDS = [
    ("比较X和Y的差异", ["X", "Y"]),
    ("A的特点和B的优缺点", ["A的特点", "B的优缺点"]),
    ("比较北京、上海和广州的房价", ["北京的房价", "上海的房价", "广州的房价"]),
    ("Kafka или RabbitMQ: что лучше", ["что лучше Kafka?", "что лучше RabbitMQ?"]),
    ("太阳能的优缺点", ["太阳能的优点", "太阳能的缺点"]),
    ("pros and cons of nuclear power", ["pros of nuclear power", "cons of nuclear power"]),
    ("difference in price between iPhone 15 and iPhone 14", ["iPhone 15 price", "iPhone 14 price"]),
    ("Python 3.11 vs 3.12 performance", ["Python 3.11 performance", "Python 3.12 performance"]),
    ("утилиты сравнения файлов", []),
    ("There is no difference between mice and rats.", []),
]
SIMPLE = [
    *("salt and pepper", "Romeo and Juliet", "research and development", "Who wrote Pride and Prejudice?"),
    *("the price of tea in China", "where and when was Bach born", "How do I sign in and out?", "Tell me how it works"),
    *("What is the capital of France?", "There is no difference between mice and rats in X.", "Compare the two"),
    *(
        "What is the history of the city of Rome?",
        "Who was the leader of the Islamist regime in Sudan?",
        "rock and roll",
    ),
    *("Москва и область", "Что такое и зачем нужен Docker?", "Кто написал «Преступление и наказание»?", "хлеб и соль"),
    *(
        "Что делать, если компьютер не включается?",
        "Какова роль Consumer API?",
    ),
    *(
        "红与黑",
        "北京以及上海的人口是多少",
        "战争与和平的作者是谁？",
        "颐和园和故宫的面积分别是多少",
        "和平饭店的地址分别是什么",
        "中国的四大发明分别是什么？",
        "男女的平均身高分别是多少",
        "分别是什么意思",
        "硕塞跟随谁进攻陕州？",
        "道同属于哪个民族？",
        "在北京，什么是最好的？",
    ),
    *("", " ", "?", "and", "и", "和", "1) 2)"),
]


@pytest.mark.parametrize(("question", "expected"), [*COMPARISONS, *CONJUNCTIONS, *SEEDS])
def test_taken_apart(question: str, expected: list[str]) -> None:
    assert list(subquestions(question)) == expected


COMPARING = [
    *(
        "compare",
        "difference",
        "between",
        "and",
        "or",
        "vs",
        "from",
        "with",
        ",",
        "the",
        "of",
        "than",
        "better",
        "what",
    ),
    *("is", "which", "pros", "cons", "differ", "сравни", "и", "разница", "между", "отличается", "от", "или", "лучше"),
    *("что", "плюсы", "минусы", "чем", "比较", "区别", "的", "和", "、", "优缺点", "哪个更", "有什么", "相比"),
]
SIDES = ["Kafka", "RabbitMQ", "iPhone 15", "C++", "Redis", "PostgreSQL"]
FORMS = [
    *("compare {} and {}", "Compare {}, {} and {}", "What is the difference between {} and {}?", "{} vs {}"),
    *(
        "{} versus {} for beginners",
        "how does {} differ from {}",
        "which is better, {} or {}?",
        "{} or {}: what is better",
    ),
    *("advantages and disadvantages of {}", "pros and cons of {}", "comparison of {} and {}", "is {} better than {}"),
    *("сравни {} и {}", "Сравните {}, {} и {}", "в чём разница между {} и {}", "чем отличается {} от {}?"),
    *(
        "отличия {} от {}",
        "{} или {}: что лучше",
        "что лучше, {} или {}?",
        "плюсы и минусы {}",
        "чем {} отличается от {}",
    ),
    *(
        "比较{}和{}",
        "比较{}、{}和{}的性能",
        "{}和{}有什么区别？",
        "{}与{}的差异",
        "{}的优缺点",
        "{}和{}哪个更好",
        "对比{}和{}",
    ),
]


@given(st.sampled_from(FORMS), st.permutations(SIDES), st.sampled_from(["", "请问", "please ", "пожалуйста, "]))
def test_what_is_recommended_for_decomposition_is_taken_apart(form: str, sides: list[str], lead: str) -> None:
    """I3, I5: one grammar, one answer; every side that is named is looked up by a part of its own."""
    query = lead + form.format(*sides)
    assert recommend(query).strategy == "decomposition"
    questions = [variant.text for variant in RuleDecomposer().transform(query).variants]
    count = form.count("{}")
    assert len(questions) == max(2, count)
    if count > 1:
        assert all(side in question for side, question in zip(sides, questions, strict=False))


@given(st.lists(st.sampled_from([*SIDES, *COMPARING]), max_size=8).map(" ".join) | st.text(max_size=80))
def test_recommend_and_decompose_agree_on_any_text(query: str) -> None:
    if recommend(query).strategy == "decomposition":
        assert RuleDecomposer().transform(query).variants


@pytest.mark.parametrize("question", SIMPLE)
def test_left_alone(question: str) -> None:
    query = Query(question)
    transformation = RuleDecomposer().transform(query)
    assert transformation.query is query
    assert transformation.variants == ()
    assert chain(question) == ()


@pytest.mark.parametrize(("question", "first", "slot"), CHAINS)
def test_chains(question: str, first: str, slot: str) -> None:
    hops = chain(question)
    assert hops[0] == Hop(first)
    last = hops[-1]
    assert last.slot is not None
    assert last.text[slice(*last.slot)] == slot
    assert last.filled("⟨X⟩") == last.text.replace(slot, "⟨X⟩", 1)
    assert [variant.text for variant in RuleDecomposer().transform(question).variants] == [hop.text for hop in hops]


def test_a_chain_of_three() -> None:
    english = chain("What is the nationality of the director of the film that won the Palme d'Or?")
    assert english == (
        Hop("film that won the Palme d'Or"),
        Hop("director of the film", (12, 20)),
        Hop("What is the nationality of the director?", (27, 39)),
    )
    russian = chain("В каком году родился режиссёр фильма, который получил «Оскар»?")
    assert [hop.text for hop in russian] == [
        "фильма, который получил «Оскар»",
        "режиссёр фильма",
        "В каком году родился режиссёр?",
    ]
    assert russian[1].filled("«Рокки»") == "режиссёр «Рокки»"
    chinese = chain("《红楼梦》的作者的父亲的出生地在哪里？")
    assert [hop.text for hop in chinese] == ["《红楼梦》的作者", "作者的父亲", "父亲的出生地在哪里？"]


def test_sub_questions_are_bounded_and_weighted() -> None:
    question = " ".join(f"{n}) What is term{n}?" for n in range(1, 9))
    transformation = RuleDecomposer(max_subqueries=3, weight=0.5).transform(question)
    assert [(variant.kind, variant.weight) for variant in transformation.variants] == [("subquestion", 0.5)] * 3
    assert "8 sub-questions" in transformation.detail
    with pytest.raises(InputError, match="max_subqueries"):
        RuleDecomposer(0)


def test_bridge_entities_of_english_passages() -> None:
    passages = [
        "Pulp Fiction\nPulp Fiction is a 1994 film by Quentin Tarantino. It won the Palme d'Or in Cannes.",
        "Cannes Film Festival\nThe festival is held every year.",
    ]
    entities = bridge_entities("film that won the Palme d'Or", passages)
    assert entities[0] == "Pulp Fiction"
    assert "Quentin Tarantino" in entities
    assert not any("palme" in fold(name) for name in entities)


@pytest.mark.parametrize(
    ("query", "passage", "name"),
    [
        ("《红楼梦》的作者", "《红楼梦》\n《红楼梦》是清代作家曹雪芹创作的长篇小说。", "曹雪芹"),
        ("获奖的电影", "它获奖了，片名《霸王别姬》，由陈凯歌执导。", "霸王别姬"),
        ("автор романа «Война и мир»", "Роман «Война и мир» написал Лев Толстой в 1869 году.", "Лев Толстой"),
        ("столица Франции", "Париж\nПариж — столица Франции.", "Париж"),
    ],
)
def test_bridge_entities_of_other_languages(query: str, passage: str, name: str) -> None:
    assert name in bridge_entities(query, [passage])


def test_bridge_entities_of_nothing() -> None:
    assert bridge_entities("x", []) == []
    assert bridge_entities("Paris", ["Paris\nParis is Paris."]) == []
    assert bridge_entities("x", ["Rome\nRome is old."], limit=0) == []


@given(st.text(max_size=200))
def test_any_text_at_all(text: str) -> None:
    questions = subquestions(text)
    transformation = RuleDecomposer().transform(text)
    assert transformation.query.text == text
    assert len(transformation.variants) <= 5
    assert len(questions) != 1 or questions[0]
    for hop in chain(text):
        assert hop.slot is None or 0 <= hop.slot[0] < hop.slot[1] <= len(hop.text)
    bridge_entities(text, [text, text[::-1]])


WORDS = [
    "what",
    "is",
    "the",
    "difference",
    "between",
    "and",
    "A",
    "Rome",
    "who",
    "of",
    "director",
    "film",
    "that",
    "или",
    "и",
    "кто",
    "чем",
    "отличается",
    "от",
    "Пушкин",
    "который",
    "和",
    "的",
    "作者",
    "什么",
    "是",
    "，",
    "?",
    ",",
    "1)",
    "2)",
    "«",
    "»",
]


@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_any_words_of_the_rules(words: list[str]) -> None:
    for text in (" ".join(words), "".join(words)):
        for subquestion in subquestions(text):
            assert subquestion.strip()
        chain(text)


@pytest.mark.parametrize(
    "unit", ["What is A and B, ", "который, ", "的作者和", "the film that ", "1) a ", "A" * 10, "? ", "«", "Ab of "]
)
def test_time_is_bounded(unit: str) -> None:
    """The longest text that is looked at takes milliseconds, and a megabyte is not looked at."""
    start = process_time()  # not hurt by other programs
    longest = (unit * 1000)[:1000]
    subquestions(longest)
    chain(longest)
    huge = unit * (1_000_000 // len(unit))
    assert subquestions(huge) == ()
    assert chain(huge) == ()
    bridge_entities(longest, [huge] * 3)
    assert process_time() - start < 5  # quadratic or worse would take minutes
