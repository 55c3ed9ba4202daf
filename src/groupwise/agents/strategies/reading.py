"""Reads what a turn means in its dialogue: whether a matter is settled, and what somebody wants.

A turn is read clause by clause. What is denied, asked, supposed, wished for or somebody else's claim does not count; of
clauses that contradict each other ("it works, but …") the last one counts; praise for nothing is no praise. A bare
"yes", "no" or "thanks" means what it answers, so the assistant's turn before it is read too.
"""

import re
from collections.abc import Sequence
from typing import Literal

from groupwise.agents.strategies.registry import Signal, sentences, words_of
from groupwise.types import Message

Verdict = Literal["settled", "open", ""]
# What the assistant's last turn was: a question whether it is settled, whether there is more, whether the problem is
# still there; another question; something done or explained; something promised for later; or that nothing can be done.
LastTurn = Literal["", "settled?", "more?", "still?", "question", "done", "promised", "refused"]

CONTRAST = re.compile(
    r"[,;:]?\s+(?:but|however|although|though|except(?: that)?|yet|whereas|only that|and now|then again)\b[,:]?\s*"
    r"|;\s+",
    re.IGNORECASE,
)
QUESTION = re.compile(
    r"^\W*(?:so |and |but |well |ok(?:ay)?,? )*(?:is|are|was|were|does|do|did|has|have|had|"
    r"can|could|will|would|should|am|why|how|what|when|where|who|which)\b",
    re.IGNORECASE,
)
SUPPOSED = Signal(
    r"""
    if | unless | once | when(?:ever)? (?:it|this|that|the|you) | until | as soon as | hope\w* | hopefully | wish |
    would (?:be|have|like it) | should (?:be|work|have) | supposed to | might | maybe | perhaps | i'll
    (?:try|see|check|test|let you know|wait|give) | i will (?:try|see|check|test|let you know|wait|give) | let me
    (?:try|check|see|test) | going to try | trying (?:it|that) now | we'll see | will (?:be|get)
    (?:fixed|solved|sorted|resolved) | not sure (?:if|whether|that) | don't know (?:if|whether) | doubt | expected? |
    until now
    """,
    denied=False,
)
CLAIMED = Signal(
    r"""
    (?:you|he|she|they|your \w+|the (?:website|page|email|app|status|system|agent|technician|guy|lady)|it) (?:\w+
    )?(?:said|say|says|told|claim\w*|promised?|wrote|marked|shows?|insist\w*|assured?) | according to | marked as |
    apparently | supposedly | allegedly
    """,
    denied=False,
)
SARCASM = Signal(
    r"""
    thanks? (?:you )?(?:so much |a lot |very much )?for (?:nothing|wasting|ruining|breaking|making
    (?:it|things|me)|ignoring|the (?:useless|wasted|non|long wait)|another|no help|not) | (?:oh|well|yeah|wow|gee),?
    (?:great|brilliant|wonderful|fantastic|perfect|lovely|super|nice|thanks)\W+(?:now|another|just|so|it|that|how|you) |
    (?:just|oh) (?:great|brilliant|perfect|wonderful|fantastic|lovely) |
    (?:great|brilliant|wonderful|fantastic|lovely|perfect),? (?:just (?:great|what)|another|now
    (?:it|i|the|my|nothing)|so (?:now|i)|more) | how (?:very )?(?:helpful|useful|nice of you|convenient|wonderful) |
    (?:great|some|fine|brilliant|fantastic|nice) (?:job|help|service|support),?
    (?:you|that|guys|as|really|not|this|losing|breaking|making)\b | just what i needed | a lot of good that | much
    good (?:that|it) | yeah,? right | as if | big help | what a (?:joke|relief, not) | so much for | good luck with
    that | love (?:how|it when|waiting) | (?:really|very|so) helpful,? (?:not|as always|as usual) | well done,?
    (?:you|now|breaking) | thank you for (?:wasting|nothing|ruining)
    """,
    denied=False,
)
FAILS = Signal(
    r"""
    still (?!works|working fine|happy|good|great|a bit early)\w+ | no
    (?:luck|change|difference|success|effect|improvement|joy|use|good) | same (?:\w+
    )?(?:error|problem|thing|issue|result|message|as before|again|old) | (?:hasn't|haven't|has not|have
    not|never|not|isn't|is not|wasn't|aren't|doesn't|does not|didn't|did not|don't|won't|will
    not|can't|cannot|couldn't|hardly|barely|no longer|stopped|nothing|none of (?:it|that|this|them)) (?:\w+
    ){0,3}?(?:works?|worked|working|fixed|fix|solved?|resolved?|sorted|settled|help(?:ed|s|ful)?|arriv\w+|receiv\w+|refunded|responded?|responding|loads?|loading|opens?|opening|connect\w*|prints?|printing|turns?|starts?|starting|booting|respond\w*|changed?|came|come|gone|done|finished|answered?|satisf\w+|happy|ok|okay|all
    right|good enough|acceptable|clear|understand|here|better|login|log in|charge|charging|play|playing|yet) |
    unsolved | unresolved | unanswered | unfixed | broke(?:n)? again | (?:it's|is|are|came|come|comes|problem's)
    back(?! (?:online|up|to normal|on|working|in)) | again and again | keeps? \w+ing | worse | useless | waste of |
    pointless | gave? up | giv(?:e|ing) up | (?:i'll|i will|we'll|i'm) (?:take|taking|go|going) (?:my business |to
    )?(?:elsewhere|a competitor|somewhere else) | elsewhere | cancel(?:led|ling)? my | unacceptable | ridiculous |
    disappoint\w* | frustrat\w* | fed up | sick of | real person | manager | supervisor | lawyer | complain\w* |
    complaint | not what i (?:asked|wanted|meant|need\w*) | doesn't answer | didn't answer | missing | lost | wrong
    (?:one|item|size|again|colou?r|amount) | another (?:problem|error|issue) | new (?:problem|error|issue) |
    crash(?:es|ed|ing)? | fail(?:s|ed|ing)? | error | freez\w+ | stuck | blank | wait(?:ing|ed) (?:for
    )?(?:days|weeks|hours|months|ages|so long) | nobody | no ?one | no (?:answer|reply|response|refund|help) |
    (?:there's|there is|i have|i've|i've got|i got|get) (?:no|nothing|only) | no
    (?:sound|picture|signal|power|internet|image|connection|reaction)
    """,
    denied=False,
)
# "No more errors", "it doesn't crash any more": a problem that is gone.
GONE = Signal(
    r"""
    no (?:more|further|other) (?:\w+
    )?(?:errors?|problems?|issues?|crash\w*|complaints?|questions?|messages?|trouble) | without (?:any |a |further
    )?(?:errors?|problems?|issues?|trouble|crash\w*|a hitch) | (?:doesn't|does not|hasn't|has not|isn't|not|no
    longer|stopped|didn't|haven't had (?:a|any)|never) (?:\w+
    ){0,2}?(?:crash\w*|freez\w*|frozen|fail\w*|stuck|missing|lost|slow|errors?|problems?|issues?|broken|blank) |
    (?:problem|issue|error|noise|message|bug|crash\w*|lag|leak)s? (?:is|are|has|have|seems?|seem to be|has been|have
    been) (?:gone|solved|fixed|resolved|sorted|disappeared|stopped|over|history) |
    (?:error|problem|issue|noise|message|leak)s? (?:disappeared|went away|vanished|stopped)
    """,
    denied=False,
)
SETTLED = Signal(
    r"""
    (?:it|that|this|everything|all|which|now|one|they|those|both) (?:\w+ )?works?(?:
    (?:now|again|fine|perfectly|great|like a charm|well|as expected))? | works?
    (?:now|again|fine|perfectly|great|like|well|a treat|as|for me) | it worked | worked (?:perfectly|fine|like|for
    me|a treat|great|now)? | working (?:now|again|fine|perfectly|great|well|like) |
    (?:is|it's|are|all|got|been|now|was|finally) (?:\w+ )?(?:fixed|solved|resolved|sorted|settled|done|sorted
    out|taken care of|cleared up) | fixed (?:it|that|now|the)? | solved (?:it|that|the|my)? |
    (?:problem|issue|mystery|case) (?:solved|closed) | sorted(?: it)?(?: out)? | (?:that|which|this|it|you) (?:really
    |totally |just |has |have |actually )?(?:did it|did the trick|helped?(?: (?:me|a lot|so much))?|helps|solves?
    (?:it|my|the|that)?|solved (?:it|my|the)?|fixed (?:it|my|the)?|answers? (?:it|my|everything|that)|answered
    (?:it|my|everything)|was it|clears? (?:it|that|things) up|cleared (?:it|that|things) up) | back (?:online|up|to
    normal|on|in business|working)(?: and running)? | up and running | (?:i'm|we're|am|are|i am) (?:all set|all
    good|good now|sorted|good to go|happy (?:now|with)|in|back in|logged in|able to|satisfied) | all
    (?:good|set|sorted|is well|clear|done) | good to go | that(?:'s|is|was|would be|will be)? (?:all|everything|it)(?:
    (?:i needed|for now|for today|then|from me|thanks?|thank you|i wanted)\b.*)? | nothing (?:else|more|further) |
    (?:that's |is |was )?(?:exactly|just) what i (?:needed|wanted|was looking for) | no (?:more|further|other)
    questions? | (?:you )?(?:saved|made) (?:me|my (?:day|life|week|evening)) | life ?saver | (?:has |have |it |just
    |finally |they |now )?(?:arrived|came through|come through|showed up|turned up|got here|been delivered|went
    through|gone through) | (?:i |i've |we |have |has |finally |just )?(?:got|received|have) (?:it|them|the
    (?:refund|money|parcel|package|replacement|email|code|confirmation|order|item|invoice|new one)|my
    (?:money|refund|parcel|package|order|replacement|new \w+))(?: (?:now|today|back|this morning|yesterday))? |
    (?:can|could) (?:log ?in|access|print|connect|see it|open it|use it|get in|send|play|hear) (?:\w+
    ){0,3}?(?:now|again|fine) | can (?:now|finally) \w+ | (?:we can|you can|please|feel free to) close
    (?:this|the|it|my)(?: \w+)? | makes (?:perfect |total |a lot of )?sense (?:now)? | i (?:understand|see|get it)
    now | now i (?:understand|see|get it) | problem gone | there (?:it|they) (?:is|are|goes?) | found
    (?:it|them|him|her) | (?:it's|is|they're|are|we're|i'm|that's)
    (?:alive|up|green|loading|printing|playing|showing|online|charging|visible|perfect|brilliant|great) | as we
    speak | that was it | shows? up(?: now)? | (?:loads?|prints?|opens?|plays?|boots?|starts|syncs?|connects?)
    (?:now|again|fine|instantly|perfectly|right away|in seconds) | just (?:came|arrived|got|landed|popped) (?:\w+
    )?(?:through|in|up|it)? | (?:ordered|booked|paid|signed up|bought|subscribed|placed it) | i'll take
    (?:it|them|one|two|that|the \w+) | we'll take (?:it|them|one|two|that|the \w+) | sign (?:me|us) up | now i
    (?:can|know|understand) | (?:i )?(?:get|got) it now | clicked | so it's (?:just|basically|like) | makes sense |
    exactly what | that's what i (?:needed|wanted|meant) | took care of (?:it|that|everything) | (?:as )?good as new |
    like new | smooth(?:ly)? | runs (?:fine|well|smoothly|perfectly|again)
    """
)
THANKS = Signal(
    r"""
    thanks? | thank you | thx | cheers | appreciate\w* | grateful | ta | great | awesome | super | lovely |
    wonderful | cool | nice one
    """
)
NO_TROUBLE = Signal(
    "no (?:problem|problems|trouble|worries|rush|hurry) | don't worry | not bad | can't complain", denied=False
)
YES = re.compile(
    r"^\W*(?:yes|yeah|yep|yup|it does|it is|it did|it has|indeed|absolutely|correct|right|"
    r"sure(?: did| does)?|definitely|all good)\b",
    re.I,
)
NO = re.compile(
    r"^\W*(?:no|nope|nah|not really|not yet|it doesn't|it didn't|it isn't|it hasn't|nothing|none|not at all)\b",
    re.I,
)
ASKS_SETTLED = Signal(
    r"""
    (?:does|did|is|has|have) (?:that|this|it|everything|the
    \w+|all|you)[^?]{0,40}(?:solve|help|work|working|fix|fixed|answer|sorted|solved|resolved|ok|okay|all
    right|settled|gone|arrived|better|clear|make sense|happy|satisf\w+)[^?]*\? | are you (?:all
    set|happy|satisfied|able to)[^?]*\? | (?:problem|issue) (?:solved|resolved|fixed)\? | can (?:you|i)
    (?:now|close|consider)[^?]*\?
    """,
    denied=False,
)
ASKS_MORE = Signal(
    r"""
    (?:anything|something) else[^?]*\? | (?:any|more|other|further) (?:other |more |further )?questions?\? | else i
    can[^?]*\? | can i help you with[^?]*\? | help(?: you)? with anything[^?]*\?
    """,
    denied=False,
)
ASKS_STILL = Signal(
    r"(?:still|any more|again|another)[^?.!]{0,60}\? | (?:any|the) (?:errors?|problems?|issues?|trouble)[^?.!]{0,30}\?",
    denied=False,
)
REFUSED = Signal(
    r"""
    unfortunately | i'm afraid | i am afraid | (?:we|i) (?:can't|cannot|can not|are unable|am unable|are not
    able|don't|do not) | not possible | unable to | no way to | there is nothing | isn't available | is not
    available | against our policy | not eligible | out of stock | won't be able
    """,
    denied=False,
)


