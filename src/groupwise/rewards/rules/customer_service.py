"""Components for talking to customers: customer service, technical support and sales."""

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

from groupwise.errors import ConfigError
from groupwise.rewards.rules import components
from groupwise.rewards.rules.components import Component, Ideas, Referenced, ReplyText, listed, named

SHOUTED = re.compile(r"\b[A-Z]{4,}\W{1,3}[A-Z]{4,}\b")
REPEATED_MARKS = re.compile(r"[!?]{2,}")


class EmpathyRewardComponent(Ideas):
    """min(1, n / 2), where n counts: regret, understanding, naming the feeling, care, and thanks for patience."""

    label = "empathy"
    enough = 2
    ideas: ClassVar = named("""
        regret: sorry, apolog*, regret;
        understanding: i understand, we understand, i can understand, i completely understand, understandable,
          i see why, i hear you, makes sense that you, i can imagine, in your position;
        feeling: frustrat*, disappoint*, upset*, stressful, inconvenien*, worr*, annoying, must be hard, must feel,
          how you feel;
        care: i'm here to help, i am here to help, we're here to help, here for you, happy to help, glad to help,
          care about, we want to make this right, make this right, take care of you;
        thanks: thank you for your patience, thanks for your patience, appreciate your patience, thank you for letting,
          thanks for letting, thank you for reaching, thanks for reaching, appreciate you, thank you for telling
    """)


