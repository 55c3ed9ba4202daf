"""What the rules know about English: words that fit any question, negations and impossible pairs."""

import re

from groupwise.rewards.rules.components import listed

FUNCTION_WORDS = frozenset(
    listed(
        "a, an, the, this, that, these, those, my, your, our, their, its, his, her, i, you, he, she, it, we, they, "
        "me, him, us, them, who, what, which, when, where, why, how, and, or, but, so, if, because, as, than, then, "
        "of, to, in, on, at, for, from, with, by, about, into, over, under, after, before, between, through, during, "
        "up, down, out, off, is, are, was, were, am, be, been, being, do, does, did, doing, done, have, has, had, "
        "having, will, would, can, could, should, shall, must, may, might, not, no, nor, yes, there, here, just, "
        "also, too, very, more, most, much, many, some, any, all, both, each, every, other, another, such, only, own, "
        "same, again, once, i'm, i've, i'll, i'd, you're, you've, you'll, you'd, it's, that's, there's, what's, "
        "we're, we've, we'll, they're, they've, they'll, don't, doesn't, didn't, can't, cannot, couldn't, won't, "
        "wouldn't, shouldn't, isn't, aren't, wasn't, weren't, haven't, hasn't, hadn't, let's, while, until, since, "
        "though, although, whether, even, still, yet, now, well, like, get, got, make, one, way, really, quite, "
        "rather, let, per, s, t, re, ve, ll, d"
    )
)
# Words of manners and management; a star matches every word that begins like this.
GENERIC = listed(
    "help*, please, thank, thanks, sorry, apolog*, regret*, understand*, appreciat*, happy, glad, delight*, "
    "welcome, assist*, support*, team, concern*, issue*, matter*, question*, inquir*, enquir*, request*, reach*, "
    "contact*, care*, valu*, custom*, client*, experience*, service*, best, better, good, great, excellent, "
    "amazing, perfect*, important, ensur*, provid*, offer*, need*, feel*, free, hesitat*, further, additional, "
    "information, detail*, assur*, commit*, dedicat*, professional*, quality, solution*, resolv*, solv*, patien*, "
    "inconvenien*, frustrat*, look*, forward, hear*, know*, thing*, something, anything, everything, someone, "
    "possible, soon, shortly, promptly, quickly, immediately, hello, hi, dear, regards, sincerely, day, time, "
    "situation*, topic*, answer*, repl*, respon*, certain*, definit*, absolut*, sure, course, always, everyone, "
    "people, work*, goal*, success*, benefit*, improv*, effect*, effici*, approach*, process*, step*, example*, "
    "consider*, idea*, point*, key, overall, basic*, general*, various, different, specific*, relevant, "
    "appropriat*, necessar*, available, ask*, tell*, say*, said, want*, wish*, try*, use*, using, think*, "
    "believ*, mean*, give*, take*, keep*, come*, going, go, find*, right, lot*, kind*, type*, part*, fact*, case*"
)
NEGATIONS = frozenset(
    listed(
        "not, no, never, none, neither, nor, cannot, without, unable, nothing, nobody, nowhere, hardly, don't, "
        "doesn't, didn't, can't, couldn't, won't, wouldn't, shouldn't, isn't, aren't, wasn't, weren't, haven't, "
        "hasn't, hadn't, mustn't, needn't, fails, failed, wrong, false, untrue, impossible, refuse, avoid, against"
    )
)

_GENERIC_WORDS = frozenset(phrase for phrase in GENERIC if not phrase.endswith("*"))
_GENERIC_STARTS = tuple(phrase[:-1] for phrase in GENERIC if phrase.endswith("*"))


def is_generic(word: str) -> bool:
    """Whether a word fits any question: a function word, or a word of manners and management."""
    return word in FUNCTION_WORDS or word in _GENERIC_WORDS or word.startswith(_GENERIC_STARTS)


DETERMINERS = frozenset(listed("a, an, the, my, your, our, their, its, every"))
# Without "may", which is also a month.
FINITE = frozenset(listed("is, are, was, were, am, has, does, did, will, would, can, could, should, must, might"))
PREPOSITIONS = frozenset(listed("of, to, in, at, for, from, with, by, into, about, on"))
JOINING = frozenset(listed("and, or, but, because, if"))
SUBJECTS = frozenset(listed("i, he, she, we, they"))
PLEDGES = frozenset(
    listed("i'll, we'll, you'll, they'll, don't, doesn't, didn't, won't, can't, couldn't, wouldn't, to")
)
POSSESSIVES = frozenset(listed("my, your, our, their, its, his"))
CONTRACTED = frozenset(
    listed(
        "i'm, i've, i'll, i'd, you're, you've, you'll, he's, she's, it's, we're, we've, we'll, they're, they've, "
        "they'll, that's, there's, what's, let's"
    )
)
WONDERING = frozenset(listed("who, whom, what, why, how, where, when, these, those"))
TAKING_BACK = frozenset(listed("although, though, because, unless, since, if"))
# What may not follow; inverted questions ("can the", "is it") are therefore not among them.
FORBIDDEN: tuple[tuple[frozenset[str], frozenset[str]], ...] = (
    (DETERMINERS, DETERMINERS | FINITE | PREPOSITIONS | JOINING | SUBJECTS | {"it", "you", "them", "me", "us", "not"}),
    (DETERMINERS | POSSESSIVES, CONTRACTED | TAKING_BACK | WONDERING | {"too", "let's", "as", "than", "then", "there"}),
    (CONTRACTED, FINITE | {"have", "be"} | CONTRACTED | JOINING),
    (TAKING_BACK - {"since"}, FINITE | {"have", "be", "than", "of"} | TAKING_BACK),
    (frozenset(listed("must, should, could, would, will, can, may, might, shall")), FINITE | CONTRACTED),
    (PREPOSITIONS, FINITE | JOINING | SUBJECTS),
    (PLEDGES, FINITE | JOINING | SUBJECTS),
    (PLEDGES - {"to"}, DETERMINERS | PREPOSITIONS),
    (SUBJECTS, DETERMINERS | PREPOSITIONS | {"me", "them", "us"}),
    (FINITE, JOINING),
    (frozenset({"i", "we", "they", "you"}), frozenset({"is", "has", "does"})),
    (frozenset({"he", "she", "it"}), frozenset({"are", "am", "have"})),
)
DOUBLED = frozenset(listed("that, had, very, no, bye, so, really, ha, is, now, there"))
STRAYS = (
    # a capital inside a sentence, and a sentence that stops after "the" or "of"
    re.compile(
        r"[a-z,;]\s+(?:The|An|Your|We|You|It|If|And|But|To|In|Of|Is|Are|Please|This|That|For|With|Then|So|First)\b(?!')"
    ),
    re.compile(
        r"\b(?:an?|the|my|your|our|their|its|every|of|from|into|and|or|because|i'll|we'll)[.,;:!?]", re.IGNORECASE
    ),
)
SMALL_START = re.compile(r"[a-z]{3}[.!?]\s+[a-z]{2,}")
