"""What the answers of a step look like, as numbers that move when a policy finds a reward's blind spot.

    answers/sameness     how alike answers to different tasks are: the mean Jaccard index of their words, 1 is one text
    answers/repetition   share of runs of three words that an answer has said before
    answers/parroting    share of an answer's words about something that are the question's
    answers/words        mean length in words

Measured on a sample of the step's answers, chosen by their place and not by chance, so that resuming changes nothing.
`training.hints` compares them with the start of the run and with the held-out checks.
"""

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

from groupwise.rewards.function import turns_of
from groupwise.rewards.rules.answering import repeated_share, subjects
from groupwise.rewards.rules.components import replies, text_of, words_of
from groupwise.types import ScoredGroup, Trajectory

MOST_GROUPS, MOST_OF_A_GROUP = 16, 4
LONGEST = 4000  # characters of an answer that are read


def answer_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """The metrics above; none for attempts without words."""
    read = [_read(member) for group in groups[:MOST_GROUPS] for member in group.group.members[:MOST_OF_A_GROUP]]
    answers = [(question, answer) for question, answer in read if answer]
    if not answers:
        return {}
    words = [words_of(answer) for _, answer in answers]
    found = {
        "answers/repetition": fmean(map(repeated_share, words)),
        "answers/words": fmean(map(len, words)),
    }
    parroted = [_parroted(question, answer) for question, answer in answers]
    if known := [share for share in parroted if share is not None]:
        found["answers/parroting"] = fmean(known)
    pairs = [
        _jaccard(set(words[n]), set(words[m]))
        for n, m in combinations(range(len(answers)), 2)
        if answers[n][0] != answers[m][0]
    ]
    return found | ({"answers/sameness": fmean(pairs)} if pairs else {})


def _read(attempt: Trajectory) -> tuple[str, str]:
    """The question and the answer of an attempt; empty for one that is not a conversation."""
    if not {"messages", "text", "content"} & attempt.meta.keys():
        return "", ""
    turns = turns_of(attempt)
    question = "\n".join(text_of(turn.get("content")) for turn in turns if turn.get("role") == "user")
    return question[:LONGEST], "\n".join(reply.text for reply in replies(turns))[:LONGEST]


def _parroted(question: str, answer: str) -> float | None:
    said = subjects(answer)
    return len(said & subjects(question)) / len(said) if said else None


def _jaccard(first: set[str], second: set[str]) -> float:
    return len(first & second) / len(first | second) if first or second else 1.0
