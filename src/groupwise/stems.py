"""Stems of English words: the one light suffix stripper, which maps the forms of a word to one text.

Change it seldom: databases of dialogues are indexed by these stems, and words whose stem changed are not found in old
ones. Learned rewards have weights on them; they are fitted anew when a checkpoint's `VERSION` is another.
"""

import re
from functools import lru_cache

VERSION = 2
# In this order; what remains must have three letters, one of them a vowel.
SUFFIXES = (
    ("iness", "y"), ("ations", ""), ("ation", ""), ("ements", ""), ("ement", ""), ("ments", ""), ("ment", ""),
    ("eed", "ee"), ("ingly", ""), ("edly", ""), ("ings", ""), ("ing", ""), ("ies", "y"), ("ied", "y"), ("ily", "y"),
    ("ness", ""),
    ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("ers", ""), ("ed", ""), ("er", ""), ("ly", ""),
    ("able", ""), ("ible", ""), ("al", ""), ("s", ""),
)  # fmt: skip
VOWEL = re.compile("[aeiouy]")


@lru_cache(65536)
def stem(word: str) -> str:
    """The stem of an English word: `arrived`, `arrives` and `arriving` have the same."""
    word = word.removesuffix("'s")
    if not word.isascii() or any(letter.isdigit() for letter in word) or len(word) < 4:
        return word
    found = word
    for suffix, instead in SUFFIXES:
        rest = word.removesuffix(suffix)
        if rest != word and len(rest) >= 3 and VOWEL.search(rest) and not (suffix == "s" and rest[-1] in "su"):
            found = rest + instead
            break
    # stopped: stopp, stop; cancelled: cancell, cancel; but call and miss stay.
    if (
        len(found) > 3
        and found[-1] == found[-2]
        and (found[-1] not in "aeiouls" or (found[-1] == "l" and len(found) > 4))
    ):
        found = found[:-1]
    # The last letter differs between "arrive" and "arriving", "carry" and "carries".
    if len(found) > 3 and found[-1] == "e":
        return found[:-1]
    return found[:-1] + "i" if found[-1] == "y" and not VOWEL.match(found[-2]) else found
