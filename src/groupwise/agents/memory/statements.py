"""What kind of statement a sentence is, and how much a conversation loses without it.

    a correction   "Actually it is the 14th."           replaces what was said before
    a decision     "Let's go with B."
    a fact         "My sister's name is Ada."           numbers, names, dates, addresses, wishes, negations
    an open point  "We still have to settle the date."

Recognised by the form of English sentences; `weight` adds up what is found, and small talk is worth nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+")
# Abbreviations after which no sentence ends.
SHORT = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|No|Prof|vs|approx|e\.g|i\.e|a\.m|p\.m)\.$", re.IGNORECASE)
CLAUSE = re.compile(r";\s+|\s+[-–—]\s+|,\s+(?=(?:and|but|so|because|which|while|although|though|whereas|since)\b)")
LONG = 160  # characters from which a sentence is divided into clauses


def _any(phrases: str) -> re.Pattern[str]:
    """A pattern for any of some phrases, divided by ` | `, as entire words."""
    choices = "|".join(re.split(r"\s+\|\s+", phrases.strip()))
    return re.compile(rf"(?<!\w)(?:{choices})(?!\w)", re.IGNORECASE)


CORRECTION = _any(
    r"""
    actually | correction | (?:i|we) (?:meant|mean) | scratch that | make (?:that|it) |
    chang(?:ed|e|ing) (?:my|our) mind | no longer | not any ?more | any ?more | instead | on second thou?ght |
    i was wrong | my mistake | i misspoke | wrong (?:number|name|date|address) |
    (?:has|have|had|is|was) (?:changed|moved|been (?:changed|moved|updated)) | rather than |
    sorry,? (?:it|i|the|that|my|we) | no,? wait | update:? | used to |
    new (?:number|address|name|date|email|phone|job) | turns out | (?:got|have|has|there is|there's) an? new |
    forget what i said | not the \w+ | i have to correct
    """
)
DECISION = _any(
    r"""
    let'?s (?:go|stick|do|take|use|pick|choose|make|keep|book|settle|meet|start|say) |
    (?:we|i)(?:'ll| will| shall) (?:go|take|stick|choose|use|pick|have|book|keep) | decid(?:ed|e) | agreed? |
    (?:settled?|settle) on | opt(?:ed)? for | go(?:ing)? (?:with|ahead) | choos(?:e|ing) | chose | pick(?:ed)? |
    final(?:ly)? (?:answer|choice|decision) | it'?s (?:a deal|settled) | sold | i(?:'d| would) go (?:for|with) |
    confirm(?:ed)? | the plan is | we(?:'re| are) going | ruled out | reject(?:ed)? | approved?
    """
)
OPEN = _any(
    r"""
    still (?:need|have|open|waiting|unclear|not|to) | to be (?:decided|confirmed|determined) | tb[dca] |
    not (?:yet )?(?:decided|sure|settled|clear) | get back to (?:you|me|us) | remind (?:me|us) | open question |
    let me (?:think|check) | undecided | later on | pending |
    (?:i|we)(?:'ll| will) (?:check|find out|ask|look into|let you know) | haven'?t (?:decided|chosen|heard|settled) |
    come back to
    """
)
ABOUT_SELF = _any(
    r"""
    my | our | mine | ours | i'?m | i am | i was | i'?ve | i have | i had | i live | i work\w* | i mov\w+ | i use\w* |
    i drive | i own | i speak | i play | i stud\w+ | i grew | i got | i bought | i paid | i booked | i ordered |
    i weigh | we'?re | we are | we have | we'?ve | call me | i need | we need | i must | i was born | i turn |
    i go by | i take | i start\w* | we live | we mov\w+
    """
)
WISH = _any(
    r"""
    prefer\w* | favou?rite | i(?:'d| would) (?:like|rather|love) |
    i (?:really )?(?:like|love|enjoy|hate|dislike|avoid|want|detest) | can'?t stand | allerg\w+ | vegetarian | vegan |
    intoleran\w+ | always | rather | please (?:always|never|use|keep|make|note|remember|don'?t|do not|avoid) |
    from now on | remember(?: that)? | note that | keep in mind | make sure | important | must(?:n'?t)? | only |
    at (?:most|least) | no more than | deadline | budget
    """
)
NEGATION = _any(
    r"""
    not | never | \w+n'?t | cannot | without | except | no | none | nobody | nothing | neither | nor | avoid | hardly
    """
)
DATE = _any(
    r"""
    (?:mon|tues|wednes|thurs|fri|satur|sun)days? | jan(?:uary)? | feb(?:ruary)? | mar(?:ch)? | apr(?:il)? | june? |
    july? | aug(?:ust)? | sept?(?:ember)? | oct(?:ober)? | nov(?:ember)? | dec(?:ember)? | tomorrow | tonight | noon |
    midnight | (?:this|next|last) (?:week|month|year|spring|summer|autumn|fall|winter)
    """
)
NUMBER = re.compile(r"\d|[$€£¥%]")
CODE = re.compile(
    r"\b(?=\w*\d)(?=\w*[A-Za-z])[\w-]{3,}\b|\b[A-Z]{2,}[-_]?[A-Z0-9]*\b|\b\S+@\S+\.\w+\b|https?://\S+|\b\d{3,}\b"
)
SPELLED = _any(
    r"""
    two | three | four | five | six | seven | eight | nine | ten | eleven | twelve | twenty | thirty | forty | fifty |
    hundred | thousand | million | dozen | half | twice | once a | first | second | third
    """
)
PLACE = _any(
    r"""
    street | st\. | road | rd\.? | avenue | ave\.? | lane | square | floor | apartment | apt\.? | flat | zip |
    postcode | room | gate | platform
    """
)
NAMED = _any(
    r"""
    name(?:d|s)? | called | contact person | goes by | nickname | maiden | surname
    """
)
# A capital inside a sentence, not the pronoun: a name.
NAME = re.compile(r"(?<![.!?:\"'(] )(?<!^)(?<!\n)\b(?!I\b|I'|OK\b)[A-Z][a-zà-ÿ]+")
STATES = _any(
    r"""
    is | are | was | were | will be | has | have | it'?s | that'?s | means | costs? | takes? | starts? | ends? |
    belongs? | equals?
    """
)
SMALL_TALK = _any(
    r"""
    ok(?:ay)? | thanks?(?: you)?(?: (?:so|very) much| a lot)? | great | good | nice | cool | perfect | sure | yes |
    yeah | no | right | fine | hi | hello | hey | got it | i see | sounds (?:good|great|fun) | interesting | awesome |
    wonderful | excellent | lovely | makes sense | of course | certainly | absolutely | you'?re welcome | no problem |
    happy to help | glad to (?:help|hear (?:it|that)) | anything else | good (?:morning|evening|day|question|point) |
    bye | goodbye | see you | hm+ | haha | lol | wow | oh | alright | all right |
    that'?s (?:great|good|nice|interesting|helpful|fine|all) | fair enough | noted | understood | go on |
    tell me more | please (?:go on|continue) | let me know | how are you
    """
)
ASKS_BACK = re.compile(
    r"^\W*(?:(?:and|but|so|ok(?:ay)?|well|also),? )*(?:what|how|why|when|where|who|which|can|could|would|should|do|"
    r"does|did|is|are|was|will|have|has|any|tell me|explain|describe|give me|show me)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SpokenStatement:
    """A sentence, or a clause of a long one, with what was found in it; small talk weighs less than nothing."""

    text: str
    weight: float
    corrects: bool
    is_open: bool


def sentences(text: str) -> list[str]:
    """The sentences of a text, and the clauses of its long ones."""
    parts: list[str] = []
    for part in SENTENCE.split(text):
        # "Dr. Lee" is not the end of a sentence.
        if parts and SHORT.search(parts[-1]):
            parts[-1] = f"{parts[-1]} {part.strip()}"
        elif part and part.strip():
            parts.append(part.strip())
    return [clause for part in parts for clause in _clauses(part)]


def _clauses(sentence: str) -> list[str]:
    if len(sentence) <= LONG:
        return [sentence]
    clauses: list[str] = []
    for part in filter(None, (piece.strip() for piece in CLAUSE.split(sentence))):
        # A few words alone say too little to be kept or left on their own.
        if clauses and (len(part.split()) < 4 or len(clauses[-1].split()) < 4):
            clauses[-1] = f"{clauses[-1]}, {part}"
        else:
            clauses.append(part)
    return clauses


def read(sentence: str, *, by_user: bool = True) -> SpokenStatement:
    """What kind of statement a sentence is, and its weight from 0 to about 6; -1 for small talk."""
    text = sentence.replace("’", "'").strip()
    if not re.search(r"\w", SMALL_TALK.sub("", text)):
        return SpokenStatement(sentence, -1.0, False, False)
    corrects, is_open = bool(CORRECTION.search(text)), bool(OPEN.search(text))
    asks = text.endswith("?") or (by_user and bool(ASKS_BACK.match(text)) and not NUMBER.search(text))
    found = {
        1.2: (corrects, bool(DECISION.search(text))),
        1.0: (bool(NUMBER.search(text)), bool(ABOUT_SELF.search(text)) and by_user),
        0.9: (bool(WISH.search(text)), is_open, bool(PLACE.search(text)), bool(NAMED.search(text))),
        0.8: (bool(NAME.search(text)), bool(DATE.search(text)), bool(CODE.search(text))),
        0.5: (bool(NEGATION.search(text)), bool(SPELLED.search(text))),
        0.4: (bool(STATES.search(text)),),
        # Whatever else it is: somebody who does not ask tells something.
        0.7: (by_user and not asks,),
    }
    weight = sum(value * sum(signs) for value, signs in found.items())
    # A question tells what somebody wanted to know, which matters less once it is answered.
    weight *= 0.35 if asks and not is_open else 1.0
    return SpokenStatement(sentence, weight, corrects, is_open)


def values(text: str) -> frozenset[str]:
    """The words of a sentence that a correction would change: numbers, codes, names and dates, in lower case."""
    found = [match.group() for pattern in (CODE, NAME, DATE, SPELLED) for match in pattern.finditer(text)]
    return frozenset(word.lower().strip(".,") for word in [*found, *re.findall(r"\d[\d.,:/-]*", text)])


def joined(parts: Sequence[str]) -> str:
    return " ".join(part if part[-1:] in ".!?" else f"{part}." for part in parts if part)
