"""What an agent keeps of a long conversation and of its users, and how fast it finds dialogues.

    python benchmarks/context.py --json
    python benchmarks/context.py --json --embedding FOLDER
    python benchmarks/context.py --json --parts strategies

compression: of ten facts in 40 turns, how many are left in 60, 40 and 25% of the tokens, without a model; in how many
conversations all results of tools are; and how many values that were corrected later are still shown. recall_200: of
ten questions about facts 200 turns back, how many an agent answers whose scripted model only reads what it is shown
or looks up (it calls `recall` with the question and repeats the first line). leaks: answers from another user's facts
or dialogues in 10,000 queries, with users of one name. paraphrases: how often a dialogue is found first by other
words, without and with an embedding model. search: milliseconds for questions of common words among 100,000
dialogues. memory: how often the first pattern recalled is right, less how often the nearest neighbour is, by noise.
strategies: how many dialogues are understood, their intent and whether they were resolved, in the cases that were
written without a look at the code (dialogue_cases.jsonl, `resolution_right`), in those that were written before the
reading was rebuilt (dialogue_fresh.jsonl), in those written before it was rebuilt once more (dialogue_held_out.jsonl),
and in those it was developed on (dialogue_development.jsonl).

Seeds of the report are drawn apart from those used while developing; --first-seed sets them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
from context_cases import OTHER_DIALOGUES, PARAPHRASES, conversation, planted, small_talk
from record import print_result

from groupwise import AgentConfig, MultiTurnAgent
from groupwise.agents.conversation.compression import compress
from groupwise.agents.conversation.dialogues import DialogueDatabase, Embed, sentence_embedder
from groupwise.agents.memory.user_memory import UserMemory
from groupwise.agents.strategies import find_strategy
from groupwise.agents.strategies.resolution import is_resolved
from groupwise.language.engine import Sampled
from groupwise.language.loading import load_model
from groupwise.memory import Experience, MemorySystem

Found = tuple[dict[str, Any], dict[str, Any]]
SHARES = (0.6, 0.4, 0.25)
NAMES = ["Anna", "Anna", "Ben", "Chloe", "Anna"]
COMMON = [
    "where is my order",
    "I want to change my address",
    "how do I get a refund for my order",
    "please help me pay",
]


def tokens(messages: Sequence[Any]) -> int:
    """A plain count: four characters a token, four tokens a message."""
    return sum(len(str(message.get("content") or "")) // 4 + 4 for message in messages)


def compression_part(seeds: Sequence[int], embed: Embed | None) -> Found:
    kept: dict[float, list[int]] = {share: [] for share in SHARES}
    results, stale, tool_share = 0, 0, []
    for seed in seeds:
        messages, facts, looked_up = conversation(seed)
        for share in SHARES:
            short = asyncio.run(compress(messages, round(share * tokens(messages)), tokens))
            text = "\n".join(str(message.get("content")) for message in short)
            kept[share].append(sum(fact.value in text for fact in facts))
            if share == min(SHARES):
                results += all(value in text for value in looked_up)
                stale += sum(bool(fact.replaces) and fact.replaces in text for fact in facts)
                tool_share.append(len(looked_up))
    claims = {f"facts_kept_{round(100 * share)}": float(np.mean(found)) for share, found in kept.items()}
    claims |= {"tool_results_kept_25": results, "conversations": len(seeds), "stale_values_shown_25": stale}
    return claims, {"kept": {str(share): found for share, found in kept.items()}}


class ScriptedEngine:
    """Answers by a script instead of a model: prompt text → answer text."""

    def __init__(self, tokenizer: Any, script: Callable[[str], str], max_length: int) -> None:
        self.tokenizer, self.script, self.max_length = tokenizer, script, max_length

    def submit(
        self, ids: Sequence[int], params: Any, seed: int, session: Any = None, on_token: Any = None
    ) -> Future[Sampled]:
        said = self.script(self.tokenizer.decode(list(ids))) + "<|end|>"
        made = np.array(self.tokenizer.encode(said, add_special_tokens=False), np.int64)
        for token in made.tolist():
            if on_token is not None:
                on_token(token, 0.0)
        zeros = np.zeros(len(made), np.int64)
        done: Future[Sampled] = Future()
        done.set_result(Sampled(made, zeros.astype(np.float32), zeros, 0, "stop"))
        return done

    def cancel(self, future: Future[Sampled]) -> None:
        """Nothing to do: answers are made at once."""

    def close(self) -> None:
        """Nothing to do."""


def scripted(prompt: str) -> str:
    """Look the question up if that is offered, and repeat the first line of what is found; else read the memory."""
    before, _, question = prompt.removesuffix("<|assistant|>").rpartition("<|user|>")
    asked, _, after = question.partition("<|end|>")
    if not asked.rstrip().endswith("?") or "@@" not in asked:
        return "Fine."
    looked_up = after.rpartition("<|tool|>")[2].partition("<|end|>")[0] if "<|tool|>" in after else ""
    if looked_up:
        return looked_up.splitlines()[0]
    if "@recall" in prompt:
        return '@recall {"query": ' + json.dumps(asked.replace("@@", "").strip()) + "}\n"
    notes = before.rpartition("What this user told you before:")[2].splitlines()
    return next((line.removeprefix("- ") for line in notes if line.startswith("- ")), "I do not know.")


async def answers(seed: int, with_memory: bool) -> list[bool]:
    """Tell ten facts, talk for 200 turns about other things, then ask for each fact."""
    language = load_model("tiny@14")
    memory = UserMemory() if with_memory else None
    agent = MultiTurnAgent(AgentConfig(), None, language=language, memory=memory)
    agent.use(language)
    real = agent.engine
    agent._parts = (language, ScriptedEngine(agent.tokenizer, scripted, real.max_length), agent.frame)
    real.close()
    rng = random.Random(seed)
    facts = planted(rng)
    name = (await agent.start_conversation(f"user {seed}")).conversation_id
    order = [fact for group in facts for fact in group[:1]] + [fact for group in facts for fact in group[1:]]
    for fact in order:
        await agent.generate_multiturn_response(name, fact.said)
    for _ in range(200):
        text = small_talk(rng)[0]["content"]
        await agent.generate_multiturn_response(name, text)
    right = []
    for group in facts:
        response = await agent.generate_multiturn_response(name, f"@@ {group[-1].question}")
        right.append(group[-1].value in response.text)
    agent.store.close()
    return right


def recall_part(seeds: Sequence[int], embed: Embed | None) -> Found:
    by_tool = [asyncio.run(answers(seed, with_memory=False)) for seed in seeds[:3]]
    by_both = [asyncio.run(answers(seed, with_memory=True)) for seed in seeds[:3]]
    claims = {
        "recall_200_by_tool": float(np.mean([sum(found) for found in by_tool])),
        "recall_200_with_memory": float(np.mean([sum(found) for found in by_both])),
    }
    return claims, {"by_tool": by_tool, "with_memory": by_both}


def leaks_part(seeds: Sequence[int], embed: Embed | None) -> Found:
    """Every user has their own secret; whatever anybody asks, nobody else's is shown."""
    rng = random.Random(seeds[0])
    memory, dialogues = UserMemory(), DialogueDatabase()
    secrets = {f"id-{n}": f"Q{n:05d}X" for n in range(100)}
    for n, (user, secret) in enumerate(secrets.items()):
        memory.hear(user, f"My name is {NAMES[n % len(NAMES)]}. My card number is {secret}. I live at {n} Mill Lane.")
        talk = [
            {"role": "user", "content": f"I am {NAMES[n % len(NAMES)]}, my card {secret} was declined"},
            {"role": "assistant", "content": "I will look into your card."},
        ]
        dialogues.add(talk, user=user)
    questions = [
        "What is my card number?",
        "Where does Anna live?",
        "What is Anna's card number?",
        "my card was declined",
    ]
    leaked = shown = 0
    for n in range(10_000):
        user = rng.choice([*secrets, "Anna", "stranger"])
        question = rng.choice([*questions, f"Is {rng.choice([*secrets.values()])} my card?"])
        if n % 100 == 0 and user in secrets:
            memory.hear(user, "Please forget my address.")
        told = " ".join(one.text for one in memory.recall(user, question))
        told += " ".join(str(found.messages) for found in dialogues.search(question, 3, user=user))
        shown += bool(told)
        leaked += any(secret in told for owner, secret in secrets.items() if owner != user)
    return {"leaks_in_10000": leaked, "answered_of_10000": shown}, {}


