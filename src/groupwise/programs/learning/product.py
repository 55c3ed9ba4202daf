"""The programs product: a language model learns to write programs by search, imitation and GRPO.

    step 1 … warm_steps        imitate random legal programs: the form of a program, not what solves which problem
    every search_every steps   a round: search problems of the curriculum, with the policy as the prior
    every step                 GRPO on groups of the policy's programs, beside what searches have found

In the first round the policy knows only the form, so its searches use the grammar's own uniform prior instead.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.config import TrainingConfig
from groupwise.language.engine import SamplingParams
from groupwise.language.policy import LanguagePolicy
from groupwise.language.samplers.sampler_choice import engine_for
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.programs.checks import check
from groupwise.programs.declaration import CodeOptions, code_options
from groupwise.programs.language.grammar import random_program
from groupwise.programs.learning.found_programs import Finds, beside, search_records, searched_group
from groupwise.programs.learning.model import body_of, first_policy
from groupwise.programs.learning.prior import SEARCH, LanguagePrior, together
from groupwise.programs.learning.rollout import (
    ProblemCurriculum,
    ProgramExamination,
    ProgramJudge,
    Programs,
    SolutionReward,
    prompt_ids,
)
from groupwise.programs.search.mcts import search
from groupwise.programs.search.program_search import Prior, Uniform, judged, program_domain, save_programs
from groupwise.programs.search.search_settings import Judged
from groupwise.programs.search.tree import SearchTree
from groupwise.training.batch_source import GroupSource
from groupwise.training.ranks.communication import Ranks
from groupwise.training.replay import Replayed
from groupwise.training.session import Parts
from groupwise.training.step_groups import StepGroups
from groupwise.training.token_attempts import Row, imitation, rows_of_tokens
from groupwise.types import Batch, GroupRecord, Policy, ScoredGroup, Task

# Random programs imitated in a warm-up step.
FORM_ROWS = 48
# Searches of a round that can be looked at.
TREES_SHOWN = 8


class CodeSource(GroupSource):
    """Groups of the policy's programs, and what searches with the policy as prior have found."""

    engine: TokenEngine

    def __init__(
        self, cfg: TrainingConfig, options: CodeOptions, policy: LanguagePolicy, engine: TokenEngine, tokenizer: Any
    ) -> None:
        self.options, self.policy, self.engine, self.tokenizer = options, policy, engine, tokenizer
        self.judge = ProgramJudge(options.partial_credit)
        self.curriculum = ProblemCurriculum(options.family_names, options.problems, options.levels, cfg.run.seed)
        self.searches = ProblemCurriculum(options.family_names, options.problems, options.levels, cfg.run.seed + 1)
        self.finds = Finds(cfg.run.seed)
        self.prior = LanguagePrior(policy, tokenizer)
        self.step = self.rounds = 0
        self.searched: tuple[ScoredGroup, ...] = ()
        self.looked_at: tuple[GroupRecord, ...] = ()  # what is shown of the latest searches
        super().__init__(
            cfg,
            tasks=self.curriculum,
            rollout=Programs(engine, tokenizer, sampling(cfg), cfg.rollout.num_generations, cfg.run.seed),
            reward=SolutionReward(self.judge, options.placebo),
            collate=rows_of_tokens,
            reference=policy.reference_logp if cfg.policy.use_reference_model else None,
        )

    def join(self, ranks: Ranks) -> bool:
        # What searches have found is kept and drawn from in one process.
        return False

    def next(self) -> Batch:
        self.step += 1
        if self.step <= self.options.warm_steps:
            # Rows that teach the form: random legal programs, which solve their problem only by chance.
            rng = np.random.default_rng([self.cfg.run.seed, 5, self.step])
            rows = [self._random_row(rng) for _ in range(FORM_ROWS)]
            return imitation(rows, self.policy, self.cfg.policy.device)
        every, since = self.options.search_every, self.step - self.options.warm_steps - 1
        self.searched, self.looked_at = self._round() if every > 0 and since % every == 0 else ((), ())
        batch = super().next()
        batch = replace(batch, records=(*batch.records, *self.looked_at))
        shown = self.finds.draw(self.options.imitate_rows) if self.options.search_samples == "imitate" else []
        if shown and self.options.imitate_weight:
            batch = beside(batch, imitation(shown, self.policy, self.cfg.policy.device), self.options.imitate_weight)
        return replace(batch, metrics={**batch.metrics, **self._own_metrics()})

    def compare(self, drawn: StepGroups) -> Batch:
        self.curriculum.see(drawn.all)
        return super().compare(drawn)

    def _random_row(self, rng: np.random.Generator) -> Row:
        problem = self.curriculum.any(rng)
        prompt = prompt_ids(self.tokenizer, problem, self.engine.max_length)
        body = body_of(random_program(problem, random.Random(int(rng.integers(1 << 60)))))
        written = self.tokenizer.encode(body, add_special_tokens=False)
        ids = np.array([*prompt, *written, self.tokenizer.eos_token_id], np.int64)
        return ids, np.arange(len(ids)) >= len(prompt)

    def _round(self) -> tuple[tuple[ScoredGroup, ...], tuple[GroupRecord, ...]]:
        # Search a number of problems with the current policy as prior, and keep what was solved.
        first = self.rounds == 0
        self.rounds += 1
        self.searches.solved = {family: list(shares) for family, shares in self.curriculum.solved.items()}
        count = self.options.search_problems * (self.options.first_search if first else 1)
        tasks = self.searches.take(count)
        searches = [partial(self.explore, task) for task in tasks]
        trees = [explore(Uniform()) for explore in searches] if first else together(self.prior, searches)
        limit, placebo = self.engine.max_length, self.options.placebo
        groups = []
        for task, tree in zip(tasks, trees, strict=True):
            if self.options.programs:
                save_programs(task.payload, tree.records, Path(self.options.programs) / f"{task.seed:06}")
            groups.append(searched_group(task, tree, self.tokenizer, limit, placebo))
            self.finds.add(groups[-1])
        pairs = list(zip(trees, groups, strict=True))[:TREES_SHOWN]
        return tuple(groups), tuple(record for tree, group in pairs for record in search_records(tree, group))

    def explore(self, task: Task, prior: Prior) -> SearchTree:
        """Search for a program that solves one problem.

        A placebo search gets no feedback and always spends its whole budget: otherwise what it explores, and when it
        stops, would reveal which programs are good.
        """
        found: list[Judged] = []
        blind = self.options.placebo

        def judge(text: str) -> Judged:
            found.append(judged(self.judge.evaluate(task.payload, text)))
            return Judged(0.0) if blind else found[-1]

        domain = program_domain(task.payload, judge, prior)
        # A large prime keeps the seeds of different runs apart.
        seed = self.cfg.run.seed * 1_000_003 + task.seed
        tree = search(domain, self.options.search_budget, settings=SEARCH, seed=seed, to_the_end=blind)
        tree.records = [replace(record, judged=true) for record, true in zip(tree.records, found, strict=True)]
        return tree

    def _replay(self, drawn: StepGroups) -> Replayed:
        # With `search_samples = "ratio"`, add the groups of the searches; see `found_programs`.
        replayed = super()._replay(drawn)
        if self.options.search_samples != "ratio" or not self.searched:
            return replayed
        return Replayed((*replayed.groups, *self.searched), (*replayed.ages, *[0] * len(self.searched)))

    def _own_metrics(self) -> dict[str, float | None]:
        solved = [any("passed" in getattr(score, "flags", ()) for score in group.scores) for group in self.searched]
        return {
            **self.curriculum.metrics(),
            "programs/evaluations": float(self.judge.evaluations),
            "search/finds": float(len(self.finds)),
            **({"search/solved_share": sum(solved) / len(solved)} if solved else {}),
        }

    def publish(self, policy: Policy) -> None:
        self.engine.load(self.policy.model, policy.version)

    def close(self) -> None:
        self.engine.close()
        super().close()

    def state_dict(self) -> dict[str, Any]:
        own = {
            "step": self.step, "rounds": self.rounds, "evaluations": self.judge.evaluations,
            "searches": self.searches.state_dict(), "finds": self.finds.state_dict(),
        }  # fmt: skip
        return {**super().state_dict(), "code": own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        own = state["code"]
        self.step, self.rounds, self.judge.evaluations = own["step"], own["rounds"], own["evaluations"]
        self.searches.load_state_dict(own["searches"])
        self.finds.load_state_dict(own["finds"])


def sampling(cfg: TrainingConfig) -> SamplingParams:
    return SamplingParams(**dict(cfg.sampling.items()))


SLOTS = 256


def build(cfg: TrainingConfig) -> Parts:
    check(cfg)
    options = code_options(cfg)
    policy, language = first_policy(cfg)
    engine = engine_for(cfg, language, slots=max(SLOTS, cfg.rollout.num_generations), params=sampling(cfg))
    source = CodeSource(cfg, options, policy, engine, language.tokenizer)
    examination = ProgramExamination(cfg, options, engine, language.tokenizer, sampling(cfg))
    return Parts(policy, source, examination, lambda: examination.shown)
