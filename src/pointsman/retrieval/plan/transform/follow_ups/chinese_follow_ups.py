"""Follow-up questions in Chinese: pronouns are replaced by what they stand for, and omissions filled in."""

from __future__ import annotations

import re

from pointsman.retrieval.plan.transform.follow_ups.conversation import QUOTED, Conversation, UnclearError
from pointsman.text.grammar import QUESTION
from pointsman.tools.late_regex import late

_ZH_PRONOUN = late(
    "(?P<person>他们|她们|(?<![其吉])他(?![人乡国妈日杀])|她)|(?P<thing>它们?)"
    "|(?P<its>(?<![尤极与及])其(?![中他实余次间它一二三]))"
    "|(?P<this>[这該该此](?=[个座部本家款位种条所项首只支名台片场幅届栋])"
    "|该(?=[校司国市片书剧企产项学机地城功方院系省县区岛族词奖赛]))"
)
_ZH_THEN = late("^(?:那么?|所以|还有|另外|请问|[，,、\\s])*")
_ZH_LEAD = late(
    "^(?:那么?|所以|还有|另外|然后|此外|而|但是?|和|请问一下|请问|请|麻烦|帮我|给我|你知道|我想知道|告诉我|你能|能不能|可以|能"
    "|关于|对于|有关|(?:介绍|讲|说|谈|解释|描述|查)一下|讲讲|讲一讲|说说|说一说|谈谈|查查|介绍|解释|描述|列出|什么是|何为|谁是"
    "|为什么|为何|怎么|如何|什么时候|何时|哪一?年|在哪里?|是|[，,、\\s])+"
)
_ZH_LONGEST_NAME = 5
_ZH_LONGER = 2
"""Characters by which what is replaced may be longer than what replaces it."""
_ZH_VERB = (
    "创办|创立|创作|发明|发现|执导|主演|出版|提出|设计|建立|建成|成立|获得|荣获|赢得|毕业|担任|出生|去世|逝世|发表|发布"
    "|推出|开发|属于|位于|拥有|流经|支持|包括|[写拍画唱演建住死赢输得买卖当做说打造教译](?=[了过着出到于什哪谁多几])"
)
_ZH_SUBJECT_END = late(
    "的|在(?!线)|是|由|有(?!限|效)|被|能(?![源量力])|可以|会(?![议员计话场馆长])|要(?![求点素])|使用|(?<![作信费公专试适通引录聘停应])用"
    f"|吗|呢|什么|多少|哪|谁|怎|如何|为何|何时|几|多[长高大远重深久]|{_ZH_VERB}"
    "|[，。？！?!、：:；（(]|(?<=[\u4e00-\u9fff])\\s|\\s(?=[\u4e00-\u9fff])"
)
_ZH_ELLIPSIS = late(
    "^(?P<lead>那么?|还有|如果是|要是|(?:如果)?换成)?(?P<rest>[^，。？！?!]{1,20}?)(?:呢|(?P<how>怎么样|如何))[？?。!！]*$"
)
_ZH_ATTRIBUTE = late(
    "(?:人口|价格|历史|海拔|票价|门票|费用|押金|作者|首都|特点|优点|缺点|原理|用途|地址|条件|期限|流程|[\u4e00-\u9fff][长度积量率])"
)
_ZH_OMITTED = late(
    f"^(?:{_ZH_ATTRIBUTE.pattern})?(?:是|有|在|能|会|要|用|叫|由|属于|支持|需要)*"
    "(?:为什么|为何|怎么|如何|什么时候|何时|什么|哪[里儿些个年天种位]?|哪一年|谁|多少|多[长高大远重深久]|几[个种次年岁月])+"
    "[\u4e00-\u9fff]{0,3}?(?:的|了|呢|啊)?[？?。]*$"
)
_ZH_NO_SUBJECT = late(
    "^(?:可以|能不能|能否|能|需要|要不要|要|会不会|会|有没有|没|不|最多|最少|最快|最晚|几点|多久)[\u4e00-\u9fff]{1,5}[吗呢]?[？?。]*$"
)
_ZH_THERE_IS = late("(?P<where>[\u4e00-\u9fff]{2,8})有(?P<what>(?![什多几哪])[\u4e00-\u9fff]{1,6})吗[？?]*$")
_ZH_SEVERAL = late("^[^的]{1,8}[和与跟及]")
_ZH_PLAIN = late(
    "(?:[^，。？]{0,3}的[\u4e00-\u9fff]{1,6}?)?(?:是|有|在|要|需要|能|可以|应该|由|被)?"
    "(?:多少|几|什么时候|什么|哪|怎么|怎样|如何|多|谁)[\u4e00-\u9fff]{0,3}[吗呢的]?[？?。]*|(?:是|要|收|有)?[\u4e00-\u9fff]{0,3}吗[？?]*"
)
_ZH_ASKS_ABOUT = late("(?:谁|怎么|怎样|如何|为什么|为何|什么时候)[\u4e00-\u9fff]{1,4}")
_ZH_BOOK = late("《[^《》\n]{1,60}》")
_ZH_ROLE = late(
    "(?:《[^《》]{1,60}》|[^，。？！的]{1,30})的(?:作者|导演|编剧|主演|作曲者?|创始人|创办人|发明者|发明人|设计者|父亲|母亲|妻子"
    "|丈夫|儿子|女儿|总统|总理|国王|皇帝|校长|董事长|总裁|队长|教练|主席|市长)"
)
_ZH_MAKERS = {
    "写": "作者",
    "著": "作者",
    "导": "导演",
    "拍": "导演",
    "发明": "发明者",
    "创": "创始人",
    "设计": "设计者",
}
_ZH_WHO = late("谁|作者|导演|哪位|什么人|创始人|发明|[总主]席|总统")
_ZH_DOES = "写|著|教|负责|创作|执导|导演|发明|发现|创立|创办|提出|设计|主演|担任|所"
_ZH_PERSON = late(
    f"(?:是|由|叫|为)(?P<name>[\u4e00-\u9fff·]{{2,12}}?)(?=[。，,；;]|$|{_ZH_DOES})"
    f"|^(?P<first>(?:(?![是由叫为])[\u4e00-\u9fff·]){{2,12}}?)(?=[。！]?$|{_ZH_DOES})"
)
_LATIN_TERM = late(r"[A-Za-z][\w.+#-]*(?:\s+[A-Z0-9][\w.+#-]*)*", re.ASCII)


