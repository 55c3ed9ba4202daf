"""What the user of a dialogue actually wants, by domain: read clause by clause, kept from turn to turn.

A wish that is denied ("I don't want a refund, I want it fixed") does not count. The need that takes over replaces the
one before; something that is only mentioned, or a question on the side, does not.
"""

from groupwise.agents.strategies.reading import WANTS, wanted
from groupwise.agents.strategies.registry import Signal

# In each domain, particular wishes before general ones: of several in a clause, the first counts.
CUSTOMER_SERVICE = {
    "cancel": r"""
        cancel\w* | unsubscribe | terminate | (?:end|stop|quit|leave) (?:my|the|our)
        (?:plan|subscription|contract|membership)
    """,
    "repair": r"repair\w* | fix(?:ed|ing)? | mend(?:ed)? | get it working | patched",
    "exchange": r"""
        exchange\w* | swap\w* | replace\w* | (?:another|different|smaller|larger|bigger|right|other)
        (?:one|size|colou?r|pair|model|item)
    """,
    "refund": r"refund\w* | money back | (?:my|the) money | reimburse\w* | pay me back",
    "billing": r"""
        charged | bill(?:ed|ing)? | invoice\w* | overcharged | double charge\w* | direct debit | fee | bank
        statement | took \w+ (?:twice|from)
    """,
    "delivery": r"""
        deliver\w* | parcel | package | track\w* | ship(?:ped|ping|ment)? | courier | arriv\w+ | where(?:'s| is) my
        (?:order|stuff|box) | on its way
    """,
    "account": r"""
        account | profile | (?:change|update|correct) (?:my|the|our)
        (?:address|email|name|phone|number|details|password) | moved house
    """,
    "complaint": r"""
        complain\w* | rude | unacceptable | treated | appalling | disgust\w+ | attitude | hung up | laughed |
        ignored | disrespect\w*
    """,
    "question": r"what | when | how | which | do you | is there | can i | are there | could you tell",
}
TECHNICAL_SUPPORT = {
    "data_loss": r"""
        deleted | recover\w* | restore\w* | (?:files?|photos?|pictures?|documents?|data|notes|contacts|everything)
        (?:\w+ ){0,3}?(?:gone|lost|missing|disappeared|vanished|wiped) | lost (?:all |my |everything)\w* | get
        (?:it|them) back
    """,
    "login": r"""
        log ?in | sign ?in | log(?:ged)? (?:me )?(?:in|out) | password | locked out | two-factor | verification code |
        access (?:to )?my account | authenticat\w+
    """,
    "installation": r"install\w* | set ?up | setup | driver\w* | installer | activation",
    "crash": r"""
        crash\w* | clos(?:es|ed) (?:itself|by itself|on me|immediately) | quits | shuts (?:down|itself) | freez\w+ |
        blue screen | force clos\w+ | dies | stops (?:working|responding)
    """,
    "performance": r"""
        slow\w* | lag\w* | takes (?:ages|forever|minutes|so long|\w+ minutes) | sluggish | stutter\w* | crawl\w* |
        hang(?:s|ing)
    """,
    "connectivity": r"""
        wi-?fi | internet | network | router | bluetooth | connect\w* | disconnect\w* | offline | vpn | signal | drops
    """,
    "hardware": r"""
        crack\w* | broken | keyboard | battery | button | spill\w* | dropped | won't (?:turn on|charge|switch on) |
        dead | screen | fan | cable | speaker | camera | port | hinge | printer | noise
    """,
    "how_to": r"""
        how (?:do|can|to|would) | where (?:do|is|can) | turn (?:on|off|it off|that off) | disable | enable | switch
        off | setting\w* | change the
    """,
}
SALES = {
    "not_interested": r"""
        not interested | no,? thanks?(?: you)? | stop (?:calling|writing|emailing|contacting) | (?:take|remove)
        (?:me|us) off | leave (?:me|us) alone | unsubscribe | don't (?:call|contact|write)
    """,
    "demo": r"""
        demo\w* | presentation | show (?:me|us) (?:how|it|the|around) | walk (?:me|us) through | in action | free
        trial | try it out | test drive
    """,
    "comparison": r"""
        difference | compar\w+ | versus | vs | which (?:one|of|is better|would) | better than | (?:or|than) the
        (?:other|cheaper|bigger|smaller|\w+ one) | pros and cons
    """,
    "availability": r"""
        in stock | available | availability | (?:any|some) left | free (?:on|for|that|this) | slots? | do you
        (?:have|still have|stock|carry) | sold out | vacan\w+
    """,
    "price": r"""
        how much | prices? | costs? | quote | rates? | what would (?:it|that|i) | per
        (?:month|seat|user|year|person) | discount
    """,
    "objection": r"""
        too (?:expensive|much|high|complicated|long|risky|dear) | expensive | not (?:so |really )?sure | afford |
        worried | concern\w* | hesita\w+ | risky | burned before | doubt\w* | locked in | already (?:have|use|using)
    """,
    "order": r"""
        buy | order\w* | take (?:it|them|one|two|three|the) | book\w* | sign (?:me|us) up | purchase | add
        (?:it|one|another|two) | reserve | subscribe
    """,
}
EDUCATIONAL = {
    "motivation": r"""
        giv(?:e|ing) up | stupid | hate (?:this|maths?|it) | can't do (?:this|it) | no point | what's the point |
        hopeless | (?:so |too )?bad at | never (?:going to|gonna|be able) | motivat\w+ | fail(?:ing)? everything |
        useless at
    """,
    "practice": r"""
        quiz\w* | practi[cs]e\w* | test me | drill\w* | ask me | give me (?:some |a few |more |another
        )?(?:questions?|problems?|exercises?|sums?)
    """,
    "check_work": r"""
        check\w* | is (?:this|that|it|my \w+) (?:right|correct|ok|okay|any good) | did i (?:do|get) | mark
        (?:it|this|my) | look over | my (?:answer|solution|essay|attempt|draft|translation) | correct (?:it|this|my) |
        i got | spot (?:the|my|any)
    """,
    "study_plan": r"""
        (?:study |revision |learning )?plan | schedule | timetable | organi[sz]e | (?:exam|test) (?:is )?(?:in|on) |
        revis\w+ | how long (?:do|will|should) | each (?:day|week) | where (?:do|should) i start
    """,
    "homework": r"""
        homework | assignment | due (?:tomorrow|on|monday|friday) | (?:problem|question|exercise|task|number) \d+ |
        worksheet | essay | for (?:class|school) | set (?:us|as)
    """,
    "explain": r"""
        explain\w* | understand\w* | what (?:is|are|does|do|'s) | why | how (?:does|do|come|can) | mean\w* |
        difference between | confus\w+ | get (?:it|this|why|how) | teach me | help me (?:with|see)
    """,
}
INTENTS = {
    domain: {name: Signal(phrases, denied=False) for name, phrases in wishes.items()}
    for domain, wishes in (
        ("customer_service", CUSTOMER_SERVICE),
        ("technical_support", TECHNICAL_SUPPORT),
        ("sales", SALES),
        ("educational", EDUCATIONAL),
    )
}
ASIDE = Signal(
    "by the way | btw | quick question | just curious | out of curiosity | one more thing | side note", denied=False
)
GENERAL = ("question", "how_to", "order", "explain")  # wishes that every turn seems to have, so they replace no other


def intent_after(domain: str, text: str, known: str) -> str:
    """What the user wants after this turn, given what they wanted before it."""
    found = wanted(text, INTENTS[domain])
    if not known or not found:
        return found or known
    takes_over = known in GENERAL and found not in GENERAL
    asks = WANTS.within(text) and found not in GENERAL and not ASIDE.within(text)
    return found if takes_over or asks else known
