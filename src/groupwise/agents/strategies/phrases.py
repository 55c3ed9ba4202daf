"""The phrases by which turns of a dialogue are read, and what each means; `reading` puts them together.

A line inside a phrase may break after a space or a `|`.
"""

import re

from groupwise.agents.strategies.registry import Signal

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
    would (?:be|have|like it) | should (?:be|work|have) | supposed to | might | maybe | perhaps |
    i'll (?:try|see|check|test|let you know|wait|give) | i will (?:try|see|check|test|let you know|wait|give) |
    let me (?:try|check|see|test) | going to try | trying (?:it|that) now | we'll see |
    will (?:be|get) (?:fixed|solved|sorted|resolved) | not sure (?:if|whether|that) | don't know (?:if|whether) |
    doubt | expected? | until now
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
    thanks? (?:you )?(?:so much |a lot |very much )?for (?:nothing|wasting|ruining|breaking|making (?:it|things|me)|
    ignoring|the (?:useless|wasted|non|long wait)|another|no help|not (?:helping|answering|coming|calling|telling|
    listening|replying|reading|caring)) |
    (?:oh|well|yeah|wow|gee),? (?:great|brilliant|wonderful|fantastic|perfect|lovely|super|nice|thanks)\W+(?:now|
    another|just|so|it|that|how|you) | (?:just|oh) (?:great|brilliant|perfect|wonderful|fantastic|lovely) |
    (?:great|brilliant|wonderful|fantastic|lovely|perfect),? (?:just (?:great|what)|another|now (?:it|i|the|my|
    nothing)|so (?:now|i)|more) | how (?:very )?(?:helpful|useful|nice of you|convenient|wonderful) |
    (?:great|some|fine|brilliant|fantastic|nice) (?:job|help|service|support),? (?:you|that|guys|as|really|not|this|
    losing|breaking|making)\b | just what i needed | a lot of good that | much good (?:that|it) | yeah,? right |
    as if | big help | what a (?:joke|relief, not) | so much for | good luck with that |
    love (?:how|it when|waiting) | (?:really|very|so) helpful,? (?:not|as always|as usual) |
    well done,? (?:you|now|breaking) | thank you for (?:wasting|nothing|ruining)
    """,
    denied=False,
)

FAILS = Signal(
    r"""
    still (?!works|working fine|happy|good|great|a bit early)\w+ |
    no (?:luck|change|difference|success|effect|improvement|joy|use|good) |
    same (?:\w+ )?(?:error|problem|thing|issue|result|message|as before|again|old) |
    (?:hasn't|haven't|has not|have not|never|not|isn't|is not|wasn't|aren't|doesn't|does not|didn't|did not|don't|
    won't|will not|can't|cannot|couldn't|hardly|barely|no longer|stopped|nothing|none of (?:it|that|this|them))
    (?:\w+ ){0,3}?(?:works?|worked|working|fixed|fix|solved?|resolved?|sorted|settled|help(?:ed|s|ful)?|arriv\w+|
    receiv\w+|refunded|responded?|responding|loads?|loading|opens?|opening|connect\w*|prints?|printing|turns?|
    starts?|starting|booting|respond\w*|changed?|came|come|gone|done|finished|answered?|satisf\w+|happy|ok|okay|all
    right|good enough|acceptable|clear|understand|here|better|login|log in|charge|charging|play|playing|yet) |
    unsolved | unresolved | unanswered | unfixed | broke(?:n)? again |
    (?:it's|is|are|came|comes|problem's|has come|have come) back(?! (?:online|up|to normal|on|working|in)) |
    again and again | keeps? \w+ing | worse | gave? up | giv(?:e|ing) up |
    (?:i'll|i will|we'll|i'm) (?:take|taking|go|going) (?:my business |to )?(?:elsewhere|a competitor|somewhere
    else) | elsewhere | cancel(?:led|ling)? my | real person | manager | supervisor | lawyer |
    not what i (?:asked|wanted|meant|need\w*) | doesn't answer | didn't answer | missing | lost |
    wrong (?:one|item|size|again|colou?r|amount) | another (?:problem|error|issue) | new (?:problem|error|issue) |
    crash(?:es|ed|ing)? | fail(?:s|ed|ing)? | error | freez\w+ | stuck | blank |
    wait(?:ing|ed) (?:for )?(?:days|weeks|hours|months|ages|so long) | nobody | no ?one |
    no (?:answer|reply|response|refund|help) |
    (?:there's|there is|i have|i've|i've got|i got|get) (?:no|nothing|only) |
    no (?:sound|picture|signal|power|internet|image|connection|reaction)
    """,
    denied=False,
)

GRUMBLES = Signal(
    r"""
    useless | waste of | wasted | pointless | unacceptable | ridiculous | disappoint\w* | frustrat\w* | fed up |
    sick of | complain\w* | complaint | disgrace\w* | shame on
    """,
    denied=False,
)

# "No more errors", "it doesn't crash any more": a problem that is gone.
GONE = Signal(
    r"""
    no (?:more|further|other) (?:\w+ )?(?:errors?|problems?|issues?|crash\w*|complaints?|questions?|messages?|
    trouble) | without (?:any |a |further )?(?:errors?|problems?|issues?|trouble|crash\w*|a hitch) |
    (?:doesn't|does not|hasn't|has not|isn't|not|no longer|stopped|didn't|haven't had (?:a|any)|never) (?:\w+
    ){0,2}?(?:crash\w*|freez\w*|frozen|fail\w*|stuck|missing|lost|slow|errors?|problems?|issues?|broken|blank) |
    (?:problem|issue|error|noise|message|bug|crash\w*|lag|leak)s? (?:is|are|has|have|seems?|seem to be|has been|have
    been) (?:gone|solved|fixed|resolved|sorted|disappeared|stopped|over|history) |
    (?:error|problem|issue|noise|message|leak)s? (?:disappeared|went away|vanished|stopped)
    """,
    denied=False,
)

SETTLED = Signal(
    r"""
    (?:it|that|this|everything|all|which|now|one|they|those|both) (?:\w+ )?works?(?: (?:now|again|fine|perfectly|
    great|like a charm|well|as expected))? | works? (?:now|again|fine|perfectly|great|like|well|a treat|as|for me) |
    it worked | worked (?:perfectly|fine|like|for me|a treat|great|now)? |
    working (?:now|again|fine|perfectly|great|well|like) |
    (?:is|it's|are|all|got|been|now|was|finally) (?:\w+ )?(?:fixed|solved|resolved|sorted|settled|done|sorted out|
    taken care of|cleared up) | fixed (?:it|that|now|the)? | solved (?:it|that|the|my)? |
    (?:problem|issue|mystery|case) (?:solved|closed) | sorted(?: it)?(?: out)? |
    (?:that|which|this|it|you|that one|this one) (?:really |totally |just |has |have |actually )?(?:did it(?! again)|
    did the (?:trick|job)|helped?(?: (?:me|a lot|so much))?|helps|solves? (?:it|my|the|that)?|solved (?:it|my|the)?|
    fixed (?:it|my|the)?|answers? (?:it|my|everything|that)|answered (?:it|my|everything)|was it|clears? (?:it|that|
    things) up|cleared (?:it|that|things) up) | back (?:online|up|to normal|on|in business|working)(?: and running)? |
    up and running |
    (?:i'm|we're|am|are|i am) (?:inside|all set|all good|good now|sorted|good to go|happy (?:now|with)|in(?= now|
    [.!,]|$)|back in|logged in|able to|satisfied) | all (?:good|set|sorted|is well|clear|done) | good to go |
    that(?:'s|is|was|would be|will be)? (?:all|everything|it)(?: (?:i needed|for now|for today|then|from me|thanks?|
    thank you|i wanted)\b.*)? | nothing (?:else|more|further) |
    (?:that's |is |was )?(?:exactly|just) what i (?:needed|wanted|was looking for) |
    no (?:more|further|other) questions? | (?:you )?(?:saved|made) (?:me|my (?:day|life|week|evening)) | life ?saver |
    (?:has |have |it |just |finally |they |now )?(?:arrived|landed|came through|come through|showed up|turned up|got
    here|been delivered|went through|gone through) |
    (?:i |i've |we |have |has |finally |just )?(?:got|received|have) (?:it|them|the (?:refund|money|parcel|package|
    replacement|email|code|confirmation|order|item|invoice|new one)|my (?:money|refund|parcel|package|order|
    replacement|new \w+))(?: (?:now|today|back|this morning|yesterday))? |
    (?:can|could) (?:log ?in|access|print|connect|see it|open it|use it|get in|send|play|hear) (?:\w+ ){0,3}?(?:now|
    again|fine) | can (?:now|finally) \w+ | (?:we can|you can|please|feel free to) close (?:this|the|it|my)(?: \w+)? |
    makes (?:perfect |total |a lot of )?sense (?:now)? | i (?:understand|see|get it) now |
    now i (?:understand|see|get it) | problem gone | there (?:it|they) (?:is|are|goes?) | found (?:it|them|him|her) |
    (?:it's|is|they're|are|we're|i'm|that's) (?:alive|up|green|loading|printing|playing|showing|online|charging|
    visible|perfect|brilliant|great) | as we speak | that was it | shows? up(?: now)? |
    (?:loads?|prints?|opens?|plays?|boots?|starts|syncs?|connects?) (?:now|again|fine|instantly|perfectly|right away|
    in seconds) | just (?:came|arrived|got|landed|popped) (?:\w+ )?(?:through|in|up|it)? |
    (?:ordered|booked|paid|signed up|bought|subscribed|placed it) | i'll take (?:it|them|one|two|that|the \w+) |
    we'll take (?:it|them|one|two|that|the \w+) | sign (?:me|us) up | now i (?:can|know|understand) |
    (?:i )?(?:get|got) it now | clicked | so it's (?:just|basically|like) | makes sense | exactly what |
    that's what i (?:needed|wanted|meant) | took care of (?:it|that|everything) | (?:as )?good as new | like new |
    settles (?:it|that|(?:the|my) \w+) | (?:it|that|they) holds? | came (?:yesterday|today|this morning|within) |
    (?:exactly|just) the (?:thing|one) | no reason (?:not )?to wait |
    send (?:me|us) (?:the|a) (?:contract|agreement|paperwork) | now i'll (?:never|always) |
    (?:on to|give me|bring on) the next | (?:got|received) the \w+ | (?:taking|take) (?:that|it|this)(?: one)? |
    where do (?:i|we) (?:sign|pay) | smooth(?:ly)? | runs (?:fine|well|smoothly|perfectly|again)
    """
)

THANKS = Signal(
    r"""
    thanks? | thank you | thx | cheers | appreciate\w* | grateful | ta | great | awesome | super | lovely |
    wonderful | cool | nice one
    """
)

NO_TROUBLE = Signal(
    r"""
    (?:i|we|i've|we've) (?:was|were|been) missing | no (?:problem|problems|trouble|worries|rush|hurry) | don't worry |
    not bad | can't complain
    """,
    denied=False,
)

YES = re.compile(
    r"^\W*(?:yes|yeah|yep|yup|(?:it|i|we|they|he|she|that) (?:does|is|did|has|do|am|are|have|can)|indeed|"
    r"absolutely|correct|right|"
    r"sure(?: did| does)?|definitely|all good)\b",
    re.I,
)

NO = re.compile(
    r"^\W*(?:no|nope|nah|never|not once|not really|not yet|it doesn't|it didn't|it isn't|it hasn't|"
    r"nothing|none|not at all)\b",
    re.I,
)

MORE = re.compile(r"^\W*(?:actually|yes|yeah|well|there is|one more|in fact)\b", re.I)

ASKS_SETTLED = Signal(
    r"""
    (?:does|did|is|has|have) (?:that|this|it|everything|the \w+|all|you)[^?]{0,40}(?:solve|help|work|working|fix|
    fixed|answer|sorted|solved|resolved|ok|okay|all right|settled|gone|arrived|better|clear|make sense|happy|
    satisf\w+)[^?]*\? | are you (?:all set|happy|satisfied|able to)[^?]*\? |
    (?:problem|issue) (?:solved|resolved|fixed)\? | can (?:you|i) (?:now|close|consider)[^?]*\?
    """,
    denied=False,
)

ASKS_MORE = Signal(
    r"""
    (?:anything|something) else[^?]*\? | (?:any|more|other|further) (?:other |more |further )?questions?\? |
    else i can[^?]*\? | can i help you with[^?]*\? | help(?: you)? with anything[^?]*\?
    """,
    denied=False,
)

ASKS_STILL = Signal(
    r"""
    (?:still|any more)[^?.!]{0,60}\? | any \w+ (?:since|left|now)[^?.!]{0,30}\? |
    did (?:it|that|they) (?:crash|fail|freeze|stop|happen|drop|disconnect)[^?.!]{0,30}\? |
    (?:any|the|another) (?:errors?|problems?|issues?|trouble|message)[^?.!]{0,30}\? |
    (?:error|problem|issue|trouble|message)[^?.!]{0,20} again\?
    """,
    denied=False,
)

REFUSED = Signal(
    r"""
    unfortunately | i'm afraid | i am afraid |
    (?:we|i) (?:can't|cannot|can not|are unable|am unable|are not able|don't|do not) | not possible | unable to |
    no way to | there is nothing | isn't available | is not available | against our policy | not eligible |
    out of stock | won't be able
    """,
    denied=False,
)

# What will be, is not yet; what will not be any more is part of what was done.
PROMISED = Signal(
    r"""
    \w+(?:'ll| will| is going to| are going to|'m going to) (?!(?:not|no|never|explain|show|tell|say|start|help|work|
    do|see| find|need|have to|notice|get no|hear no)\b)\w+ | let me (?:check|ask|look|find|see|call) |
    within (?:the next )?(?:\w+ )?(?:hours?|days?|weeks?) |
    by (?:tomorrow|tonight|monday|tuesday|wednesday|thursday|friday|saturday|sunday|the end) |
    (?:is|are|am|i'm|we're) (?:working|looking|asking|checking|chasing)(?: \w+)? | as soon as |
    plans? (?:to|a|an|for) | planned for | scheduled for | next (?:week|month|quarter|year) |
    in (?:about )?(?:a|a few|two|three|five|\d+) (?:hours?|days?|weeks?) | (?:i'd|i would) have to (?:ask|check|look)
    """,
    denied=False,
)

HANDED_ON = Signal(
    r"""
    (?:i've|i have|we've|we have|i|we) (?:just |now )?(?:forwarded|passed|escalated|raised|reported|opened|logged|
    filed|marked|flagged)(?! (?:the|your) (?:payment|money|refund)) | as soon as |
    once (?:it|that|this|the|we|they|your) | connecting you | transferring you | putting you through |
    ticket (?:number|has been|is)
    """,
    denied=False,
)

ACCEPTS = Signal(
    r"""
    ok(?:ay)? | cool | right | fine | sure | got it | ah+ | oh+ | alright | all right | noted | will do |
    sounds (?:good|great|fair) | works for me | sweet | nice | good | fab | deal | makes sense | yep | yes | yeah |
    aha | i see | understood | fair enough | neat | that's (?:good|great|clear|fine|helpful|better|it|right|the one) |
    clear | brill | phew | finally | excellent | well done
    """
)

GIVES_UP = Signal(
    r"""
    whatever | if you say so | sigh | never ?mind | forget it |
    (?:ask|try|go to|find) (?:someone|somebody|somewhere|another) (?:else)? | unbelievable | seriously |
    did you even | hello\? | are you (?:even|listening|serious|kidding|a bot) | not listening |
    (?:i )?(?:already|just) (?:told|said|did|tried|explained|wrote) |
    (?:that's|this is|that is) not (?:what|the|my|it|an? answer|helpful|good|true|right|fair) |
    for the (?:third|second|fourth|last|umpteenth) time | again\? | don't bother | easy for you |
    talking to a (?:machine|robot|bot|wall) | (?:as )?i said | i'm done | leave it | you keep | stop sending |
    doesn't make sense | makes no sense | no idea (?:what|how|why) | lost me | still lost | more confused |
    bye\b.*\bnever | i'll do it myself | that(?:'s|is) it\? | is that (?:it|all)\? | wow\. | typical | as usual |
    every time | once again
    """,
    denied=False,
)

REGRETS = Signal("sorry(?! (?:about|for|to|that)) | afraid | unfortunately | regret", denied=False)

UNAVAILABLE = Signal(
    r"""
    sold out | out of (?:stock|print) | fully booked | full | taken | gone | none left | not any ?more | no longer |
    discontinued | exclud\w+ | not covered | impossible | non-\w+ |
    (?:no|not|n't|can't|cannot|don't|doesn't|isn't|aren't|won't)\b[^.!?]* | \w+n't\b[^.!?]* | only
    """,
    denied=False,
)

NEVER = Signal(
    r"""
    sold out | out of (?:stock|print) | fully booked | discontinued | (?:not|no|none|n't)\b[^.!?]* any ?more |
    cannot be \w+ed
    """,
    denied=False,
)

OFFERS = Signal(
    r"""
    (?:shall|should|may|can) (?:i|we) | would you (?:like|prefer|rather) | do you want | which |
    what (?:is|was|date| size|colou?r|kind|made) | who | whose | how many | how much
    """,
    denied=False,
)

ASKS_RESULT = Signal(
    r"""
    (?:could|can|would) you (?:please )?(?:see|check|look|confirm|verify|tell me)\b[^?]*\? |
    how (?:is|does|are|do|long does|did)\b[^?]*\? |
    (?:is|are|does|do|did|has|have|was|can)\b[^?]{0,60}\b(?:there|now|again|suit|fit|show|dry|open| load|work|
    arrived?|come|came|back|better|good)\b[^?]*\?
    """,
    denied=False,
)

# A step that the user is to take.
STEP = re.compile(
    r"^(?:\d+[.)]\s*|[-*]\s*)?(?:(?:first|next|now|then|in that case),? |please |could you |can you |"
    r"you could |you can |"
    r"let's |i suggest (?:that )?you |close: )*(?:try|restart|reboot|check|open|update|reinstall|unplug|"
    r"plug|clear|reset|"
    r"run|press|go to|make sure|turn|disconnect|connect|remove|replace|install|disable|enable|close|hold|"
    r"keep|log|delete|"
    r"download|switch|verify|set|move|drag|choose|pick|click|tap|swipe|look|use|type|enter|select|put|"
    r"take|swap|change|"
    r"long-press|scroll|hit|start|stop|add|in (?:the )?\w+,|settings\b|under \w+,)\b|\bplease \w+ "
    r"(?:the|your|it|both|in|to|from)\b|:\s(?:switch|choose|press|run|set|turn|click|tap)\b",
    re.IGNORECASE,
)

CORRECTS = Signal(
    r"""
    not quite | almost | not exactly | close,? but | that's not (?:it|right) | look(?: at (?:that|it))? again |
    try again
    """,
)

# Put off: nothing was tried yet. Not decided: nothing was agreed.
LATER = Signal(
    r"""
    tomorrow | tonight | later | in the (?:morning|evening|afternoon) |
    on (?:mon|tues|wednes|thurs|fri|satur|sun)day | ask me | next (?:week|month|time|monday) |
    (?:at|over|on) the weekend | this weekend | when i(?:'m| am| get) | afterwards | carry on | will do |
    i'll tell you | looking forward | talk soon | report back |
    (?:i'll|i will|will) (?:wait|report|let you know|try|see| check|do (?:that|it)|give it a (?:go|try)) |
    let me (?:check|try|see) | we'll see
    """,
    denied=False,
)

UNDECIDED = Signal(
    r"""
    think (?:about it|it over) | (?:have|need|want|like) to (?:ask|talk|check|think|consult|sleep) | sleep on it |
    not (?:sure| convinced|ready) | we'll see | let me think | maybe | perhaps | i'd want | only if
    """,
    denied=False,
)

CLOSES = Signal(
    r"""
    you too | same to you | likewise | (?:good)?bye | take care | see you | have a (?:nice|good|great|lovely) \w+
    """,
)

PRAISED = re.compile(
    r"^\W*(?:(?:oh|well|wow|just|so),? )*(?:great|brilliant|wonderful|fantastic|perfect|lovely|super|nice|"
    r"thanks|thank you|"
    r"cheers|congratulations)(?: a (?:lot|bunch|million)| so much| very much)?\W+(?P<rest>.+)",
    re.IGNORECASE,
)

CONFIRMS = re.compile(
    r"^\W*(?:(?:yes|yep|oh),? )?(?:that's |you are |you're )?(?:right|correct|exactly|perfect|well done|"
    r"spot on|it|the idea|"
    r"very good|excellent|good job|nailed it|bingo|all (?:right|correct))\b|\b(?:well done|correct|"
    r"spot on|you(?:'ve| have)? got it)\b"
    r"|^\W*(?:beautiful|great|lovely|brilliant|bravo|nice|good|super|wonderful|there you go)\W*$",
    re.IGNORECASE,
)

# "It has been moved", "we replaced it", "Saved.": what somebody reports as done.
COMPLETED = Signal(
    r"""
    done |
    (?:has|have|\w+'ve|is|are|it's|you're|was|were) (?:now |just |already |all )*(?:been )?(?:booked|sent|made|put|
    set| taken|given|paid|done|found|closed|(?!need|want|ask|notic|receiv|hear|look|suppos|check|forward|escalat|
    rais|call| delay|damag|clos|interest|confus)\w{2,}ed) |
    (?:i|we) (?:just |now |also )?(?:sent|made|put|set|took|gave|(?!need|want| ask|notic|receiv|look|check|apologi|
    suppos|call|hop|offer|clos)\w{2,}ed) | confirmed | booked
    """,
    denied=False,
)

REPORTS_DONE = re.compile(
    r"^\W*(?:all |now )?(?:\w{3,}(?<!ne)ed|done|sent|paid)(?: (?:to|for|in)\b|[.!:,])", re.IGNORECASE
)

REQUESTS = Signal(
    "(?:can|could|would|will) you | (?:can|could|may) (?:i|we) (?:have|get|exchange|swap|return|see|speak|talk) | "
    "(?:can|could) (?:it|this|that|they|the \\w+) (?:be|come) | i (?:want|need|would like) | i'd like |"
    " please | give me | send me",
    denied=False,
)

TRIES = Signal("try | trying | check | test | see | let you know", denied=False)

WANTS = Signal(
    r"""
    i (?:just |really |only |still )?(?:want|need|would like|'d like|wish|demand|require|asked? for|am asking for|am
    looking for) | i'd (?:like|rather|prefer) | please | (?:can|could) (?:you|i|we|somebody|someone|anybody|anyone) |
    how (?:do|can|could) (?:i|we) | (?:want|need|like|asking|trying|looking) (?:to|for) | where is | where's |
    when (?:will|do|does|is) | is it possible | help me | give me | send me
    """,
    denied=False,
)

DENIED = Signal(
    r"""
    (?:don't|do not|didn't|not|never|no longer|wouldn't|isn't|won't) (?:\w+ ){0,3}?(?:want|need|ask\w*|about|like|
    looking|here for|interested|mean) | instead of | rather than | not (?:a|an|the|about|for|my) |
    no need (?:for|to) | without | besides | other than | forget (?:the|about)
    """,
    denied=False,
)
