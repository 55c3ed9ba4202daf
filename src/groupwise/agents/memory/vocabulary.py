"""Words as stems, with synonyms: how much of a question a text answers, without a model.

Other languages than English are compared by their words as they are written.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files

from groupwise.stems import stem

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
# Words that say nothing about what a text is about.
STOP_WORDS = frozenset(
    WORD.findall(
        """
    a about after again all also am an and any are as at be because been before being but by can could did do does
    doing don for from had has have having he hello her here hers hi him his how i if in into is it its just let me my
    no nor not now of off ok okay on once only or other our ours out over own please really s same she should so some
    such t than thanks that the their theirs them then there these they this those through to too under until up us
    very was we were what when where which while who whom why will with would yes you your yours im ive id ill dont
    doesnt didnt isnt cant wont hey there's it's i'm i've i'd i'll don't doesn't didn't isn't aren't wasn't can't
    won't couldn't what's that's let's you're we're they're he's she's who's get got know tell told say said remember
    recall like want need thing things way one ones much many lot still ever every time look make made take going
    anything something everything
    """
    )
)
SYNONYM, TOPIC, NEAR = 0.8, 0.35, 0.7  # what a synonym, a word of the topic and a misspelt word count, against 1


def words(text: str) -> list[str]:
    """The words of a text in lower case, with straight apostrophes."""
    return WORD.findall(text.replace("’", "'").lower())


def terms(text: str) -> list[str]:
    """The stems of the words that say what a text is about, in their order; all words if there are only small ones."""
    found = words(text)
    return [stem(word) for word in found if word not in STOP_WORDS] or [stem(word) for word in found]


@cache
def _groups() -> Mapping[str, Mapping[str, float]]:
    """For every stem that has any: related stems with what they count."""
    related: dict[str, dict[str, float]] = {}
    for line in (files("groupwise.agents.memory") / "synonyms.txt").read_text("utf8").splitlines():
        if not line or line.startswith("#"):
            continue
        worth = TOPIC if line.startswith("~") else SYNONYM
        # "send-back" is found by either word; small words of it are not synonyms by themselves.
        group = {stem(part) for word in line.lstrip("~ ").split() for part in word.split("-") if part not in STOP_WORDS}
        for one in group:
            known = related.setdefault(one, {})
            for other in group - {one}:
                known[other] = max(worth, known.get(other, 0.0))
    return related


def related(term: str) -> Mapping[str, float]:
    """Stems that mean nearly the same as a stem, or belong to its topic, with what they count."""
    return _groups().get(term, {})


def trigrams(word: str) -> frozenset[str]:
    """The runs of three letters of a word with its ends marked; words with a typo share most of them."""
    padded = f" {word} "
    return frozenset(padded[n : n + 3] for n in range(len(padded) - 2))


def alike(one: str, other: str) -> float:
    """How alike two words are written: the share of their trigrams that both have."""
    mine, theirs = trigrams(one), trigrams(other)
    return len(mine & theirs) / len(mine | theirs)


def coverage(query: Iterable[str], text: Iterable[str], rarity: Callable[[str], float] = lambda term: 1.0) -> float:
    """The share of a query's terms, weighed by their rarity, that a text has: themselves or something related.

    Args:
      query, text: stems, as `terms` makes them.
      rarity: how much a term of the query says.
    """
    asked, known = dict.fromkeys(query), frozenset(text)
    total = sum(rarity(term) for term in asked)
    if not total:
        return 0.0
    return sum(rarity(term) * worth(term, known) for term in asked) / total


def worth(term: str, known: frozenset[str]) -> float:
    """What a text with these terms is worth for one term of a query: 1 for the term itself, less for related ones."""
    if term in known:
        return 1.0
    near = max((value for other, value in related(term).items() if other in known), default=0.0)
    if near or len(term) < 5:
        return near
    return max(
        (NEAR for other in known if len(other) > 4 and other[0] == term[0] and alike(term, other) > 0.5), default=0.0
    )
