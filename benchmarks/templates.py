"""Are conversations what the model's own chat template makes of them, token for token?

    python benchmarks/templates.py --json
    python benchmarks/templates.py --json --folder DIRECTORY     other templates: *.jinja

Every chat template that TRL ships, each with a byte-level BPE tokenizer made here that has the tokens the template
writes. For each template:

- openings equal `apply_chat_template(…, add_generation_prompt=True)`;
- demonstrations (an answer; an answer with a thought; one call, two calls, a call with words) equal
  `apply_chat_template`, and the tokens that are learned begin with what the model would sample and end its turn;
- calls in a demonstration are read back from the learned tokens as the same calls, with the format found by probing;
- follow-ups (the next question, the result of a call) equal `apply_chat_template` where the template keeps what was
  said before. Where it rewrites that, the sampled tokens are kept, and the case counts as rewritten.

What a template refuses or leaves out in `apply_chat_template` itself is no case. Claims: `templates`, `equal` (all of
whose cases are equal), `rewritten` (with a rewritten case), `with_calls` (whose calls are read back), `cases`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from record import print_result
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from groupwise.agents.conversation.chat_format import Frame
from groupwise.errors import GroupwiseError
from groupwise.language.engine import Sampled

# What looks like a token of its own in a template's source, and which of these real tokenizers do not call special.
TOKEN = re.compile(
    r'<\|[^<>|\s]{1,40}\|>|<\|"\|>|<｜[^｜<>]{1,40}｜>|<\|[a-z_]{2,20}>|<[a-z_]{2,20}\|>|<(?:start|end)_of_\w+>|'
    r"\[/?[A-Z][A-Z_]{2,20}\]|\[gMASK\]|<sop>|</?s>|<seed:[be]os>|\]~!?b\[?\]?|\[e~\[|</?(?:think|tool_call|tool_response|arg_key|arg_value)>"
)
PLAIN = re.compile(r"</?(?:think|tool_call|tool_response|arg_key|arg_value)>")

TEXT, WHOLE = {"type": "string", "description": "a text"}, {"type": "integer", "description": "a number"}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"{name} things", "parameters": {
        "type": "object", "properties": {"city": TEXT, "days": WHOLE, "dry": {"type": "boolean", "description": "dry"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "tags"}}, "required": ["city"]}}}
    for name in ("get_weather", "book_trip")
]  # fmt: skip
SYSTEM = {"role": "system", "content": "You are a travel agent."}
ASK = {"role": "user", "content": "What is the weather in Paris?\nAnd in Rome?"}
AGAIN = {"role": "user", "content": "Thanks. Book it, please."}
ANSWER = {"role": "assistant", "content": "It is sunny: 25 degrees.\n\nShall I book?"}
THOUGHT = {**ANSWER, "reasoning_content": "They want the weather.\nParis first."}


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": f"t0000n00{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


ONE = {"role": "assistant", "content": "", "tool_calls": [call(0, "get_weather", city="Paris", days=3, dry=True)]}
TWO = {**ONE, "tool_calls": [*ONE["tool_calls"], call(1, "book_trip", city="New York, NY", tags=["a", "b c"])]}  # type: ignore[misc]
WORDS = {**ONE, "content": "Let me see."}
RESULT = {"role": "tool", "tool_call_id": "t0000n000", "name": "get_weather", "content": "25 degrees, no rain"}
OTHER = {"role": "tool", "tool_call_id": "t0000n001", "name": "book_trip", "content": "booked"}

OPENINGS = {"asked": [ASK], "system": [SYSTEM, ASK], "later": [ASK, ANSWER, AGAIN], "results": [ASK, ONE, RESULT]}
TURNS = {"answer": ANSWER, "thought": THOUGHT, "call": ONE, "calls": TWO, "call and words": WORDS}
# What was said, what the model said next, what followed.
FOLLOWING: dict[str, tuple[list[Any], Any, list[Any]]] = {
    "next question": ([ASK], ANSWER, [AGAIN]),
    "question after a thought": ([SYSTEM, ASK], THOUGHT, [AGAIN]),
    "result": ([ASK], ONE, [RESULT]),
    "results": ([ASK], TWO, [RESULT, OTHER]),
    "second result": ([ASK, ONE, RESULT], {**ONE, "tool_calls": [call(1, "book_trip", city="Rome")]}, [OTHER]),
    "question after results": ([ASK, ONE, RESULT], ANSWER, [AGAIN]),
}


@dataclass
class Outcome:
    """What was seen of one template."""

    format: str | None = None
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    rewritten: list[str] = field(default_factory=list)


def trained_base() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    words = " ".join(json.dumps(one) for one in (TOOLS, TURNS, OPENINGS)) + (__doc__ or "")
    trainer = trainers.BpeTrainer(
        vocab_size=1500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([words, "assistant\n\nuser\n\nsystem\n\n\n"], trainer)
    return made


def tokenizer_for(template: str, base: Tokenizer) -> Any:
    made = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(base.to_str()), bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    )
    tokens = sorted(set(TOKEN.findall(template)))
    made.add_tokens([AddedToken(token, special=not PLAIN.fullmatch(token), normalized=False) for token in tokens])
    made.chat_template = template
    return made


class Bench:
    """One template against `apply_chat_template`."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.frame, self.seen = tokenizer, Frame(tokenizer), Outcome()

    def run(self) -> Outcome:
        self.seen.format = self.frame.form.name if self.frame.form else None
        for name, messages in OPENINGS.items():
            self._case(f"opening: {name}", self._opening(messages))
        for name, turn in TURNS.items():
            self._case(f"demonstration: {name}", self._demonstration([ASK], turn))
        self._case("demonstration: later", self._demonstration([SYSTEM, ASK, ANSWER, AGAIN], THOUGHT))
        for name, talk in FOLLOWING.items():
            self._case(f"follow-up: {name}", self._following(name, *talk))
        return self.seen

    def _case(self, name: str, problems: Iterator[str]) -> None:
        try:
            found = list(problems)
        except (GroupwiseError, ValueError, IndexError) as error:
            found = [f"{type(error).__name__}: {error}"[:200]]
        self.seen.failures += [f"{name}: {problem}" for problem in found]

    def _known(self, messages: Sequence[Any], ask: bool) -> list[int] | None:
        """What `apply_chat_template` makes of the messages; None if there is no such case for this template."""
        template = self.frame.template
        if any(message.get("tool_calls") for message in messages) and (
            template.form is None or not template.writes_calls
        ):
            return None
        fitted, tools = template.fitted(messages), self._tools or None
        try:
            ids = self.tokenizer.apply_chat_template(fitted, tools=tools, add_generation_prompt=ask, return_dict=False)
        except Exception:  # what the template refuses is no case
            return None
        return list(ids)

    @property
    def _tools(self) -> list[Any]:
        return TOOLS if self.frame.form else []

    def _opening(self, messages: Sequence[Any]) -> Iterator[str]:
        wanted = self._known(messages, True)
        if wanted is not None:
            self.seen.cases += 1
            yield from self._compared(self.frame.opening(messages, self._tools), wanted)

    def _demonstration(self, messages: Sequence[Any], turn: Any) -> Iterator[str]:
        wanted = self._known([*messages, turn], False)
        if wanted is None:
            return
        known = self.tokenizer.decode(wanted)
        if not turn.get("tool_calls") and turn["content"][-10:] not in known:
            return
        self.seen.cases += 1
        ids, own = self.frame.demonstration(messages, [turn], self._tools)
        if self.frame.template.turn(messages, turn, self._tools).kept:
            yield from self._compared(ids, wanted)
        else:
            self.seen.rewritten.append("the opening")
            opening = self.frame.opening(messages, self._tools)
            yield from self._compared(ids[: len(opening)], opening)
        learned = [token for token, mine in zip(ids, own, strict=True) if mine]
        text = self.tokenizer.decode(learned)
        if messages[-1]["content"].strip()[-10:] in text:
            yield f"learns what the user said: {text!r}"
        # Some templates write no words beside calls, or no calls beside words.
        if turn["content"][-10:] in known and turn["content"][-10:] not in text:
            yield f"does not learn the answer: {text!r}"
        if not turn.get("tool_calls") or "get_weather" in known.rpartition(ASK["content"])[2]:
            yield from self._read_back(ids[: own.index(True)], learned, turn)

    def _read_back(self, prompt: list[int], learned: list[int], turn: Any) -> Iterator[str]:
        made = [(c["function"]["name"], c["function"]["arguments"]) for c in turn.get("tool_calls", ())]
        reply = self.frame.reply(sampled(learned), 0, prompt, self._tools)
        found = [(c.name, dict(c.arguments)) for c in reply.tool_calls]
        # Templates that write one call at a time take the first.
        if found != made and not (len(made) > 1 and found == made[:1] and self._only_one()):
            yield f"reads {found} {[b.problem for b in reply.broken]} for {made}"

    def _only_one(self) -> bool:
        return "book_trip" not in self.tokenizer.apply_chat_template(
            self.frame.template.fitted([ASK, TWO]), tokenize=False
        )

    def _following(self, name: str, before: Sequence[Any], turn: Any, new: Sequence[Any]) -> Iterator[str]:
        wanted, said = self._known([*before, turn, *new], True), self._known([*before, turn], False)
        if wanted is None or said is None or turn["content"][-10:] not in self.tokenizer.decode(said):
            return
        self.seen.cases += 1
        ids, own = self.frame.demonstration(before, [turn], self._tools)
        stop = max(place for place, mine in enumerate(own) if mine) + 1
        kept = ids[:stop]
        made = [*kept, *self.frame.following(new, True, before, self._tools, kept)]
        if wanted[:stop] != kept:
            self.seen.rewritten.append(name)
            if made[:stop] != kept or new[-1]["content"] not in self.tokenizer.decode(made[stop:]):
                yield "the sampled tokens are not kept"
        else:
            yield from self._compared(made, wanted)

    def _compared(self, made: Sequence[int], wanted: Sequence[int]) -> Iterator[str]:
        if list(made) != list(wanted):
            place = next(
                (n for n, (a, b) in enumerate(zip(made, wanted, strict=False)) if a != b), min(len(made), len(wanted))
            )
            got, want = (self.tokenizer.decode(list(ids)[max(0, place - 3) : place + 12]) for ids in (made, wanted))
            yield f"token {place} of {len(wanted)}: {got!r} for {want!r}"


