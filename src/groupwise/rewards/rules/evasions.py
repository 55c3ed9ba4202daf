"""Signs that a reply does not answer: it puts the question off, talks down, repeats it, or has the wrong shape.

A question for a figure is answered with a figure, a why with a reason, a how with something to do. What is read here
only ever lowers a score, so that no policy gains by saying these words.
"""

import re
from functools import lru_cache

from groupwise.rewards.rules.components import SENTENCE, words_of
from groupwise.rewards.rules.contradictions import ASKED, stance
from groupwise.rewards.rules.english import FUNCTION_WORDS
from groupwise.rewards.rules.plain_text import figures
from groupwise.stems import stem

# Words that put an answer off: to others, to later, or into the indefinite.
EVASIONS = re.compile(
    r"\b(?:it|that|this|they|which|prices?|pricing|costs?|results?|answers?)\s+(?:\w+\s+)?depends?\b"
    r"|\bdepend(?:s|ing)?\s+on\s+(?:many|several|various|a\s+(?:lot|number|range|variety)\s+of|different|a\s+few)\b"
    r"|\b(?:many|several|various|a\s+(?:number|variety|range|lot)\s+of|lots\s+of|all\s+sorts\s+of|plenty\s+of|numerous|"
    r"different)\s+(?:\w+\s+){0,2}(?:reasons?|causes?|factors?|ways|views|opinions|possibilities|options|things|aspects|"
    r"theories|explanations|interpretations|approaches|places|considerations|perspectives)\b"
    r"|\b(?:hard|difficult|impossible|tricky|tough)\s+to\s+(?:say|tell|know|predict|answer)\b"
    r"|\b(?:i|we)(?:'m|\s+am|'re|\s+are)\s+(?:not\s+(?:really\s+|quite\s+)?(?:sure|certain|able)|unsure|unable|afraid\s+"
    r"(?:i|we)\s+(?:can't|cannot|don't))\b"
    r"|\b(?:i|we)\s+(?:don't|do\s+not)\s+(?:really\s+)?(?:know|have\s+(?:that|this|any|enough)\s+(?:information|details?))\b"
    r"|\b(?:i|we)\s+(?:can't|cannot|can\s+not|won't)\s+(?:really\s+)?(?:say|tell|answer|help|comment|advise|discuss|"
    r"assist|provide|share|give)\b"
    r"|\byou\s+(?:may|might|could|should)\s+(?:want|wish|like|try|need)\s+to\s+(?:look|read|ask|consult|check|contact|"
    r"search|explore|consider|do\s+some)\b"
    r"|\b(?:please|just|simply|best\s+to|better\s+to|advise\s+you\s+to|should)\s+(?:consult|refer\s+to|read\s+up|"
    r"look\s+it\s+up|do\s+(?:some|your\s+own)\s+research|ask\s+(?:them|someone|somebody|around|an?\s+\w+)|check\s+with)\b"
    r"|\b(?:consult|ask|see|contact|speak\s+to|talk\s+to)\s+(?:an?|your|the)\s+(?:\w+\s+)?(?:expert|specialist|"
    r"professional|administrator|teacher|doctor|lawyer|documentation|manual|carrier|provider|manufacturer|handbook)\b"
    r"|\b(?:form|make\s+up|draw)\s+your\s+own\s+(?:view|opinion|mind|conclusions?)\b"
    r"|\b(?:at\s+some\s+point|one\s+of\s+these\s+days|sooner\s+or\s+later|some\s+day|someday|one\s+day|in\s+due\s+"
    r"(?:course|time)|in\s+some\s+way|somehow|or\s+so|one\s+way\s+or\s+another|may\s+or\s+may\s+not|who\s+knows|"
    r"can\s+usually\s+be|something\s+(?:can|could|may|might))\b"
    r"|\b(?:would|'d)\s+love\s+to\b[^.!?]*\b(?:but|talk|discuss|hear)\b"
    r"|\b(?:let\s+(?:me|us)\s+know|tell\s+(?:me|us))\s+(?:what|which)\s+(?:kind|sort|type)\b"
    r"|\b(?:arrange|schedule|set\s+up|book)\s+a\s+(?:call|meeting|chat)\b"
    r"|\bas\s+an\s+ai\b|\b(?:is|are|'s)\s+(?:a\s+)?(?:deep|complex|broad|complicated|fascinating|interesting)\s+"
    r"(?:topic|question|subject|matter|issue)s?\b"
    r"|\b(?:that|this|it)(?:'s|\s+is)\s+(?:just\s+)?(?:how|the\s+way)\s+(?:it|things?|that)\b",
    re.IGNORECASE,
)
DISMISSALS = re.compile(
    r"\b(?:stop|quit)\s+(?:asking|complaining|whining|bothering|wasting|crying|being|messaging|writing|emailing)\b"
    r"|\bnot\s+(?:my|our)\s+(?:problem|job|fault|business|concern)\b"
    r"|\b(?:your|ur)\s+own\s+(?:problem|fault|stupid\w*)\b|\bthat(?:'s|\s+is)\s+(?:your|on)\s+(?:problem|fault|you)\b"
    r"|\b(?:figure|work|sort)\s+it\s+out\s+(?:yourself|on\s+your\s+own)\b|\bgoogle\s+it\b"
    r"|\b(?:before|instead\s+of)\s+(?:you\s+)?(?:complain|whin|bother|wast)\w*"
    r"|\b(?:wast(?:e|es|ed|ing)|waste\s+of)\s+(?:\w+\s+)?(?:\w+(?:'s)?\s+)?(?:time)\b"
    r"|\b(?:learn|try|know\s+how)\s+to\s+(?:read|listen|think|pay\s+attention)\b|\b(?:can't|cannot|can\s+not)\s+(?:even\s+)?read\b"
    r"|\buse\s+your\s+(?:brain|head|eyes)\b|\btoo\s+(?:hard|difficult|complicated|stupid|dumb|slow|lazy)\s+for\s+you\b"
    r"|\b(?:even\s+)?(?:a\s+child|any\s+(?:idiot|fool|child)|my\s+(?:grandmother|dog|cat))\s+(?:could|can|would|knows?)\b"
    r"|\bevery(?:one|body)\s+else\b[^.!?]*\b(?:got|gets|knows?|understands?|manages?|can)\b"
    r"|\bwhat\s+did\s+you\s+expect\b|\bhow\s+hard\s+(?:can|is)\s+(?:it|that)\b|\bdeal\s+with\s+it\b|\bget\s+over\s+it\b"
    r"|\b(?:nobody|no\s+one)\s+(?:cares|asked)\b|\bcalm\s+down\b|\b(?:can't|couldn't)\s+be\s+bothered\b"
    r"|\b(?:do|did)\s+your\s+(?:own\s+)?(?:homework|research)\b|\bas\s+(?:i|we)\s+(?:already\s+)?(?:said|told)\b"
    r"|\b(?:i|we)\s+(?:already|have\s+already|'ve\s+already)\s+(?:said|told|explained)\b|\bnot\s+my\s+problem\b"
    r"|\b(?:seriously|really)\s*\?|\b(?:lazy|clueless|dense|ridiculous|ignorant|silly|foolish)\b(?=[^.!?]*\b(?:you|question)\b)"
    r"|\byou(?:'re|\s+are)?\s+(?:clearly|obviously|just|simply)\s+(?:don't|do\s+not|can't|not|too|lack|want)\b"
    r"|\bif\s+you\s+had\s+(?:bothered|read|listened|paid)\b|\byou\s+people\b|\bwhatever\s*(?:[.,!]|$)",
    re.IGNORECASE,
)
EVASIVE, MORE_EVASIVE, DISMISSIVE, INCONSISTENT = 0.55, 0.35, 0.4, 0.5  # of the score is left


