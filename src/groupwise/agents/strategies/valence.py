"""How strongly words praise or blame, from -3 to 3: a table of common words, graded by hand.

`polarity` decides by a clause and its negation; this table only adds up, as one clue among many of `resolution`.
"""

import re
from collections.abc import Sequence

from groupwise.stems import stem

GRADES = {
    3: """
        amazing awesome brilliant fantastic excellent perfect perfectly wonderful superb marvellous terrific outstanding
        flawless impeccable delighted thrilled overjoyed ecstatic relieved relief lifesaver hero genius legend angel
        magic miracle hooray hurrah yay bingo bravo phew beauty bliss gem ace stellar splendid phenomenal gorgeous love
        loved adore treasure bless blessed saved rescued
    """,
    2: """
        great good nice lovely happy glad pleased satisfied grateful thankful thanks thank cheers appreciate obliged
        helpful useful smooth smoothly clean clear crisp sharp bright quiet silent steady stable solid reliable quick
        quickly fast instant instantly snappy easy easily effortless works worked working fixed solved resolved sorted
        settled cured healed mended repaired restored recovered back arrived landed delivered found correct right
        exactly precisely spot true success successful successfully succeeded finally welcome kind friendly generous
        fair honest decent reasonable comfortable convenient cheerful smile grin laugh fun enjoy celebrate dance proud
        impressed impressive convinced confident reassured agreed deal sold accepted enlightening eureka sense
        understood clever smart elegant beautiful beautifully charming cosy delicious sweet super cool neat grand
        smashing dandy peachy chuffed stoked merci gracias danke
    """,
    -2: """
        bad poor wrong broken broke break failed fails fail failure error errors fault faulty defective damaged crash
        crashed crashes crashing freeze freezes froze frozen dead dies died stuck slow slower sluggish lag laggy lost
        missing gone vanished disappeared empty blank black dark grey refuse refused refuses rejected rejects declined
        denied blocked locked expired invalid unknown unavailable unsupported unreadable corrupt corrupted garbled torn
        cracked scratched bent leaking leaks dripping puddle smoke burnt smell stinks noise noisy rattles buzzes squeals
        flickers overheats hot cold wet late delay delayed overdue waiting waited wait queue ignored forgotten forgot
        misleading confusing confused puzzled baffled disappointed disappointing frustrated frustrating annoyed annoying
        upset sad unhappy unfair rude worse worsened problem problems issue trouble complaint complain unsolved
        unresolved unanswered impossible fed sick tired enough circles runaround loop excuse excuses script robot bot
        machine wall parrot competitor elsewhere quit cancelling disagree dispute insist demand doubt doubtful worried
        worry afraid scared risk risky expensive overpriced costly steep pain hassle mess chaos absent pestering spam
        nag
    """,
    -3: """
        terrible awful horrible dreadful appalling atrocious disgusting disgrace disgraceful outrageous unacceptable
        ridiculous absurd pathetic useless worthless hopeless pointless scandal scam fraud ripoff robbery liar lie lied
        lies nightmare disaster catastrophe furious livid angry outraged hate hated despise worst nonsense rubbish
        garbage crap joke joking kidding farce insult insulting shame shameful incompetent cheated betrayed ruined
        destroyed devastated shambles lawyer sue court ombudsman chargeback
    """,
}
VALENCE = {stem(word): grade for grade, words in GRADES.items() for word in words.split()}
NEGATES = re.compile(r"^(?:not|no|never|nothing|nobody|none|neither|nor|cannot|hardly|barely|without)$|n't$")
WORD = re.compile(r"[a-z']+")
# A negation reaches over this many words, and "not great" blames less than "great" praises.
REACH, DENIED = 3, -0.7


def valences(text: str) -> list[float]:
    """The valence of every word of a text that has one, turned round after a negation."""
    words = WORD.findall(text.lower())
    denies = [bool(NEGATES.search(word)) for word in words]
    return [
        grade * (DENIED if any(denies[max(0, at - REACH) : at]) else 1)
        for at, word in enumerate(words)
        if (grade := VALENCE.get(stem(word), 0))
    ]


def balance(found: Sequence[float]) -> float:
    """The sum of some valences, squeezed into -1 … 1."""
    total = sum(found)
    return float(total / (total * total + 8) ** 0.5)