PROMISED = Signal(
    r"""
    (?:i'll|i will|we'll|we will|i'm going to|let me|someone|somebody|a
    (?:colleague|technician|specialist|manager)|they|our (?:team|engineers?|colleagues?)) (?:\w+
    ){0,3}?(?:check|ask|call|write|email|mail|get back|look into|find out|forward|pass|escalate|contact|be in
    touch|let you know|investigate|see what|follow up|raise|report|reply|ring) | within (?:the next )?(?:\w+
    )?(?:hours?|days?|weeks?) | by (?:tomorrow|monday|tuesday|wednesday|thursday|friday|the end) | (?:is|are)
    (?:working|looking) (?:on|into) | as soon as | in (?:a few|two|three|five|\d+) (?:hours?|days?|weeks?) | ticket
    """,
    denied=False,
)
ACCEPTS = Signal(
    r"""
    ok(?:ay)? | cool | right | fine | sure | got it | ah+ | oh+ | alright | all right | noted | will do | sounds
    (?:good|great|fair) | works for me | sweet | nice | good | fab | deal | makes sense | yep | yes | yeah | aha | i
    see | understood | fair enough | neat | that's (?:good|great|clear|fine|helpful|better|it|right|the one) | clear |
    brill | phew | finally | excellent | well done
    """
)
GIVES_UP = Signal(
    r"""
    whatever | if you say so | sigh | never ?mind | forget it | (?:ask|try|go to|find)
    (?:someone|somebody|somewhere|another) (?:else)? | unbelievable | seriously | did you even | hello\? | are you
    (?:even|listening|serious|kidding|a bot) | not listening | (?:i )?(?:already|just)
    (?:told|said|did|tried|explained|wrote) | (?:that's|this is|that is) not (?:what|the|my|it|an?
    answer|helpful|good|true|right|fair) | for the (?:third|second|fourth|last|umpteenth) time | again\? | don't
    bother | i'm done | leave it | you keep | stop sending | doesn't make sense | makes no sense | no idea
    (?:what|how|why) | lost me | still lost | more confused | bye\b.*\bnever | i'll do it myself | that(?:'s|is)
    it\? | is that (?:it|all)\? | wow\. | typical | as usual | every time | once again
    """,
    denied=False,
)