def complete_chinese(text: str, history: Conversation) -> str | None:
    """Return the question with what it leaves unsaid filled in; None if nothing is filled in."""
    pronoun = _ZH_PRONOUN.search(text)
    if pronoun is not None:
        return _chinese_pronoun(text, pronoun, history)
    ellipsis = _ZH_ELLIPSIS.match(text)
    if (
        ellipsis
        and history.question
        and (ellipsis["lead"] or not ellipsis["how"])
        and not QUESTION.all(ellipsis["rest"])
    ):
        return _chinese_ellipsis(ellipsis["rest"], history.question)
    bare = text[_ZH_THEN.match(text).end() :]  # type: ignore[union-attr]  # it matches the empty string
    if (_ZH_OMITTED.match(bare) or _ZH_NO_SUBJECT.match(bare)) and (entity := _chinese_entity(history, person=False)):
        return f"{entity}的{bare}" if _ZH_ATTRIBUTE.match(bare) else entity + bare
    return None


def _chinese_pronoun(text: str, pronoun: re.Match[str], history: Conversation) -> str | None:
    prefix = text[: pronoun.start()]
    if len(re.findall(r"\w", _ZH_LEAD.sub("", prefix))) >= 2 and not _ZH_ASKS_ABOUT.fullmatch(prefix):
        return None  # it has its own antecedent
    entity = _chinese_entity(history, person=bool(pronoun["person"]))
    suffix_text = text[pronoun.end() :]
    if entity is None or "了" in entity:
        return None
    if re.match("呢[？?]*$", suffix_text):
        return f"{entity}{history.question}" if history.question else None
    start = min(_ZH_THEN.match(text).end(), pronoun.start())  # type: ignore[union-attr]  # as above
    suffix = pronoun[0] if pronoun["this"] else "的" if pronoun["its"] else ""  # 故宫这座宫殿
    return text[start : pronoun.start()] + entity + suffix + suffix_text


