"""Chinese words of the grammar, in simplified characters; see `pointsman.text.grammar.match` for the notation."""

from __future__ import annotations

QUESTION = """什么 甚么 为什么 为啥 有啥 怎 怎么 怎样 怎么样 如何 为何 何时 何地 何处 何种 何谓 谁 哪
    哪(里,儿,个,些,种,位,年) 多少 多(久,长,大,远,高,重,深) 请问 几(个,种,次,年,时,点,天,位,岁,月,号,人,部,座)
    是否 能否 可否 能不能 可不可以 是不是 有没有 会不会 (好,行,是,对,能,有)么 吗 呢"""
"""Question words, in any position: in Chinese they stand where the answer would be."""

REQUEST = """解释~ 请说明 说明一下 告诉我 介绍一下 描述一下 讲一下 讲讲 谈谈"""
"""Words that ask for an answer in full sentences."""

FUNCTION = "的 了 和 与 及 或 是 在 从 把 被 让 给"
"""Function words that join words into a phrase."""

COMPARISON = """^比较~ 比较$ 比较一下
    (请,请问,帮我,帮忙,想,来,要,能,可以,如何,怎么,怎样,进行,并,做,简单,详细,我们,的)比较~
    比较(大学,大数据,大模型,大众,小米,小说,小学,高中,高铁,高血压,新冠,新加坡,新西兰,新能源,老虎,快手) 对比~ 差异~
    差别~ 区别~ 优缺点 优劣 优点和缺点 优势和劣势 利弊 利与弊 好处和坏处 异同 不同点 不同之处 相同点
    有(何,什么,啥)(,样的)不同(,之处,点) 相(比,较)(,于)
    (哪个,哪种,哪款,哪家,哪台,哪部,哪门,哪者,哪一个,谁)(更,比较,最)"""

ASPECT = """特点 特征 特性 优点 缺点 优缺点 优势 劣势 好处 坏处 弊端 风险 原理 作用 用途 定义 历史 价格 性能 功能
    结构 影响 原因 症状 治疗方法 应用 利 弊"""
"""Aspects of a thing; two of them joined are two questions."""

AND = (
    "(?:、|，|,|以及|和(?![平谐服睦])|与|跟(?![随踪从着])|(?<!不)同(?![属时样学意志盟类名年一胞行事期])|及(?![其时格第])"
    "|还是|或者?)"
)
"""Pattern that joins the sides of a comparison."""

BEFORE = (
    "(?:帮我|帮忙|一下|分别|你能|能不能|可以|如何|怎么|怎样|什么是|关于|我想知道|想|和|与|在|两者|二者|[\\s，,：:、])+"
)
AFTER = (
    "(?:之间|两者|二者|相比|主要|本质|具体|究竟|到底|有什么|有何|有哪些|有啥|是什么|在哪里?|在于什么|在于|哪些|什么|方面|上面|"
    "都有|存在|的|有|是|呢|吗|吧|啊|[\\s，,：:、。])+"
)
"""Pattern of words without content before and after what is compared."""

EXACT = "精确~ 准确~ 确切 关键词 关键字 术语"
"""Words that ask for an exact wording."""

MEANING = "什么 怎么 怎样 如何 为何 解释~ 含义 意义 意思"
"""Words that ask for a meaning or an explanation."""

FOR_WORDS = "关键词 关键字 全文 词法"
"""Words in descriptions of keyword search."""

FOR_MEANING = "语义 向量"
"""Words in descriptions of semantic search."""

TIME = """今天 昨天 明天 前天 后天 今年 去年 明年 前年 现在 目前 如今 当前 近期 近来 最近 最新 刚刚 刚才
    (这,本,上,下,上个,下个)(周,月,季度,星期,礼拜) (近,过去,最近)(几,两,三)(天,周,年,个月) 今日 昨日 本年度"""
"""Expressions of time other than dates and years."""

NOW = """今天 今年 现在 目前 如今 当前 近期 近来 最近 最新 今日 本年度 现行 (这,本)(周,月,季度)"""
"""Expressions that ask for what holds now."""

AMOUNT = "多少 几(个,年,月,日,岁,次,人,座,种,名,位,天) 何(时,年) 什么时候 哪(,一)(年,天,月) 多(长,久,大,高,远)"
"""Expressions that ask for a number or a date."""

IMAGE = "图 示意图 照片 相片 写真 海报 壁纸 头像 表情包"
"""Words that ask for a picture."""

FILTER = "频道 来源 作者 标签 年份 日期 之后 以后 之前 以前"
"""Filter keys that a query may contain: ``之后:2024``."""

LOOKALIKE = """吗(啡,丁啉) 呢(绒,喃) 哪(吒,咤,怕) 因为 比如 例如 譬如 假如 (无论,不论)(如何,谁,哪,怎样,怎么)
    不管(谁,怎样) 多少有些 多(大期,度,高度) (近,这,前,好,十,过去,最近,未来)几(年,天,个月,周) 怎奈 (司法,立法)解释
    好意思 小意思 意义(重大,深远,非凡,上) (有,没有,无,毫无,具有,重大)意义 (技,艺,学,美,战,武,手,魔)术 关键字段
    比较(好,大,小,多,少,高,低,快,慢,强,弱,贵,难,新,老,便宜,容易,简单,适合,常见,重要,复杂,有名,明显,文学,优势)
    对比(色,剂)"""
"""Words that contain words of these lists but mean something else."""

FUNCTION_LOOKALIKE = """目的 标的 的士 的确 了解 了结 和(平,谐,解,服,睦,声,弦,牌) (共,温,柔,缓,饱,总,调)和 与会
    参与 给予 及(时,格) 普及 涉及 以及 或(者,许) 是非 但是 于是 在(线,职) 存在 现在 (内,外,潜)在 从(业,事)
    把(握,手) 被(子,告,动) 转让 (付,供)给"""
"""Words that contain a function word."""

IMAGE_LOOKALIKE = (
    """图(书,灵,谋,论,腾,谱,形,数据库,神经,算法) 图像(处理,识别,分类,分割,压缩) (意,企,试,力,妄,蓝,版)图"""
)
"""Words that contain words of `IMAGE` but ask for no picture."""