def contrasted(text: str) -> list[str]:
    """The clauses of a turn, divided where it says "but": the later one is what counts."""
    return [part for sentence in sentences(text) for part in CONTRAST.split(sentence) if part and part.strip()]


def is_supposed(clause: str) -> bool:
    """Whether a clause is a question, a condition or a wish, and not what somebody does or finds."""
    return clause.rstrip().endswith("?") or SUPPOSED.within(clause)


def last_turn(text: str) -> LastTurn:
    """What kind of turn an assistant's was, for what a "yes" or a "thanks" after it means."""
    closing = " ".join(sentences(text)[-2:])
    if "?" in closing:
        if ASKS_MORE.within(closing):
            return "more?"
        if ASKS_STILL.within(closing) and not ASKS_SETTLED.within(closing):
            return "still?"
        return "settled?" if ASKS_SETTLED.within(closing) else "question"
    if REFUSED.within(text):
        return "refused"
    return "promised" if PROMISED.within(closing) else "done" if text.strip() else ""


def verdict(text: str, before: LastTurn = "") -> Verdict:
    """Whether somebody considers their matter settled, by what they say and what they answer; "" if it does not say."""
    found = [reading for sentence in sentences(text) for reading in _clauses(sentence)]
    sarcastic = [sentence for sentence in sentences(text) if SARCASM.within(sentence)]
    # "Great, now it works" begins like "Great, now it is gone".
    if any(not SETTLED.within(sentence) or FAILS.within(sentence) for sentence in sarcastic):
        return "open"
    decided = [reading for reading in found if reading]
    if GIVES_UP.within(text) and decided[-1:] != ["settled"]:
        return "open"
    if decided:
        return decided[-1]
    answered = _answered(text, before)
    if answered:
        return answered
    return _accepted(text, before)