class ProfessionalismRewardComponent(Component):
    """0.5 + 0.25 · courtesies − 0.25 · slips, clipped to [0, 1]; 0 for a reply without words.

    Courtesies are a greeting, please, thanks, an offer of further help and a farewell, each counted once. Slips are
    every different word of slang or abuse, two consecutive words in capitals, and repeated exclamation or question
    marks.
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

    def rate(self, reply: ReplyText) -> float:
        if not reply.words:
            return 0.0
        courtesies = sum(reply.says_any(phrases) for phrases in self.courtesies)
        slips = sum(map(reply.says, self.slang))
        slips += bool(SHOUTED.search(reply.text)) + bool(REPEATED_MARKS.search(reply.text))
        return min(1.0, max(0.0, 0.5 + 0.25 * (courtesies - slips)))


class ActionOrientedRewardComponent(Ideas):
    """min(1, n / 3), where n counts: a promise, an action, a request to the customer, a time, and a next step."""

    label = "action_oriented"
    enough = 3
    ideas: ClassVar = named("""
        promise: i'll, i will, we'll, we will, i'm going to, i am going to, let me, i can;
        deed: i've, i have, we've, we have, i just, check*, process*, refund*, replac*, updat*, sent, escalat*,
          arrang*, cancel*, credit*;
        request: please, could you, can you, would you, send me, tell me, share, provide, confirm, click, try;
        time: now, today, tomorrow, right away, immediately, hours, hour, minutes, minute, business days, days,
          shortly, as soon as, by the end of;
        next step: next, then, once, after that, first, follow up, next step, steps, in the meantime
    """)


STEP = re.compile(r"^[ \t>*_#-]*(?:step[ \t]+)?(\d{1,2})[.):]", re.IGNORECASE | re.MULTILINE)
ORDINALS = listed("first, second, third, next, then, after that, once, finally, lastly")
SHORTEST = 4  # letters; shorter words carry little meaning


class AccuracyRewardComponent(Referenced):
    """The share of a reference's key words that the replies contain, for the best reference.

    Key words are numbers and words of four letters or more, each counted once (all words, if there are none). Saying
    more than the reference costs nothing here; the length component is for that. Without a reference: 0.5,
    `no_reference`.
    """

    label = "accuracy"

    def compare(self, said: Sequence[ReplyText], reference: str) -> float:
        words = set(components.words_of(reference))
        key_words = {word for word in words if len(word) >= SHORTEST or word.isdigit()} or words
        stated = {word for reply in said for word in reply.words}
        return len(key_words & stated) / len(key_words)


class StepByStepRewardComponent(Component):
    """min(1, n / 3), where n counts step numbers at the start of lines, or words of order (first, then, finally)."""

    label = "step_by_step"
    enough = 3

    def rate(self, reply: ReplyText) -> float:
        numbered = len(set(STEP.findall(reply.text)))
        return min(1.0, max(numbered, sum(map(reply.says, ORDINALS))) / self.enough)


class ProblemResolutionRewardComponent(Ideas):
    """min(1, n / 3), where n counts: a cause, a remedy, a test that it worked, and what to do if it did not."""

    label = "problem_resolution"
    enough = 3
    ideas: ClassVar = named("""
        cause: because, caused by, due to, the reason, happens when, means that, the problem is;
        remedy: fix*, resolv*, solv*, restart*, reset*, reinstall*, install*, updat*, replac*, remov*, enabl*, disabl*,
          configur*, clear*, reconnect*, run, set;
        test: check*, verify, test*, confirm, make sure, should now, you should see, let me know if, does that,
          did that, is it working, try again;
        otherwise: if that doesn't, if this doesn't, if it doesn't, if not, otherwise, still, escalat*, alternatively,
          if the problem, if the issue, contact
    """)


# A price, or a number with a unit. The lengths are bounded, so that matching takes linear time.
MEASURE = re.compile(
    r"[$€£]\s?\d|(?<!\d)\d{1,12}(?:[.,]\d{1,6})?\s?(?:%|[a-zA-Z]{1,3}\b|percent|inch|hours|years|watts)"
)


class ProductKnowledgeRewardComponent(Ideas):
    """min(1, n / 3), where n counts: features, figures, compatibility, price, warranty, and comparison.

    With `facts`, the share of those facts that a reply states word for word.
    """

    label = "product_knowledge"
    enough = 3
    ideas: ClassVar = named("""
        features: feature*, includ*, comes with, equipped, built in, design*, model, version*, supports;
        compatibility: compatib*, works with, fits, integrat*, connects, requires;
        price: price*, cost*, plan, plans, discount*, subscription, per month, a month;
        warranty: warrant*, guarantee*, return policy, returns, support included, service plan;
        comparison: compared to, compared with, unlike, whereas, more than, better than, faster than
    """)

    def __init__(self, weight: float = 1.0, facts: Iterable[str] | None = None, name: str | None = None) -> None:
        super().__init__(weight, name)
        given = [facts] if isinstance(facts, str) else facts or ()
        self.facts = tuple(filter(None, map(components.phrase_of, given)))
        if facts is not None and not self.facts:
            raise ConfigError("product_knowledge: none of the facts contains a word", hint="Leave facts out instead.")

    def rate(self, reply: ReplyText) -> float:
        if self.facts:
            return sum(map(reply.says, self.facts)) / len(self.facts)
        return min(1.0, (self.found(reply) + bool(MEASURE.search(reply.text))) / self.enough)


class NeedsIdentificationRewardComponent(Component):
    """min(1, n / 2), where n counts different questions, plus one if a reply picks up a need the customer named."""

    label = "needs_identification"
    enough = 2
    taken_up: ClassVar = listed(
        "you mentioned, you said, you need, you're looking for, you are looking for, your needs, your goal*, your "
        "budget, sounds like you, based on what you, for your"
    )

    def rate(self, reply: ReplyText) -> float:
        return min(1.0, (len(reply.questions) + reply.says_any(self.taken_up)) / self.enough)


class ValuePropositionRewardComponent(Ideas):
    """min(1, n / 3), where n counts: a benefit, a saving, a result for the customer, proof, and an invitation."""

    label = "value_proposition"
    enough = 3
    ideas: ClassVar = named("""
        benefit: benefit*, advantage*, help you, helps you, lets you, allows you, makes it easy, improve*;
        saving: save*, saving*, less time, lower cost*, cheaper, reduce*, return on investment, roi, value;
        result: so you can, so that you, means you, you'll get, you will get, you can, for your, you gain;
        proof: customers, reviews, rated, proven, percent, award*, tested, case study, on average;
        invitation: free trial, demo, would you like, get started, try it, shall we, interested, sign up
    """)