def _chinese_entity(history: Conversation, *, person: bool) -> str | None:
    """The last topic: a person from the answer if one was asked for, otherwise the topic of the question."""
    if person and _ZH_WHO.search(history.question) and (match := _ZH_PERSON.search(history.answer)):
        name = str(match["name"] or match["first"])
        if len(name) > _ZH_LONGEST_NAME and "·" not in name:
            raise UnclearError
        return name
    if history.names_several or _ZH_SEVERAL.search(_ZH_BOOK.sub("", history.question)):
        raise UnclearError
    for question in (history.question, *history.earlier):
        subject = _chinese_subject(question, person=person)
        if subject and not _ZH_PRONOUN.match(subject):
            return subject
    return None


def _chinese_subject(text: str, *, person: bool) -> str | None:
    """The topic of a question: a title, a term in Latin letters, or its words up to the first verb or particle.

    For a pronoun that refers to a person, it is the author of a work: 《战争与和平》的作者.
    """
    bare = _ZH_LEAD.sub("", text.strip())
    if _ZH_THERE_IS.match(bare):
        raise UnclearError  # «健身房有淋浴吗？»: either
    if person and (role := _ZH_ROLE.search(bare)):
        return role[0]
    if book := _ZH_BOOK.search(text):
        maker = next((maker for verb, maker in _ZH_MAKERS.items() if verb in text.replace(book[0], "")), None)
        return f"{book[0]}的{maker}" if person and maker and "谁" in text else book[0]
    if quote := QUOTED.search(text):
        return str(next(filter(None, quote.groups())))
    end = _ZH_SUBJECT_END.search(bare)
    subject = (bare[: end.start()] if end else bare).strip()
    if len(subject) >= 2:
        return subject if len(subject) <= 16 else None
    latin = _LATIN_TERM.search(text)
    return latin[0] if latin else None


_ZH_WHEN = late(
    "(?:今|明|后|昨)天|周末|节假日|假期|晚上|早上|(?:周|星期)[一二三四五六日天]|[今明去]年|[上下]个?[周月]|\\d{1,4}年"
    "|十?[一二三四五六七八九十]月|[春夏秋冬]天|[淡旺]季"
)
_ZH_WHEN_LAST = late(f"(?<=.)(?:{_ZH_WHEN.pattern})$")
_ZH_HOW = late("怎么|怎样|如何")
_ZH_CONTACT = late("电话号码|手机号|电话|手机|邮箱|邮件|地址|网址|传真|微信|账号")


def _chinese_attribute(topic: str, question: str, subject: str) -> str | None:
    """The question about another attribute, another means of contact, or another time of the same subject."""
    if _ZH_WHEN.fullmatch(topic):
        time = _ZH_WHEN.search(question)
        return question[: time.start()] + topic + question[time.end() :] if time else topic + question
    if _ZH_ATTRIBUTE.fullmatch(topic):
        return f"{subject}的{topic}"
    owner = f"{subject}的"
    contact = _ZH_CONTACT.match(question, len(owner)) if question.startswith(owner) else None
    return owner + topic + question[contact.end() :] if contact and _ZH_CONTACT.fullmatch(topic) else None