CONFIRMS = Signal(
    r"""
    exactly | correct | that's (?:right|it|correct|the idea) | spot on | well done | you(?:'ve| have)? got it |
    perfect | nailed it | yes,? that's | good job | right!
    """
)
COMPLETED = Signal(
    r"""
    done | (?:i've|i have|we've|we have) (?:now |just |already )?(?:\w+ed|sent|made|put|set|taken|given|booked) |
    (?:is|are|it's|all|has been|have been|you're) (?:now |all )?(?:booked|sent|refunded|cancelled|removed|updated) |
    (?:is|are|it's|has been|have been|you're) (?:now |all )?(?:changed|confirmed|reserved|ordered|fixed|unlocked|set) |
    booked | confirmed
    """
)


def is_resolved(dialogue: Sequence[Message]) -> bool:
    """Whether the user's need was met by the end of a dialogue.

    The last turn that says so counts. An honest "no" that is accepted answers a question, but meets no request. If the
    assistant has the last word, it settles the matter by confirming an answer or by reporting what was done.
    """
    before: LastTurn = ""
    found: Verdict = ""
    asked = next((words_of(m) for m in dialogue if m["role"] == "user"), "")
    only_asks = asked.rstrip().endswith("?") and not REQUESTS.within(asked)
    for message in dialogue:
        text = words_of(message)
        if message["role"] == "assistant":
            before = last_turn(text)
        elif message["role"] == "user":
            answered = "done" if before == "refused" and only_asks else before
            found = verdict(text, answered) or found
    last = dialogue[-1] if dialogue else {"role": "", "content": ""}
    if last["role"] == "assistant" and before in ("done", "more?", "settled?"):
        text = words_of(last)
        found = "settled" if CONFIRMS.within(text) or COMPLETED.within(text) else found
    return found == "settled"


