"""Conversations, questions and paraphrases for `context.py`: facts of ten kinds between small talk and explanations.

Every fact is a sentence of a user with a `{value}`; a question asks for it, and an answer is right if it has the value.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True)
class PlantedFact:
    """A sentence with the value in it, the question for it, and the value that it replaces, if it corrects one."""

    said: str
    value: str
    question: str
    replaces: str = ""


NAMES = ["Ottilie", "Bartholomew", "Xiomara", "Leopold", "Saoirse", "Thaddeus", "Ingrid", "Matteo", "Yusuf", "Philippa"]
PLACES = ["Tromsø", "Ghent", "Valparaíso", "Kumasi", "Ljubljana", "Dunedin", "Aarhus", "Cork", "Matsuyama", "Bergamo"]
STREETS = ["Quarry Lane", "Harbour Street", "Mill Road", "Sycamore Avenue", "Station Square", "Abbey Close"]
FOODS = ["aubergine", "oysters", "coriander", "blue cheese", "marzipan", "liver", "okra", "anchovies"]
THINGS = [
    "the oak flooring",
    "plan B",
    "the smaller van",
    "option three",
    "the blue tiles",
    "the morning slot",
    "the Lisbon office",
]
MONTHS = ["January", "March", "April", "June", "August", "October", "November"]
# (kind, what is said, what is asked, where the value comes from)
FACTS = [
    ("number", "The gate code for the shed is {value}.", "What is the gate code for the shed?", "digits"),
    ("number", "There will be {value} guests at the wedding.", "How many guests will be at the wedding?", "small"),
    ("number", "My membership number is {value}.", "What is my membership number?", "digits"),
    ("number", "We can spend up to {value} euros on the kitchen.", "How much can we spend on the kitchen?", "digits"),
    ("name", "My daughter's teacher is called {value}.", "What is my daughter's teacher called?", "name"),
    ("name", "The plumber who came last time was {value}.", "Who was the plumber who came last time?", "name"),
    ("name", "We named the boat {value}.", "What did we name the boat?", "name"),
    ("date", "The lease runs out on {value}.", "When does the lease run out?", "date"),
    ("date", "My driving test is on {value}.", "When is my driving test?", "date"),
    ("date", "Grandma turns ninety on {value}.", "When does grandma turn ninety?", "date"),
    ("preference", "I prefer rooms with a view of {value}.", "Which view do I prefer for rooms?", "place"),
    ("preference", "For breakfast I really love {value}.", "What do I love for breakfast?", "food"),
    ("negation", "I can't eat {value}, it makes me ill.", "What can't I eat?", "food"),
    ("negation", "Please never book anything in {value} for me again.", "Where should nothing be booked?", "place"),
    ("decision", "Okay, let's go with {value}.", "What did we decide to go with?", "thing"),
    ("decision", "Then it is settled: we take {value}.", "What did we settle on taking?", "thing"),
    ("address", "Send the samples to {value}, please.", "Where should the samples be sent?", "address"),
    ("address", "My mother lives at {value}.", "Where does my mother live?", "address"),
]  # fmt: skip
CORRECTED = [
    ("The train leaves at {old}.", "Actually, the train leaves at {value}.", "When does the train leave?", "time"),
    ("My locker number is {old}.", "Sorry, my locker number is {value}.", "What is my locker number?", "digits"),
    (
        "My landlord is called {old}.",
        "I got a new landlord, he's called {value}.",
        "What is my landlord called?",
        "name",
    ),
    ("The workshop is in {old}.", "The workshop was moved, it is in {value} now.", "Where is the workshop?", "place"),
    ("My flight is on {old}.", "Correction: my flight is on {value}.", "When is my flight?", "date"),
]
TOPICS = [
    "beekeeping",
    "the printing press",
    "glaciers",
    "jazz",
    "sourdough",
    "chess openings",
    "volcanoes",
    "the Silk Road",
    "origami",
    "photosynthesis",
    "cathedrals",
    "tides",
    "typography",
    "mushrooms",
    "comets",
    "ceramics",
    "sailing knots",
    "lighthouses",
    "the violin",
    "coral reefs",
    "opera",
    "cartography",
    "tea ceremonies",
    "windmills",
    "fossils",
]
ASKED = [
    "What got people interested in {t} in the first place?",
    "Could you say a bit more about {t}?",
    "Why does {t} fascinate so many?",
    "And how is {t} different elsewhere in the world?",
    "Hm, how would one explain {t} to a child?",
    "Is there a good way to start with {t}?",
    "Which mistakes do beginners make with {t}?",
    "I wonder how {t} looked a hundred years ago.",
    "Tell me something odd about {t}.",
    "That reminds me of {t}, which people talk about a lot.",
    "Do experts on {t} ever agree on anything?",
    "How long does it take to understand {t}?",
]
TOLD = [
    "Most accounts of {t} begin with patient observation, which over generations turned into a body of rules.",
    "It helps to look at {t} as a conversation between materials, habits and the people who pass them on.",
    "A common misunderstanding about {t} is that everything depends on talent, whereas routine explains nearly all.",
    "Writers on {t} tend to disagree about the causes, though hardly anyone doubts how strongly the seasons matter.",
    "Newcomers to {t} usually enjoy the first steps, then find the middle part slow, and later forget how hard it was.",
    "The tools around {t} have changed a good deal, but the underlying ideas would be familiar to any old craftsman.",
    "Seen from a distance, {t} shows the same pattern as many other fields: a slow start, a fashion, and a long calm.",
    "There are whole libraries on {t}, and much of what they contain is delightful, odd and impossible to verify.",
]  # fmt: skip
THANKS = [
    "Thanks, that is interesting.",
    "I see.",
    "Nice, go on.",
    "Lovely.",
    "Okay, good to know.",
    "Ha, I like that.",
    "Right.",
]
TOOLS = [
    ("stock_level", {"item": "valve"}, "{value} pieces in aisle 7", "digits"),
    ("weather", {"city": "Bergen"}, "rain, {value} degrees, wind from the west", "small"),
    ("order_status", {"order": 88213}, '{{"status": "held at customs", "reference": "{value}"}}', "code"),
    ("exchange_rate", {"pair": "EUR/ISK"}, "1 EUR = {value} ISK", "digits"),
]  # fmt: skip


def drawn(rng: random.Random, kind: str) -> str:
    """A value of a kind."""
    if kind == "digits":
        return str(rng.randint(1000, 99999))
    if kind == "small":
        return str(rng.randint(13, 98))
    if kind == "code":
        return f"{rng.choice('KQXZ')}{rng.choice('ABCD')}-{rng.randint(100, 999)}"
    if kind == "time":
        return f"{rng.randint(6, 22)}:{rng.randint(10, 59)}"
    if kind == "date":
        return f"{rng.choice(MONTHS)} {rng.randint(1, 28)}"
    if kind == "address":
        return f"{rng.randint(2, 190)} {rng.choice(STREETS)}"
    return rng.choice({"name": NAMES, "place": PLACES, "food": FOODS, "thing": THINGS}[kind])


def planted(rng: random.Random) -> list[list[PlantedFact]]:
    """Ten facts, each of the sentences to plant in order: eight of different sentences, and two that are corrected."""
    facts = []
    for _, said, question, kind in rng.sample(FACTS, 8):
        value = drawn(rng, kind)
        facts.append([PlantedFact(said.format(value=value), value, question)])
    for first, second, question, kind in rng.sample(CORRECTED, 2):
        old = value = drawn(rng, kind)
        while value == old:
            value = drawn(rng, kind)
        facts.append([
            PlantedFact(first.format(old=old), old, question),
            PlantedFact(second.format(value=value), value, question, replaces=old),
        ])  # fmt: skip
    return facts


def small_talk(rng: random.Random) -> list[Message]:
    """A turn about nothing in particular, with a long answer."""
    topic = rng.choice(TOPICS)
    asked = rng.choice(ASKED).format(t=topic)
    if rng.random() < 0.3:
        asked = f"{rng.choice(THANKS)} {asked}"
    told = " ".join(sentence.format(t=topic) for sentence in rng.sample(TOLD, rng.randint(1, 3)))
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": told}]


def tool_turn(rng: random.Random, number: int) -> tuple[list[Message], str]:
    """A turn with a call and its result, and the value in the result; the answer does not repeat it."""
    name, arguments, result, kind = rng.choice(TOOLS)
    value = drawn(rng, kind)
    call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": dict(arguments)}}
    return [
        {"role": "user", "content": f"Please look that up for me with {name.replace('_', ' ')}."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "name": name, "content": result.format(value=value)},
        {"role": "assistant", "content": "I have looked it up, it is all there."},
    ], value


def conversation(seed: int, turns: int = 40, tools: int = 1) -> tuple[list[Message], list[PlantedFact], list[str]]:
    """A conversation with ten facts in the middle of it, each alone in a message or at the end of one.

    Returns the messages, the facts that hold at the end, and the values in the results of tools. Nothing is planted in
    the first turn and the last five, which are kept as they are.
    """
    rng = random.Random(seed)
    facts = planted(rng)
    spoken = [small_talk(rng) for _ in range(turns)]
    places = iter(sorted(rng.sample(range(1, turns - 5), sum(map(len, facts)))))
    order = [fact for group in facts for fact in group[:1]]
    rng.shuffle(order)
    order += [fact for group in facts for fact in group[1:]]  # a correction comes after what it corrects
    for fact in order:
        place = next(places)
        if rng.random() < 0.5:
            spoken[place][0]["content"] = fact.said
            spoken[place][1]["content"] = rng.choice(["Noted.", "Alright, I will keep that in mind.", "Good to know!"])
        else:
            spoken[place][0]["content"] += f" {fact.said}"
    results = []
    for number in range(tools):
        turn, value = tool_turn(rng, number)
        spoken.insert(rng.randint(2, turns - 6), turn)
        results.append(value)
    messages = [{"role": "system", "content": "You are a patient assistant."}, *[m for turn in spoken for m in turn]]
    messages.append({"role": "user", "content": "So, what comes next?"})
    return messages, [group[-1] for group in facts], results


# A dialogue's question, and the same wish in other words; written once, before the search was tried on them.
PARAPHRASES = [
    ("How can I track my order?", "Is there a way to see where my purchase is right now?"),
    ("The washing machine leaks water", "There is a puddle under my washer after every laundry load"),
    ("I need to reset my PIN", "How do I change the secret code of my card?"),
    ("Do you deliver on Sundays?", "Can my package arrive at the weekend?"),
    ("My phone does not charge any more", "The battery of my mobile stays empty even when plugged in"),
    ("Please delete my account", "I want you to remove my profile"),
    ("Is breakfast included in the room price?", "Does the hotel cost cover a morning meal?"),
    ("I can't hear anyone in video calls", "There is no sound from other people in my online meetings"),
    ("How do I become fluent in Spanish?", "What is the best way to learn Spanish quickly?"),
    ("My flight was cancelled, what now?", "The airline called off my plane, who helps me?"),
]
OTHER_DIALOGUES = [
    "What is the capital of Peru?", "Can you write a poem about autumn?", "How old is the universe?",
    "Which wine goes with fish?", "My cat sleeps all day", "How do I tie a tie?", "Is it going to rain on Monday?",
    "What time does the museum close?", "I would like to book a table for four", "How much does shipping cost?",
    "The invoice has a wrong name on it", "Where can I park near the stadium?", "My printer shows a paper jam",
    "How do I install the update?", "Can I pay in instalments?", "Do you sell gift cards?", "What size should I take?",
    "How do I descale a kettle?", "Is this jacket waterproof?", "Who won the match yesterday?",
]  # fmt: skip
