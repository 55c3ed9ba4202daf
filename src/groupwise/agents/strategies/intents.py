"""What the user of a dialogue actually wants, by domain: read clause by clause, kept from turn to turn.

A wish that is denied ("I don't want a refund, I want it fixed") does not count. The need that takes over replaces the
one before; something that is only mentioned, or a question on the side, does not.
"""

import re

from groupwise.agents.strategies.phrases import WANTS
from groupwise.agents.strategies.polarity import polarity
from groupwise.agents.strategies.reading import wanted
from groupwise.agents.strategies.registry import Signal

# In each domain, particular wishes before general ones: of several in a clause, the first counts.
CUSTOMER_SERVICE = {
    "cancel": r"""
        cancel(?:l?ing|lation)? | (?:i|we|i've|we've|have|already) cancell?ed | unsubscribe |
        (?:take|get|remove) (?:me|us) (?:out of|off) | terminate |
        (?:end|stop|quit|leave|close) (?:my|the|our) (?:\w+ )?(?:plan|subscription|contract|membership|newsletter) |
        (?:end|stop|leave|quit) (?:the|this|my|our) (?:\w+ )?(?:trial|plan|contract|subscription|membership) |
        (?:want|get|getting) out of (?:the|this|my|our) | opt out | (?:not|don't|won't) (?:want to )?renew
    """,
    "repair": r"""
        repair\w* | fix(?:ed|ing)? | mend(?:ed)? | get it working | patched | workshop | technician | serviced |
        leaks? | leaking | came off | fell off | squeak\w* | rattl\w* | loose | doesn't (?:work|run|turn) any ?more
    """,
    "exchange": r"""
        exchange\w* | swap\w* | replace\w* |
        (?:another|different|smaller|larger|bigger|right|other|correct) (?:ones?|size|colou?r|pair|model|item) |
        one instead | i ordered | (?:new|another) one | in pieces | (?:new|another) (?:one|pair|set|unit)
    """,
    "refund": r"""
        refund\w* | (?:money|deposit|payment|fare|fee|euros?|dollars?|pounds?) back | (?:my|the) (?:money|deposit) |
        reimburse\w* | pay (?:me|us) back | owe (?:me|us) |
        wait(?:ing)? for (?:the|my) (?:\d+ )?(?:money|euros?|dollars?|pounds?) |
        (?:sent|posted|shipped|returned) (?:\w+ )?back | cashback | compensat\w* | owed | credit(?:ed)? back |
        get back (?:the|my) | give (?:me|us) back | my \d+ (?:euros?|dollars?|pounds?|quid)
    """,
    "billing": r"""
        charged | bill(?:ed|ing)? | invoice\w* | overcharged | double charge\w* | direct debit | fee | bank statement |
        took \w+ (?:twice|from) | payments? | statement | charge[ds]? (?:me|us|for) | reminder | insurance on |
        direct debits? | subtotal | tax | receipt | price on my
    """,
    "complaint": r"""
        complain\w* | rude(?:ly)? | unacceptable | treated | appalling | disgust\w+ | attitude | hung up | laughed |
        ignored | disrespect\w* | swore | sworn | shouted | yelled | threw | insult\w* | blamed | mocked | lied |
        his boss | her boss |
        (?:your|the) (?:staff|waiter|waitress|driver|mechanic|receptionist|colleague|agent|clerk|cashier|guard|nurse|
        technician|manager|employee|doorman|fitter|man|woman|lady|guy|salesman|assistant|operator) (?:\w+ )?(?!said|
        told|promised|came|will|is coming|wrote|noted)\w+(?:ed|ew|ore|eft|ught|oke) |
        (?:your|the) (?:courier|porter|guide|boss|chef|host|operator) (?:\w+ )?(?!said|told|promised|came|
        will)\w+(?:ed|ew|ore|eft|ught|oke)
    """,
    "delivery": r"""
        deliver\w* | parcel | package | track\w* | ship(?:ped|ping|ment)? | courier | arriv\w+ |
        (?:where(?:'s| is| are)) (?:my|our|the) \w+ | on (?:its|their) way | get here | gets here |
        (?:isn't|not|aren't) here | get to | pick-?up | haven't (?:got|had) my | due (?:to come|here) |
        supposed to (?:come|arrive|be here) | any news (?:about|of|on) my | waiting in | (?:the|your) driver |
        come on (?:mon|tues|wednes|thurs|fri|satur|sun)day | (?:not|n't|never) (?:turned|shown) up |
        when (?:do|does|will|can) (?:\w+ ){1,5}?(?:come|arrive|get|be here) | letter ?box | neighbour |
        out for delivery | expected (?:it|on|yesterday|last) |
        when [\w ]{1,40}(?:comes?|arrives?|be here|get here|delivered)
    """,
    "account": r"""
        account | profile |
        (?:change|update|correct) (?:my|the|our) (?:\w+ )?(?:address|email|name|phone|number|details|password) |
        (?:we've|i've|i|we) moved | new (?:address|email|phone|number|name) | (?:surname|name) (?:is|on) |
        old (?:name|address|number) | misspel\w+ | your records | contact details | phone number | email address |
        date of birth | my details | in your (?:system|records|database) | birthday
    """,
    "question": r"[^?]*\?",
}
TECHNICAL_SUPPORT = {
    "data_loss": r"""
        deleted | recover\w* | restore\w* |
        (?:files?|photos?|pictures?|documents?|data|notes|contacts|everything) (?:\w+ ){0,3}?(?:gone|lost|missing|
        disappeared|vanished|wiped) |
        lost (?:all |my |everything)\w* | get (?:it|them) back | overwritten | overwrote | wiped | erased | vanish\w* |
        bring (?:it|them) back | brought back | from (?:a|the|my) backup |
        (?:isn't|aren't|not|no longer) (?:on the|there|in the) (?:\w+ )?(?:stick|drive|disk|card|folder|any ?more)
    """,
    "login": r"""
        log ?in | sign ?in | log(?:ged)? (?:me )?(?:in|out) | password | locked out | two-factor | verification code |
        access (?:to )?my account | authenticat\w+ | fingerprint | face id | log-?in | pin | authenticator | unlock\w* |
        lock(?:s|ed|ing)? (?:me|us) out | log(?:s|ged) (?:me|us) (?:out|off)
    """,
    "installation": r"""
        install\w* | set ?up | setup | driver\w* | installer | activation | set (?:it|this|the \w+|up the) up | plugin |
        update (?:refuses|fails|won't|stops) | uninstall\w* | licen[cs]e key | product key
    """,
    "crash": r"""
        crash\w* | clos(?:es|ed) (?:itself|by itself|on me|immediately) | quits | shuts (?:down|itself) | freez\w+ |
        blue screen | force clos\w+ | dies | stops (?:working|responding) |
        (?:dies|died|exits|aborts|closes|quits|crashes) (?:on|when|at|as|while|every|after|in) |
        won't (?:start|launch|open) | doesn't (?:start|launch|open)
    """,
    "performance": r"""
        slow\w* | lag\w* | takes (?:ages|forever|minutes|so long|\w+ minutes) | sluggish | stutter\w* | crawl\w* |
        hang(?:s|ing) | delay\w* | takes (?:\w+ )?(?:seconds|minutes|hours) | loading | unresponsive | buffer\w* |
        howls | takes? (?:\w+ ){0,5}(?:seconds|minutes|hours?)
    """,
    "connectivity": r"""
        wi-?fi | internet | network | router | bluetooth | connect\w* | disconnect\w* | offline | vpn | signal | drops |
        antenna | hotspot | pair(?:ed|ing)? | no (?:internet|network|signal|connection) | ethernet | 4g | 5g | bars |
        (?:line|connection|network|service|server|line) (?:is|has been|was|went) down | down since
    """,
    "hardware": r"""
        crack\w* | broken | keyboard | battery | button | spill\w* | dropped | won't (?:turn on|charge|switch on) |
        dead | screen | fan | cable | speaker | camera | port | hinge | printer | noise | loose | hot | overheat\w* |
        plug | charger | monitor | microphone | lens | paper jam | howls | projector | lamp | headphones? | headset |
        scanner | touchpad | mouse | display | motor | wheel | usb | stick
    """,
    "how_to": r"""
        how (?:do|can|to|would) | where (?:do|is|can) | can i | is it possible | turn (?:on|off|it off|that off) |
        disable | enable | switch
        off | setting\w* | change the
    """,
}
SALES = {
    "not_interested": r"""
        not interested | no,? thanks?(?: you)? |
        stop (?:calling|writing|emailing|contacting|ringing|phoning|texting|messaging|sending|bothering) |
        (?:take|remove) (?:me|us) off | leave (?:me|us) alone | unsubscribe | don't (?:call|contact|write) |
        not to (?:ring|call|write|contact|phone)\w* |
        (?:ring|call|write|phone|contact|email) (?:me|us) (?:again|any ?more) | stop it | no interest |
        not for (?:me|us) | won't change | don't need (?:any|it|this|that|one) |
        don't want (?:any|your|to be|calls|offers) | got my number
    """,
    "demo": r"""
        demo\w* | presentation | show (?:me|us) (?:how|it|the|a?round|your) | walk (?:me|us) through | walk-?through |
        in action | free trial | try it out | test drive | trial | tour of |
        see (?:it|the \w+) (?:live|working|in use) | show (?:me|us) what | presentation | webinar
    """,
    "comparison": r"""
        difference | compar\w+ | versus | vs | which (?:one|of|is better|would) | (?:decide|choose|pick|torn) between |
        better than | (?:or|than) the (?:other|cheaper|bigger|smaller|\w+ one) | pros and cons |
        [^?]*\bor (?:the |a |just )?\w+\b[^?]*\? | between the | instead of the |
        which (?:do|should|does|has|covers|\w+ (?:is|has)) | better
    """,
    "availability": r"""
        in stock | available | availability | (?:any|some) (?:\w+ )?(?:left|free) |
        free (?:on|for|at|in|that|this|next|tonight|tomorrow|from) | slots? | have you got |
        do you (?:have|still have|stock|carry) | sold out | vacan\w+ | is there (?:one|any|a|still) |
        (?:any|some) (?:[\w ]+ )?left | vacanc\w+ | pick (?:it|one|them) up | open on |
        when (?:is|are|can) [\w ]+ (?:free|available|back)
    """,
    "objection": r"""
        too (?:expensive|much|high|complicated|long|risky|dear) | expensive | not (?:so |really )?sure | afford |
        worried | concern\w* | hesita\w+ | risky | burned before | doubt\w* | locked in |
        not (?:keen|convinced|sold|comfortable) | survive | yet another | already (?:have|use|using) | worr(?:y|ies) |
        what if | (?:nobody|no one) (?:\w+ ){0,4}?(?:will|would|uses?) | afraid | risk | skeptical | sceptical |
        overpriced | pricey | steep | a lot of money | lot of money | no budget | have to (?:ask|talk) | won't sign |
        (?:run|get) (?:that|it|this) past | sign-off | approval | is a lot | a lot for |
        would(?:n't| not) (?:\w+ )?(?:use|pay|need)
    """,
    "price": r"""
        how much | prices? | costs? | quote | rates? |
        what (?:would|does|do|will) (?:it|that|i|you|a|the|this) (?:\w+ ){0,4}?(?:cost|charge|come to|set|be|pay) |
        charge for | per (?:month|seat|user|year|person) | discount | cheapest | how expensive | set (?:me|us) back |
        estimate | fees? | tariff | included? in the price | does the price
    """,
    "order": r"""
        buy | order\w* | (?:i'll|we'll) (?:have|take) | put (?:me|us) down | take (?:it|them|one|two|three|the) |
        book\w* | sign (?:me|us) up | purchase | add (?:it|one|another|two) | reserve | subscribe | get (?:me|us) |
        send (?:me|us) (?:\d+|one|two|three|the contract) | i'd like (?:\d+|one|two|three|four|a|to order) |
        for my order | book us | tickets? | send (?:another|me|us|more) | same as last time | another \d+
    """,
}
EDUCATIONAL = {
    "motivation": r"""
        giv(?:e|ing) up | stupid | hate (?:this|maths?|it) | can't do (?:this|it) | no point | what's the point |
        hopeless | (?:so |too )?bad at | never (?:going to|gonna|be able) | motivat\w+ | fail(?:ing)? everything |
        useless at | what's the use | drop out |
        i(?:'m| am) (?:so |too |just )?(?:stupid|dumb|useless|hopeless|bad|lost|rubbish) | can't go on |
        never (?:pass|learn|make) | discouraged | failed again | not (?:smart|clever|good) enough | quit |
        every(?:body|one) (?:else )?(?:\w+ ){0,4}(?:is|gets|can) | (?:faster|better|smarter|quicker) than me |
        don't feel like | pointless | can't be bothered | (?:tired|sick) of (?:it|this|studying|learning|practising) |
        for (?:weeks|months|years) and (?:it )?still
    """,
    "practice": r"""
        quiz\w* | test me | drill\w* | ask me |
        give me (?:some |a few |more |another )?(?:questions?|problems?|exercises?|sums?) |
        more (?:questions|exercises|problems) | mock | flash ?cards? | train me | examine me |
        (?:ask|give|set) me (?:\w+ )?(?:three|five|ten|a few|some|another) | practi[cs]e | practi[cs]ing
    """,
    "check_work": r"""
        check\w* | is (?:this|that|it|my \w+) (?:right|correct|ok|okay|any good) | did i (?:do|get) |
        (?:correct|right)\? | mark (?:it|this|my) | look over | my (?:answer|solution|attempt|draft|translation) |
        correct (?:it|this|my) | i got | spot (?:the|my|any) |
        is (?:this|that|my \w+) (?:still )?(?:right|correct|wrong) | did i | mistakes? | proofread | have i | grade
    """,
    "study_plan": r"""
        (?:study |revision |learning )?plan | schedule | timetable | organi[sz]e |
        (?:weeks?|days?|months?) (?:until|till|before|to go|left) | until (?:the|my) (?:exam|test) |
        (?:exam|test) (?:is )?(?:in|on) | revis\w+ | how long (?:do|will|should) | each (?:day|week) |
        where (?:do|should) i start | spread (?:it|the) | finals | where to (?:start|begin) | prepare for | catch up |
        only have (?:\w+ )?(?:weekends|evenings|days|weeks|hours)
    """,
    "homework": r"""
        homework | assignment | due (?:tomorrow|on|monday|friday) | (?:problem|question|exercise|task|number) \d+ |
        worksheet | essay | for (?:class|school) | set (?:us|as) | exercise | task | hand in | hand it in |
        stuck (?:with|on|at) | solve | problem set | i have to (?:show|prove|solve|write|find|hand) |
        for (?:tomorrow|monday|friday|next week) | (?:the|my|our) teacher (?:wants|asked|gave|says) |
        i need to (?:find|solve|write|show|prove|hand)
    """,
    "explain": r"""
        explain\w* | understand\w* | what (?:is|are|does|do|'s) | why | how (?:does|do|come|can) | mean\w* |
        difference between | confus\w+ | get (?:it|this|why|how) | teach me | help me (?:with|see) |
        tell (?:\w+ ){1,4}?apart | apart | picture | grasp | in simple terms | what's | can't see | how can |
        makes? no sense | never understood | the idea (?:of|behind)
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


HOW = re.compile(
    r"^\W*(?:how (?:do|can|would|could) i|where (?:is|are|do|did|can|has)|is it possible to|can i)\b", re.IGNORECASE
)
# What a question without any such word is taken to be about.
ASKED = {
    "customer_service": "question",
    "technical_support": "how_to",
    "sales": "availability",
    "educational": "explain",
}


def intent_after(domain: str, text: str, known: str) -> str:
    """What the user wants after this turn, given what they wanted before it."""
    found = wanted(text, INTENTS[domain], GENERAL)
    if not (found or known) and "?" in text:
        found = ASKED.get(domain, "")
    elif (
        domain == "technical_support"
        and HOW.match(text)
        and polarity(text) >= 0
        and found not in ("installation", "data_loss")
    ):
        found = "how_to"
    if not known or not found:
        return found or known
    takes_over = known in GENERAL and found not in GENERAL and (WANTS.within(text) or "?" in text)
    asks = WANTS.within(text) and found not in GENERAL and not ASIDE.within(text)
    return found if takes_over or asks else known