@lru_cache(4096)
def evasiveness(reply: str) -> float:
    """1 for a reply that commits itself, less if it puts the question off."""
    found = len(EVASIONS.findall(reply))
    return 1.0 if not found else EVASIVE if found == 1 else MORE_EVASIVE


def respect(reply: str) -> float:
    """1 unless a reply talks down to the reader."""
    return DISMISSIVE if DISMISSALS.search(reply) else 1.0


FREE_ECHO, MOST_ECHO = (
    0.25,
    0.75,
)  # share of a reply's content words that may be the question's; and where nothing is left
FREE_REPEATS, MOST_REPEATS = 0.2, 0.7  # the same for content words that the reply has said before
LEAST_OWN = 0.15


def economy(question: str, reply: str) -> float:
    """1 for a reply in words of its own; less if it goes on saying the question's words, or its own again."""
    asked, said = set(_content(question)), _content(reply)
    if not said:
        return LEAST_OWN
    # One or two echoes are free: a short answer has few words.
    echo = max(0, sum(word in asked for word in said) - 2) / len(said)
    again = 1 - len(set(said)) / len(said)
    return _left(echo, FREE_ECHO, MOST_ECHO) * _left(again, FREE_REPEATS, MOST_REPEATS)


def _left(found: float, free: float, most: float) -> float:
    return max(LEAST_OWN, 1 - max(0.0, found - free) / (most - free))


