"""The model that writes programs: its tokenizer, what it reads and writes, and how it is made or loaded."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from groupwise.config import TrainingConfig
from groupwise.errors import RunError
from groupwise.language.adapters import wanted_lora
from groupwise.language.loading import LanguageModel, load_model
from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import piece_tokenizer, tiny_model
from groupwise.programs.declaration import TINY, code_options
from groupwise.programs.language.grammar import INDENT
from groupwise.programs.language.operators import Type
from groupwise.programs.language.program import CodeProblem
from groupwise.programs.language.pure_operators import PURE
from groupwise.programs.language.straight_form import variable
from groupwise.programs.problems import tables, vocabulary
from groupwise.training.checkpoint import choose_checkpoint
from groupwise.training.folder import find_run, read_config

NUMBER, WORD = re.compile(r"\d+"), re.compile(r"[A-Za-z]+")
PARAMETERS, VARIABLES = 4, 6
CONTEXT = 512


def question_of(problem: CodeProblem) -> str:
    """The question as the model reads it: parameters by name, words in lower case unless a program may need them."""
    kept = [str(word.value) for word in problem.constants]

    def read(found: re.Match[str]) -> str:
        word = found[0]
        shouted = len(word) > 1 and word.isupper()
        return word if word in kept or shouted else word.lower()

    return WORD.sub(read, _with_parameters(problem))


def prompt_of(problem: CodeProblem) -> str:
    """Everything the model reads before it writes."""
    steps = problem.max_lines - 1
    limit = f"{steps} step{'s' if steps > 1 else ''} to {problem.signature.gives}"
    return f"{question_of(problem)} {limit}\n{problem.signature.header}"


def whole_text(problem: CodeProblem, written: str) -> str:
    """The program of an answer: the header, and the body that was written."""
    return problem.signature.header + written


def body_of(program: str) -> str:
    """What the model has to write for a program: everything after the header."""
    return program[program.index("\n") :]


def line_text(line: str) -> str:
    return f"\n{INDENT}{line}"


@lru_cache(maxsize=1)
def code_tokenizer() -> Any:
    """The small model's tokenizer: a token for every word of the questions, every operator and every number to 99."""
    return piece_tokenizer(_pieces(), CONTEXT)


def _pieces() -> Iterator[str]:
    names = [variable(at) for at in range(VARIABLES)]
    yield from (line_text(f"{name} = ") for name in names)
    yield line_text("return ")
    yield from (f"{operator}(" for operator in PURE)
    yield from (", ", ")", ", '", "', '", "')", *names, *"xyzw", *map(str, range(100)))
    yield from (f"\ndef solve({', '.join('xyzw'[:count])}):" for count in range(1, PARAMETERS + 1))
    yield from ("step", "steps", "to", *map(str, Type), *vocabulary())
    # The words of tables in their own case, because programs write them.
    for sheet in tables.SHEETS:
        yield from (*sheet.names, *sheet.numbers)
        for column, cells, _ in sheet.words:
            yield from (column, *cells)


def _with_parameters(problem: CodeProblem) -> str:
    # The question with its numbers replaced by parameter names, where they are the parameters in order.
    names, found = problem.signature.names, NUMBER.findall(problem.question)
    asked = [str(value) for value in problem.cases[0].inputs] if problem.cases else []
    if found != asked or not set(problem.signature.takes) <= {Type.INT}:
        return problem.question
    following = iter(names)
    return NUMBER.sub(lambda _: next(following), problem.question)


LAYERS, WIDTH = 2, 128


def load_writer(cfg: TrainingConfig) -> LanguageModel:
    """The model that the settings name. `tiny` has half a million weights and a token for every operator."""
    name, settings = cfg.policy.model_name or TINY, cfg.language
    if name == TINY:
        made, tokenizer = tiny_model(cfg.run.seed, layers=LAYERS, width=WIDTH, tokenizer=code_tokenizer())
        return LanguageModel(made.to(cfg.policy.device), tokenizer, TINY)
    lora = wanted_lora(settings)
    return load_model(
        name, dtype=getattr(torch, settings.dtype), device=cfg.policy.device, lora=lora,
        quantization=settings.quantization, gradient_checkpointing=cfg.policy.gradient_checkpointing,
        seed=cfg.run.seed,
    )  # fmt: skip


def first_policy(cfg: TrainingConfig) -> tuple[LanguagePolicy, LanguageModel]:
    """The policy before the first step: new or loaded, or with the weights of the run that `start` names."""
    language = load_writer(cfg)
    policy = LanguagePolicy(language.model, temperature=cfg.sampling.temperature, seed=cfg.run.seed)
    if start := code_options(cfg).start:
        run = find_run(start, cfg.run.output_dir)
        insist_on_code(run, read_config(run))
        policy.load_state_dict(choose_checkpoint(run, None).model)
    if cfg.policy.use_reference_model:
        policy = LanguagePolicy(language.model, temperature=cfg.sampling.temperature, reference=True, seed=cfg.run.seed)
    return policy, language


def load_policy(run: Path, step: int | None = None) -> tuple[LanguagePolicy, LanguageModel]:
    cfg = read_config(run)
    insist_on_code(run, cfg)
    language = load_writer(cfg)
    policy = LanguagePolicy(language.model, temperature=cfg.sampling.temperature, seed=cfg.run.seed)
    policy.load_state_dict(choose_checkpoint(run, step).model)
    return policy, language


def insist_on_code(run: Path, cfg: TrainingConfig) -> None:
    if cfg.task.product != "code":
        raise RunError(
            f"run {run.name} does not write programs: its task.product is {cfg.task.product!r}",
            hint='Name a run of the product "code", such as one of examples/code.toml.',
        )
