"""Whether a turn sounds like success or like failure, where no phrase says it: words, and what negates them.

A clause counts +1 for a good word or for a trouble that is denied ("not a single error"), −1 for a trouble or for
anything else that is denied ("nothing on mine", "I haven't got one"). The last clause that counts decides.
"""

import re

from groupwise.agents.strategies.registry import Signal, sentences

CLAUSE = re.compile(r"[,;:]\s+|\s+(?:but|however|although|though|except|yet|and)\s+", re.IGNORECASE)
# Negations that deny nothing.
IDIOMS = Signal(
    r"""
    no (?:worries|rush|hurry|problem|problems|need|fuss|doubt|wonder|matter|trouble|idea (?:how|why) i) |
    can't (?:believe|wait|complain|thank you enough|fault) | cannot (?:believe|wait|complain) |
    could(?:n't| not) (?:be (?:happier|better)|agree more|have) | not bad | not at all |
    nothing (?:else|more|to add) | no (?:more|further|other) questions? |
    without (?:a|any) (?:murmur|fuss|hitch|problem|trouble|issue|word) | never (?:\w+ ){1,4}before |
    never have (?:thought|guessed|known) | for not | never (?:mix|forget|confuse|look back)\w* |
    no (?:reason|point) to (?:wait|worry) |
    (?:didn't|did not|never|hadn't) (?:know|knew|realise[d]?|realize[d]?|thought|think|noticed?|expect(?:ed)?) |
    don't (?:worry|mind) | wasn't (?:it|so hard) | it wasn't
    """,
    denied=False,
)
NEGATION = re.compile(
    r"\b(?:not|no|none|nothing|nobody|never|neither|nor|nowhere|cannot|hardly|barely|without|isnt|dont|doesnt|didnt|"
    r"cant|wont)\b|n't\b",
    re.IGNORECASE,
)
TROUBLE = Signal(
    r"""
    errors? | crash\w* | fr(?:eez\w*|oze|ozen) | fail\w* | slow(?:er|ly)? | lag\w* | stuck | dead | died | broken? |
    broke | wrong | missing | lost | empty | expired | blank | drops | noise | leak\w* | worse | bad(?:ly)? |
    confus\w* | useless | problems? | issues? | trouble | faults? | faulty | delay\w* | late | bills? | complaints? |
    outages? | still | again | only | half | yet | nonsense | rubbish | terrible | awful | annoy\w* | angry | joke |
    worried | unfair | disabled | denied | blocked | invalid | unknown | unavailable | forbidden | unsupported |
    otherwise | mixed up | puzzled | as before | same as ever | (?:now|then) (?:it|that) (?:says|asks|wants|tells) |
    sad | unhappy | rude | damaged | scratched | cracked | dirty | refus\w* | reject\w* | declin\w* | unclear |
    hopeless | pity | shame | sadly | gone | stop(?:s|ped) | supposedly
    """,
    denied=False,
)
GOOD = Signal(
    r"""
    good | great | fine | nice | lovely | love[sd]? | perfect\w* | wonderful | brilliant | excellent | super |
    superb | happy | glad | relie\w+ | pleased | satisf\w+ | helpful | helped | helps | fast | quick\w* | instant\w* |
    clear | clearly | smooth\w* | star | hero | hug | fun | yay | hooray | neat | sorted | done | doable |
    reasonable | works? | worked | working | right | correct | exactly | makes sense | thanks? | thank you | cheers |
    ta | appreciate\w* | awesome | amazing | fantastic | cool | easy | finally | at last | spot on | like a charm |
    fair | deal | agreed | convinced | better | beautiful\w* | delicious | useful | found | phew | yes | yep |
    ok(?:ay)? | sure | alright | got you | gotcha | understood | true | smashing | impress\w+ | reliable | splendid |
    honest | nicely | angel | legend | genius | life ?saver | gem | marvellous | grateful | obliged | merci | bravo |
    magic | delighted | thrilled | chuffed | ready | treat | ace | confirmed | impeccable | flawless\w* | bingo |
    wow | aha | ha | decent | accepted | i can | we can | hurrah | solid | stable
    """,
    denied=False,
)


def polarity(text: str) -> int:
    """+1, −1, or 0 if nothing in the turn counts."""
    counted = [sound for sentence in sentences(text) for part in CLAUSE.split(sentence) if (sound := _sound(part))]
    return counted[-1] if counted else 0


def _sound(clause: str) -> int:
    plain = IDIOMS.pattern.sub(" ", clause)
    trouble, good = TROUBLE.within(plain), GOOD.within(plain)
    if NEGATION.search(plain):
        return 1 if trouble and not good else -1
    # "Perfect again", "only good things": the good word weighs more than a word that is no trouble by itself.
    return 1 if good else -1 if trouble else 0