@lru_cache(4096)
def _content(text: str) -> list[str]:
    return [stem(word) for word in words_of(text) if word not in FUNCTION_WORDS]


AMOUNT = re.compile(
    r"\bhow\s+(?:much|many|long|far|often|fast|big|old|heavy|soon|late|early|high|tall|deep|wide|large|hot|cold|loud)\b"
    r"|\b(?:what|which)(?:'s|\s+is|\s+are)?\s+(?:the\s+|your\s+)?(?:\w+\s+)?(?:time|size|port|price|percentage|year|number|"
    r"temperature|date|cost|fee|speed|weight|distance|discount|limit|deadline|age|rate|hours)\b|\bwhen\b|"
    r"\bwhat\s+(?:does|do|would|will)\b[^.?!]*\bcost\b|\bwhat(?:'s|\s+is)\s+\d",
    re.IGNORECASE,
)
WHY = re.compile(r"\bwhy\b|\bwhat\s+causes?\b|\bhow\s+come\b|\breasons?\s+for\b", re.IGNORECASE)
HOW = re.compile(r"\bhow\s+(?:do|can|to|should|would|could|does|did|is|are)\b", re.IGNORECASE)
MEASURED = re.compile(
    r"\b(?:today|tomorrow|tonight|yesterday|noon|midnight|morning|evening|afternoon|(?:mon|tues|wednes|thurs|fri|satur|"
    r"sun)days?|january|february|march|april|may|june|july|august|september|october|november|december|spring|summer|"
    r"autumn|winter|free|half|double|twice|once|daily|weekly|monthly|yearly|hourly|immediately|instantly|century|"
    r"none|zero|nothing|no\s+charge|unlimited|until|after|before|one)\b",
    re.IGNORECASE,
)
REASON = re.compile(
    r"\b(?:because|since|so|due|caused|causes?|makes?|made|means|by|from|lets?|therefore|thus|as|if|when|that's\s+why|"
    r"to|rather|pulls?|leads?|needs?|keeps?|for)\b",
    re.IGNORECASE,
)
TO_DO = re.compile(
    r"(?:^|[.!?:;,\n)]\s*|\b(?:then|and|or|first|next|you\s+can|to|by|please)\s+)(?:add|adjust|allow|apply|ask|boil|bring|"
    r"buy|call|cancel|change|charge|check|choose|clean|clear|click|close|connect|convert|copy|count|create|cut|delete|"
    r"disable|disconnect|divide|double|download|drag|dry|edit|empty|enable|enter|export|fill|find|flush|fold|follow|"
    r"forget|get|give|go|grab|hold|import|insert|install|join|keep|leave|lift|list|log|look|lower|make|mark|mix|move|"
    r"multiply|open|paste|pick|place|plug|pour|press|print|pull|push|put|raise|read|reboot|rebuild|reinstall|reload|"
    r"remove|rename|repeat|replace|reset|restart|restore|rinse|rotate|round|run|save|scan|scroll|select|send|set|"
    r"shut|sign|slide|solve|sort|split|start|stir|stop|subtract|swap|switch|take|tap|tick|tighten|try|turn|type|"
    r"uncheck|uninstall|unlock|unplug|unscrew|update|upgrade|upload|use|verify|visit|wait|wash|wipe|work|write)\b",
    re.IGNORECASE,
)
NO_FIGURE, NO_SHAPE = 0.5, 0.75  # of the score is left without what the question asks for


def shape(question: str, reply: str) -> float:
    """1 if a reply has what such a question asks for: a figure, a reason, something to do, a yes or no."""
    asked = next((found for found in reversed(SENTENCE.findall(question)) if "?" in found), question)
    if AMOUNT.search(asked):
        return 1.0 if figures(reply) - figures(question) or MEASURED.search(reply) else NO_FIGURE
    if WHY.search(asked):
        return 1.0 if REASON.search(reply) else NO_SHAPE
    if HOW.search(asked):
        return 1.0 if TO_DO.search(reply) or REASON.search(reply) else NO_SHAPE
    if ASKED.search(asked):
        return 1.0 if stance(reply) is not None else NO_SHAPE
    return 1.0