REQUESTS = Signal("(?:can|could|would|will) you | i (?:want|need|would like) | i'd like | please", denied=False)


def _accepted(text: str, before: LastTurn) -> Verdict:
    """What thanks and "okay" say: they close a matter if something was done or explained.

    Not if it was refused, or promised for later; and who asks on has not finished.
    """
    if "?" in text or SUPPOSED.within(text):
        return "open" if "?" in text and before in ("done", "promised", "refused", "settled?") else ""
    if not (THANKS.within(text) or ACCEPTS.within(text)):
        return ""
    if before in ("promised", "refused"):
        return "open"
    return "settled" if before in ("settled?", "more?", "done") else ""


def _answered(text: str, before: LastTurn) -> Verdict:
    if before in ("settled?", "still?") and YES.match(text):
        return "settled" if before == "settled?" else "open"
    if before in ("settled?", "still?") and NO.match(text):
        return "open" if before == "settled?" else "settled"
    return "settled" if before == "more?" and NO.match(text) and "?" not in text else ""


def _clauses(sentence: str) -> list[Verdict]:
    asks = sentence.rstrip().endswith("?")
    return [_clause(part, asks) for part in CONTRAST.split(sentence) if part and part.strip()]


def _clause(clause: str, asks: bool) -> Verdict:
    """What one clause says about the matter."""
    plain = NO_TROUBLE.pattern.sub(" ", clause)
    gone = GONE.within(plain)
    fails = FAILS.within(GONE.pattern.sub(" ", plain))
    if asks or QUESTION.match(plain):
        return "open" if fails else ""
    if fails:
        return "open"
    if SUPPOSED.within(plain) or CLAIMED.within(plain):
        # "I'll try it" and "it should work" leave the matter open.
        return "open" if SETTLED.within(plain) or TRIES.within(plain) else ""
    return "settled" if gone or SETTLED.within(plain) or PRAISE.within(plain) else ""