_ZH_ASKING = late("[怎什么多少几哪谁是吗]")
_ZH_DIRECTION = late("[到去给跟](?=[\u4e00-\u9fff])")
_ZH_OWNER = late("(?:^|在|的|是)(?P<owner>[^在的是，。？]{1,6})的(?=[^，。？]{1,6}(?:在|是|有|多|怎|什|几|哪))")


def _chinese_part(topic: str, question: str) -> str | None:
    """The question with another direction («到杭州»), owner («广州的») or kind («支付密码») in place of its own."""
    direction = _ZH_DIRECTION.match(topic)
    if direction and (old := re.search(f"{direction[0]}[^的要需怎多有能吗呢么是什几，。？]{{1,8}}", question)):
        # «给手机充电», «给电脑»: a verb follows the object
        end = old.end() if len(old[0]) <= len(topic) + 1 else old.start() + len(topic)
        return question[: old.start()] + topic + question[end:]
    if topic.endswith("的") and len(topic) > 1 and (owner := _ZH_OWNER.search(question)):
        return question[: owner.start("owner")] + topic + question[owner.end("owner") + 1 :]
    for size in range(len(topic) - 1, 1, -1):
        position = question.find(topic[-size:])
        if position == 0:
            return topic + question[size:]  # «会员价格», «非会员»
        if position >= len(topic) - size and not _ZH_ASKING.search(
            question[position - len(topic) + size : position]
        ):  # «登录密码», «支付密码»: another word before the same noun
            return question[: position - len(topic) + size] + topic + question[position + size :]
    if len(topic) == 2 and question[1:2] == topic[1] and re.fullmatch("[\u4e00-\u9fff]{2}", topic):
        return topic + question[2:]  # «退货», «换货»
    return None


def _chinese_ellipsis(topic: str, question: str) -> str | None:
    """The question with ``topic`` in place of the only part that is like it."""
    if there_is := _ZH_THERE_IS.match(question):
        return f"{there_is['where']}有{topic}吗？" if there_is["where"][-1] != topic[-1] else None
    if completion := _with_other_term(topic, question):
        return completion
    subject = _ZH_BOOK.search(question)
    old_subject = subject[0] if subject else _chinese_subject(question, person=False)
    completion = _chinese_part(topic, question) or (old_subject and _chinese_attribute(topic, question, old_subject))
    if completion or not old_subject or (_ZH_CONTACT.fullmatch(topic) and _ZH_HOW.match(question)):
        return completion or None  # «怎么联系客服？那邮箱呢»: a question of its own
    prefix, _, suffix = question.partition(old_subject)
    if old_subject[-1] != topic[-1] and (
        len(old_subject) > len(topic) + _ZH_LONGER or old_subject[-1] in "了着过" or not _ZH_PLAIN.fullmatch(suffix)
    ):
        return None
    time = _ZH_WHEN_LAST.search(old_subject)
    return f"{prefix}{topic}{time[0] if time else ''}{suffix}"  # «北京明天的天气», «上海»


def _with_other_term(topic: str, question: str) -> str | None:
    """The question with another version, or another term in Latin letters."""
    new, old = _LATIN_TERM.findall(topic), list(_LATIN_TERM.finditer(question))
    if re.match(r"\d", topic) and (version := re.search(r"\d[\d.]*", question)):
        return f"{question[: version.start()]}{topic}{question[version.end() :]}"
    if not new or not old:
        return None
    # «Excel文件»: the term before the same word, otherwise the last one
    tail = topic[topic.rindex(new[-1]) + len(new[-1]) :]
    same_tail = next((term for term in reversed(old) if tail and question[term.end() :].startswith(tail)), old[-1])
    best = next((term for term in old if term[0].split()[0] == new[0].split()[0]), same_tail)
    end = best.end() + (len(tail) if question[best.end() :].startswith(tail) else 0)
    prefix = question[: best.start()].removesuffix(topic[: topic.index(new[0])] or "\0")  # «在Ubuntu», «在macOS»
    return prefix + topic + question[end:]
