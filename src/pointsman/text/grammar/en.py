"""English words of the grammar; see `pointsman.text.grammar.match` for the notation."""

from __future__ import annotations

ARTICLE = "the a an"

QUESTION = "what who whom whose which when where why how"
"""Words that open a question or make a text conversational."""

AUXILIARY = """is are was were do does did can could should would will has have had am may must isn aren wasn
    weren don doesn didn can couldn shouldn wouldn won hasn haven hadn"""
"""Verbs that open a question if one of `SUBJECT` follows."""

SUBJECT = """i you he she it we they there this that these those the a an my your our their his her its one
    any(,one,body,thing) some(,one,body,thing) people"""

LEAD = "and but so or well also then please"
"""Words that may precede the first word of a question."""

IMPERATIVE = "tell list name explain describe compare"
"""Verbs that open a request."""

PREPOSITION = "in on at to for from with by about of under"

REQUEST = "explain describe tell please"
"""Words that ask for an answer in full sentences."""

COMPARISON = """compar(e,ed,es,ing,ison,isons) contrast(,ing)_with differ(,s,ed,ing,ence,ences)
    different_(from,to,than) distinction(,s)_between distinguish(,es) versus vs pros(_and,)_cons
    (dis,)advantages(_and,)_(dis,)advantages strengths(_and,)_weaknesses (which,what)(_one,)_is_better
    better_than similarities_(and,between)"""

ASPECT = """pros cons (dis,)advantages benefits drawbacks strengths weaknesses upsides downsides risks costs
    merits demerits limitations features characteristics causes effects consequences symptoms treatment(,s) uses
    price(,s) definition properties functions origin(,s) purpose(,s) challenges opportunities similarities
    differences history structure"""
"""Aspects of a thing; two of them joined are two questions."""

FILLING = """main key major biggest important please me about can could you explain describe tell list give name
    show compare find there any know want overview two three both each these them ones things main between among
    of in on with s t re ll ve"""
"""Words without content in a comparison, in addition to the stop words."""

AND = r"\s*,\s*(?:and|or)\s+|\s+(?:and|or|&)\s+|\s*,\s+"
"""Pattern that joins the sides of a comparison."""

AGAINST = r"\s+(?:with|to|against|from|than)\s+"
"""Pattern that opposes one side to the other."""

SHARED = (
    r"\s+(?:in terms of|with respect to|with regard to|regarding|when it comes to|by(?=\s(?-i:[a-z]))|for)\s.{2,80}$"
)
"""Pattern of the text after the last side that applies to all sides."""

EXACT = "exact(,ly) keyword(,s) term(,s) verbatim"
"""Words that ask for an exact wording."""

MEANING = "what how why explain(,s,ed,ing) meaning(,s)"
"""Words that ask for a meaning or an explanation."""

FOR_WORDS = "keyword(,s) bm25 lexical full_text fulltext"
"""Words in descriptions of keyword search."""

FOR_MEANING = "semantic(,s,ally) vector(,s)"
"""Words in descriptions of semantic search."""

TIME = """today yesterday tomorrow now currently recent(,ly) latest newest lately nowadays tonight upcoming
    (this,last,next,past)_(week,month,year,quarter,decade,century,summer,winter,spring,autumn) up_to_date january
    february april june july august september october november december
    since_(monday,tuesday,wednesday,thursday,friday,saturday,sunday)
    (a,one,two,three)_(day,week,month,year)(,s)_ago"""
"""Expressions of time other than dates and years."""

NOW = """today now currently current recent(,ly) latest newest lately nowadays up_to_date in_force
    this_(week,month,year,quarter)"""
"""Expressions that ask for what holds now."""

AMOUNT = """how_(many,much,long,old,far,fast,often,tall,big,large,high) when
    (what,which)_(year,date,day,percent,percentage,number)"""
"""Expressions that ask for a number or a date."""

IMAGE = """image(,s) picture(,s) photo(,s) photograph(,s) illustration(,s) drawing(,s) screenshot(,s)
    wallpaper(,s) logo(,s) pic(,s) diagram(,s) schematic(,s) flowchart(,s) infographic(,s)"""
"""Words that ask for a picture."""

FILTER = "channel source author tag year date after before since until"
"""Filter keys that a query may contain: ``after:2024``."""

LOOKALIKE = "as_long_as"
"""Phrases that contain words of these lists but mean something else."""

IMAGE_LOOKALIKE = """(docker,container,disk,iso,vm,system,boot,mirror)_image(,s) (big,bigger,whole)_picture
    image_(processing,recognition,classification,segmentation,compression,registry)"""
"""Phrases that contain words of `IMAGE` but ask for no picture."""