def sampled(ids: list[int]) -> Sampled:
    count = len(ids)
    return Sampled(
        ids=np.array(ids), logp=np.zeros(count, np.float32), versions=np.zeros(count, np.int64), version=0, end="stop"
    )


def shipped() -> Path:
    # Without importing TRL, which takes seconds.
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None:
        raise SystemExit("TRL is not installed; name a folder of templates with --folder")
    return Path(found.origin).parent / "chat_templates"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="a folder of *.jinja files instead of TRL's")
    parser.add_argument("--only", default="", help="templates whose name contains this")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    folder, base = options.folder or shipped(), trained_base()
    raw: dict[str, Any] = {}
    for file in sorted(file for file in folder.glob("*.jinja") if options.only in file.stem):
        seen = Bench(tokenizer_for(file.read_text(encoding="utf8"), base)).run()
        raw[file.stem] = {**vars(seen)}
        if not options.json:
            print(
                f"{file.stem}: {seen.format}, {seen.cases} cases, rewritten {seen.rewritten}",
                *seen.failures,
                sep="\n    ",
            )
    failures = {name: found["failures"] for name, found in raw.items() if found["failures"]}
    print_result(
        "templates",
        {
            "templates": len(raw), "equal": len(raw) - len(failures),
            "rewritten": sum(bool(found["rewritten"]) for found in raw.values()),
            "with_calls": sum(found["format"] is not None for found in raw.values()),
            "cases": sum(found["cases"] for found in raw.values()),
        },
        raw={"failures": failures, "templates": raw},
    )  # fmt: skip


if __name__ == "__main__":
    main()
