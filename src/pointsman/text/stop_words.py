"""Words too common to distinguish documents, in folded form (lower case, ё as е, no apostrophes)."""

from __future__ import annotations

_ENGLISH = """
    a an the this that these those
    i me my mine myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves one
    who whom whose which what where when why how
    am is are was were be been being do does did doing done have has had having will would shall should can could
    may might must
    and or but nor if then else than because as while until although though unless whether
    of at by for with about against between into through during before after above below to from up down in out on
    off over under upon within without
    again further once here there all any both each few more most other some such no not only own same so too very
    just also
    """
ENGLISH = frozenset(_ENGLISH.split())

_RUSSIAN = """
    и а но да или либо ни не же ли бы б ж ведь вот вон если то чтобы что как так когда хотя пока потому поэтому
    зато также тоже чем нежели раз
    в во на с со к ко о об обо от ото до по за из изо у при про для без безо под подо над надо через перед между
    среди около после кроме ради
    я меня мне мной мною ты тебя тебе тобой тобою он его него ему нему им ним нем она ее нее ей ней ею нею оно
    мы нас нам нами вы вас вам вами они их них ими ними себя себе собой собою
    мой моя мое мои моего моей моему моим моих твой твоя твое твои наш наша наше наши нашего нашей ваш ваша ваше ваши
    свой своя свое свои своего своей своему своим своих
    этот эта это эти этого этой этому этим этих этом эту тот та те того той тому тем тех том ту такой такая такое
    такие таких
    кто кого кому кем ком чего чему какой какая какое какие какого каких который которая которое которые которого
    которой которых которым котором где куда откуда почему зачем сколько ли
    весь вся все всего всей всем всех всю сам сама само сами самый
    быть был была было были есть будет будут буду бы
    уже еще только лишь даже очень более больше менее там тут здесь теперь тогда потом опять вдруг можно нельзя
    """
RUSSIAN = frozenset(_RUSSIAN.split())

_CHINESE = """
    什么时候 为什么 什么 甚么 何时 何地 何处 为何 如何 怎么样 怎么 怎样 哪里 哪儿 哪个 哪些 哪种 哪位 哪年 哪天
    哪家 哪一 谁 多少 吗 呢 请问 是否
    """
CHINESE = tuple(_CHINESE.split())
"""Words that only ask, the longer ones before those that they begin with. Chinese has no spaces, so a character alone
tells little of a word: the most frequent ones (的, 是, 在) are also parts of others, and stay."""
