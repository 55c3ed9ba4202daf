"""Serving a customer: empathy, professionalism, and words that act."""

from __future__ import annotations

import re
from typing import ClassVar

from groupwise.rewards.components import Component, Ideas
from groupwise.rewards.speech import Reply, listed

SHOUTED = re.compile(r"\b[A-Z]{4,}\W{1,3}[A-Z]{4,}\b")
MANY_MARKS = re.compile(r"[!?]{2,}")


class EmpathyRewardComponent(Ideas):
    """min(1, n / 2): of regret, understanding, naming the feeling, care and thanks for patience, how many are there."""

    label = "empathy"
    enough = 2
    ideas: ClassVar = {
        "regret": listed("sorry, apolog*, regret"),
        "understanding": listed(
            "i understand, we understand, i can understand, i completely understand, understandable, i see why, i "
            "hear you, makes sense that you, i can imagine, in your position"
        ),
        "feeling": listed(
            "frustrat*, disappoint*, upset*, stressful, inconvenien*, worr*, annoying, must be hard, must feel, how "
            "you feel"
        ),
        "care": listed(
            "i'm here to help, i am here to help, we're here to help, here for you, happy to help, glad to help, care "
            "about, we want to make this right, make this right, take care of you"
        ),
        "thanks": listed(
            "thank you for your patience, thanks for your patience, appreciate your patience, thank you for letting, "
            "thanks for letting, thank you for reaching, thanks for reaching, appreciate you, thank you for telling"
        ),
    }


class ProfessionalismRewardComponent(Component):
    """0.5 + 0.25 · courtesies − 0.25 · slips, kept in [0, 1]; 0 for a reply without words.

    Courtesies are greeting, please, thanks, offering further help and a farewell, each counted once. Slips are each
    different word of slang or abuse, two neighbouring words in capitals and doubled exclamation or question marks.
    """

    label = "professionalism"
    courtesies: ClassVar = (
        listed("hello, good morning, good afternoon, good evening, dear, welcome"),
        listed("please, kindly, may i, would you"),
        listed("thank you, thanks, we appreciate, i appreciate"),
        listed("let me know, happy to, glad to, pleased to, anything else, at your disposal, feel free"),
        listed("best regards, kind regards, sincerely, have a great day, have a good day, have a nice day"),
    )
    slang: ClassVar = listed(
        "gonna, wanna, gotta, dunno, lol, lmao, omg, wtf, yeah, yep, nope, dude, bro, whatever, crap, damn, hell, "
        "shit, fuck*, stupid, idiot*, dumb, moron*, shut up, sucks, ain't, u, ur, thx, pls"
    )

    def rate(self, reply: Reply) -> float:
        if not reply.words:
            return 0.0
        courtesies = sum(reply.says_any(phrases) for phrases in self.courtesies)
        slips = sum(map(reply.says, self.slang))
        slips += bool(SHOUTED.search(reply.text)) + bool(MANY_MARKS.search(reply.text))
        return min(1.0, max(0.0, 0.5 + 0.25 * (courtesies - slips)))


class ActionOrientedRewardComponent(Ideas):
    """min(1, n / 3): of promising, doing, asking the customer to act, a time and a next step, how many are there."""

    label = "action_oriented"
    enough = 3
    ideas: ClassVar = {
        "promise": listed("i'll, i will, we'll, we will, i'm going to, i am going to, let me, i can"),
        "deed": listed(
            "i've, i have, we've, we have, i just, check*, process*, refund*, replac*, updat*, sent, escalat*, "
            "arrang*, cancel*, credit*"
        ),
        "request": listed(
            "please, could you, can you, would you, send me, tell me, share, provide, confirm, click, try"
        ),
        "time": listed(
            "now, today, tomorrow, right away, immediately, hours, hour, minutes, minute, business days, days, "
            "shortly, as soon as, by the end of"
        ),
        "next step": listed("next, then, once, after that, first, follow up, next step, steps, in the meantime"),
    }