PRAISE = Signal("perfect | excellent | brilliant")
TRIES = Signal("try | trying | check | test | see | let you know", denied=False)
WANTS = Signal(
    r"""
    i (?:just |really |only |still )?(?:want|need|would like|'d like|wish|demand|require|asked? for|am asking for|am
    looking for) | i'd (?:like|rather|prefer) | please | can (?:you|i|we) | could (?:you|i|we) | how (?:do|can|could)
    (?:i|we) | (?:want|need|like|asking|trying|looking) (?:to|for) | where is | where's | when (?:will|do|does|is) |
    is it possible | help me | give me | send me
    """,
    denied=False,
)
DENIED = Signal(
    r"""
    (?:don't|do not|didn't|not|never|no longer|wouldn't|isn't|won't) (?:\w+
    ){0,3}?(?:want|need|ask\w*|about|like|looking|here for|interested|mean) | instead of | rather than | not
    (?:a|an|the|about|for|my) | no need (?:for|to) | without | besides | other than | forget (?:the|about)
    """,
    denied=False,
)


def wanted(text: str, choices: dict[str, Signal]) -> str:
    """Which of some matters a turn is about: one that is asked for before one that is mentioned, never a denied one.

    Of several that are equally wanted, the first in the order of `choices`.
    """
    parts = [
        part for sentence in sentences(text) for part in re.split(r",\s+|;\s+|\s+but\s+", sentence) if part.strip()
    ]
    best: Sequence[tuple[int, int, str]] = [
        (0 if WANTS.within(part) else 1, order, name)
        for part in parts
        for order, (name, signal) in enumerate(choices.items())
        if signal.within(part) and not _is_denied(part, signal)
    ]
    return min(best)[2] if best else ""


def _is_denied(part: str, signal: Signal) -> bool:
    """Whether a clause mentions something only to say that it is not wanted."""
    denials = [match.start() for match in DENIED.found(part)]
    return bool(denials) and all(min(denials) <= match.start() for match in signal.found(part))
