"""Texts as the rules read them: chat shorthand written out, and figures in one form.

    "ur refund of $1,080.50 is due in ten wks" is read as "your refund of $1080p5 is due in 10 weeks"

A decimal point becomes a letter, so that a figure is one word.
"""

import re
from functools import lru_cache

from groupwise.rewards.rules.components import QUOTES, listed

SHORT = dict(
    pair.split("=")
    for pair in listed(
        "u=you, ur=your, urs=yours, r=are, n=and, b=be, k=ok, pls=please, plz=please, thx=thanks, ty=thank you, "
        "b4=before, gr8=great, l8r=later, tmrw=tomorrow, tmr=tomorrow, 2morrow=tomorrow, 2moro=tomorrow, "
        "2day=today, wk=week, wks=weeks, hr=hour, hrs=hours, min=minutes, mins=minutes, sec=seconds, secs=seconds, "
        "yr=year, yrs=years, mo=month, mos=months, msg=message, acct=account, addr=address, pic=picture, "
        "pics=pictures, bc=because, cuz=because, coz=because, idk=i don't know, dunno=don't know, gonna=going to, "
        "wanna=want to, gotta=have to, cant=can't, dont=don't, wont=won't, isnt=isn't, arent=aren't, doesnt=doesn't, "
        "didnt=didn't, couldnt=couldn't, shouldnt=shouldn't, wasnt=wasn't, havent=haven't, hasnt=hasn't, "
        "whats=what's, wheres=where's, hows=how's, whos=who's, im=i'm, ive=i've, youre=you're, thats=that's, "
        "theres=there's, yea=yes, yeah=yes, yep=yes, yup=yes, ya=yes, nope=no, nah=no, smth=something, mb=maybe, "
        "rn=right now, ppl=people, prob=probably, probs=probably, tho=though, thru=through, abt=about, btw=by the way, "
        "fyi=for your information, diff=different, def=definitely, w=with, ok=okay"
    )
)
LAUGHTER = frozenset(listed("lol, lmao, rofl, haha, hahaha, lmfao, omg, tbh, imo, imho, smh, hmu"))
UNITS = dict(
    zip(
        listed(
            "two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen, "
            "sixteen, seventeen, eighteen, nineteen"
        ),
        range(2, 20),
        strict=True,
    )
)
TENS = dict(
    zip(listed("twenty, thirty, forty, fifty, sixty, seventy, eighty, ninety"), range(20, 100, 10), strict=True)
)
BELOW_TEN = "|".join([*UNITS][:8])
NUMBER_WORD = re.compile(
    rf"\b(?:({'|'.join(TENS)})(?:[- ](one|{BELOW_TEN}))?|({'|'.join(UNITS)})|"
    r"(a dozen|(?:a|one) (?:hundred|thousand)))\b(?:\s+(hundred|thousand))?",
    re.IGNORECASE,
)
ROUND = {"dozen": 12, "hundred": 100, "thousand": 1000}
GROUPED = re.compile(r"(?<![\d.,])(\d{1,3}(?:,\d{3})+)(?![\d,])")
DECIMAL = re.compile(r"(?<![\d.])(\d+)\.(\d+)(?![\d.])")
WITH_UNIT = re.compile(r"(?<![\w.])(\d+(?:[.,]\d+)*)([a-z]{1,4})\b", re.IGNORECASE)
SHORT_WORD = re.compile(
    rf"(?<![\w'-])(?:{'|'.join(sorted({*SHORT, *LAUGHTER}, key=len, reverse=True))})(?![\w'-])", re.I
)


@lru_cache(4096)
def plain(text: str) -> str:
    """The text with shorthand written out and every figure as one word in digits."""
    text = SHORT_WORD.sub(_written_out, text.translate(QUOTES))
    text = NUMBER_WORD.sub(_in_digits, text)
    text = GROUPED.sub(lambda found: found[1].replace(",", ""), text)
    text = WITH_UNIT.sub(r"\1 \2", text)
    return DECIMAL.sub(lambda found: f"{found[1]}p{found[2]}".rstrip("0").rstrip("p"), text)


def figures(text: str) -> set[str]:
    """The figures of a text that `plain` has read."""
    return set(re.findall(r"(?<![\w.])\d{1,11}(?:p\d+)?(?!\w)", text))


MEASURE = re.compile(
    r"(?<![\w.])(\d{1,11}(?:p\d+)?)[ -]?(seconds?|minutes?|hours?|days?|weeks?|months?|years?|grams?|kilos?|kg|g|"
    r"miles?|metres?|meters?|km|cm|mm|m|litres?|liters?|ml|l|percent|%)(?!\w)",
    re.IGNORECASE,
)
SAME_UNIT = dict(
    pair.split("=")
    for pair in listed(
        "%=percent, kilo=kg, kilos=kg, gram=g, grams=g, m=metre, meter=metre, meters=metre, litre=l, litres=l, "
        "liter=l, liters=l"
    )
)


def units_differ(one: str, other: str) -> bool:
    """Whether two texts that `plain` has read measure the same figure in different units only: 30 hours, 30 seconds."""
    mine, theirs = _measures(one), _measures(other)
    return any(not units & theirs.get(figure, units) for figure, units in mine.items())


def _measures(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for figure, unit in MEASURE.findall(text):
        found.setdefault(figure, set()).add(SAME_UNIT.get(unit.lower(), unit.lower().rstrip("s")))
    return found


def _written_out(found: re.Match[str]) -> str:
    word = found[0].casefold()
    # Capitals are no shorthand: "B", "K" and "MB" are names and units.
    if len(word) <= 2 and found[0] != word and word not in ("im", "ok", "ty", "ur"):
        return found[0]
    long = SHORT.get(word, "")
    return long.capitalize() if found[0][0].isupper() else long


def _in_digits(found: re.Match[str]) -> str:
    tens, unit, small, round_number, times = (part and part.casefold() for part in found.groups())
    if round_number:
        number = ROUND[round_number.split()[-1]]
    else:
        number = TENS.get(tens or "", 0) + UNITS.get(unit or small or "", 1 if unit else 0)
    return str(number * ROUND[times] if times else number)