def paraphrases_part(seeds: Sequence[int], embed: Embed | None) -> Found:
    found: dict[str, Any] = {}
    for name, function in (("paraphrases_first_by_words", None), ("paraphrases_first_by_embedding", embed)):
        if name.endswith("embedding") and embed is None:
            continue
        database = DialogueDatabase(embed=function)
        asked = [question for question, _ in PARAPHRASES]
        for question in [*asked, *OTHER_DIALOGUES]:
            reply = {"role": "assistant", "content": "Let me see."}
            database.add([{"role": "user", "content": question}, reply])
        first = [database.search(other, 1) for _, other in PARAPHRASES]
        found[name] = sum(
            bool(best) and best[0].messages[0]["content"] == q for best, q in zip(first, asked, strict=True)
        )
    return {**found, "paraphrases": len(PARAPHRASES)}, {}


def search_part(seeds: Sequence[int], embed: Embed | None) -> Found:
    rng = random.Random(seeds[0])
    common = " ".join([*COMMON, "late parcel return item card price email phone day new work password"]).split()
    rare = [f"word{n}" for n in range(5000)]
    with tempfile.TemporaryDirectory() as folder:
        database = DialogueDatabase(Path(folder) / "dialogues.db")
        for _ in range(20):
            texts = [
                (rng.choices(common, k=12) + rng.choices(rare, k=4), rng.choices(common, k=12)) for _ in range(5000)
            ]
            database.add_all([
                [{"role": "user", "content": " ".join(a)}, {"role": "assistant", "content": " ".join(b)}]
                for a, b in texts
            ])  # fmt: skip
        wall, processor = [], []
        for question in COMMON * 5:
            began = time.perf_counter(), time.process_time()
            assert database.search(question, 3, user="somebody")
            wall.append(1e3 * (time.perf_counter() - began[0]))
            processor.append(1e3 * (time.process_time() - began[1]))
        database.close()
    claims = {"search_ms_100000": float(np.median(wall)), "search_ms_100000_max": float(np.max(wall))}
    return {**claims, "search_processor_ms_100000": float(np.median(processor))}, {"wall": wall, "processor": processor}


def memory_part(seeds: Sequence[int], embed: Embed | None) -> Found:
    claims, raw = {}, {}
    for spread in (0.02, 0.1, 0.3):
        for wrong in (0.0, 0.1, 0.3, 0.5):
            gains = [against_neighbour(seed, spread, wrong) for seed in seeds[:6]]
            claims[f"memory_less_neighbour_spread_{spread}_wrong_{wrong}"] = float(np.mean([a - b for a, b in gains]))
            raw[f"{spread}/{wrong}"] = gains
    return claims, raw


def against_neighbour(seed: int, spread: float, wrong: float) -> tuple[float, float]:
    """The share of 100 situations whose payload is right: the first recalled, and the nearest neighbour's."""
    rng = np.random.default_rng([seed, round(100 * spread), round(10 * wrong)])
    centres, kinds = rng.uniform(0, 1, (12, 8)), rng.integers(0, 12, 240)
    points = np.abs(centres[kinds] + spread * rng.normal(size=(240, 8)))
    told = np.where(rng.random(240) < wrong, rng.integers(0, 12, 240), kinds)
    memory = MemorySystem(
        features=lambda requirements, context: [1.0, *requirements["at"]],
        width=9,
        generalise=lambda made: made.workflow,
    )
    with memory, memory.generation(1):
        for point, kind in zip(points, told, strict=True):
            memory.learn(Experience({"at": point.tolist()}, {"kind": int(kind)}, {}, {}))
        asked = rng.integers(0, 12, 100)
        queries = np.abs(centres[asked] + spread * rng.normal(size=(100, 8)))
        recalls = [memory.recall_patterns({"at": query.tolist()}, {}) for query in queries]
        first = np.array([recall.patterns[0].payload["kind"] if len(recall) else -1 for recall in recalls])
    nearest = told[((queries[:, None] - points) ** 2).sum(-1).argmin(1)]
    return float((first == asked).mean()), float((nearest == asked).mean())


def strategies_part(seeds: Sequence[int], embed: Embed | None) -> Found:
    claims, raw = dict[str, Any](), dict[str, Any]()
    for name, suffix in (
        ("cases", ""),
        ("fresh", "_fresh"),
        ("held_out", "_held_out"),
        ("development", "_development"),
    ):
        lines = (Path(__file__).parent / f"dialogue_{name}.jsonl").read_text("utf8").splitlines()
        rows = [json.loads(line) for line in lines]
        ended = [is_resolved(row["dialogue"]) == row["resolved"] for row in rows]
        # Creative writing has no strategy, so no intent.
        known = [row for row in rows if row["intent"]]
        meant = [intent_of(row["domain"], row["dialogue"]) == row["intent"] for row in known]
        claims |= {f"resolution_right{suffix}": sum(ended), f"intent_right{suffix}": sum(meant)}
        raw[name] = {"dialogues": len(rows), "with_intent": len(known), "resolution": ended, "intent": meant}
    return claims, raw


def intent_of(domain: str, dialogue: Sequence[Any]) -> str:
    """What the domain's strategy takes the user to want, after the whole dialogue."""
    state: Any = find_strategy(domain)()
    for message in dialogue:
        state = state.advance(message)
    return str(state.wish if domain == "sales" else state.intent)


PARTS = {
    "compression": compression_part, "recall": recall_part, "leaks": leaks_part, "paraphrases": paraphrases_part,
    "search": search_part, "memory": memory_part,
    "strategies": strategies_part,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts to run")
    parser.add_argument("--first-seed", type=int, default=5000)
    parser.add_argument("--embedding", help="a folder with a sentence-embedding model")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    seeds = list(range(options.first_seed, options.first_seed + 12))
    embed = sentence_embedder(options.embedding) if options.embedding else None
    claims: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    not_run = {} if embed else {"paraphrases_first_by_embedding": "no --embedding"}
    for name in options.parts.split(","):
        found, raw[name] = PARTS[name](seeds, embed)
        claims |= found
        if not options.json:
            print(found, flush=True)
    print_result("context", claims, seeds=seeds, raw=raw, not_run=not_run)


if __name__ == "__main__":
    main()
