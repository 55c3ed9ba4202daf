"""From `reward.name` and `reward.options` in the settings to the reward.

    [reward]
    name = "customer_service"                    # one of KNOWN
    options = { normalization_method = "pareto" }

    [reward]
    name = "my_rewards.py:brief"                 # your own: a file or a module, and a name in it
    options = { limit = 40 }

Your own can be a class, which is called with the options; an object that is a reward; a function of one of the forms
in `signatures`, which gets the options as keywords; or a function that needs no arguments and returns a reward.
"""

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from groupwise.config import RewardSettings
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.rewards.function import RewardFunction, needed, parameters
from groupwise.rewards.scoring import is_async
from groupwise.rewards.signatures import FORMS, as_reward
from groupwise.types import Reward
from groupwise.user_code import load_module, names_code, place_and_name

SECRETS = ("api_key", "token", "password")
KNOWN: Mapping[str, str] = {
    "customer_service": "presets:create_customer_service_reward",
    "technical_support": "presets:create_technical_support_reward",
    "sales": "presets:create_sales_reward",
    "educational": "presets:create_educational_reward",
    "creative": "presets:create_creative_reward",
    "multi_objective": "combination:create_multi_objective_reward",
    "ruler": "judge.judge_reward:RulerRewardFunction",
    "neural": "learned.neural:create_neural_reward_function",
    "answers": "rules.gate:AnswersRewardComponent",
    "heuristic": "rules.heuristic:HeuristicReward",
    "exact": "rules.correctness:ExactReward",
    "numeric": "rules.correctness:NumericReward",
    "symbolic": "rules.correctness:SymbolicReward",
    "format": "rules.correctness:FormatReward",
    "safety": "rules.safety:SafetyReward",
    "length": "rules.components:LengthRewardComponent",
    "keywords": "rules.components:KeywordRewardComponent",
    "similarity": "rules.components:SimilarityRewardComponent",
    "empathy": "rules.customer_service:EmpathyRewardComponent",
    "professionalism": "rules.customer_service:ProfessionalismRewardComponent",
    "action_oriented": "rules.customer_service:ActionOrientedRewardComponent",
    "accuracy": "rules.customer_service:AccuracyRewardComponent",
    "step_by_step": "rules.customer_service:StepByStepRewardComponent",
    "problem_resolution": "rules.customer_service:ProblemResolutionRewardComponent",
    "product_knowledge": "rules.customer_service:ProductKnowledgeRewardComponent",
    "needs_identification": "rules.customer_service:NeedsIdentificationRewardComponent",
    "value_proposition": "rules.customer_service:ValuePropositionRewardComponent",
    "correctness": "rules.teaching_and_writing:CorrectnessRewardComponent",
    "pedagogical_approach": "rules.teaching_and_writing:PedagogicalApproachRewardComponent",
    "engagement": "rules.teaching_and_writing:EngagementRewardComponent",
    "creativity": "rules.teaching_and_writing:CreativityRewardComponent",
    "coherence": "rules.teaching_and_writing:CoherenceRewardComponent",
    "style": "rules.teaching_and_writing:StyleRewardComponent",
}
"""`module:name` in `groupwise.rewards`, imported when it is needed."""
ADDED: dict[str, str] = {}
"""Rewards that products add, because they need more than this package knows: full `module:name`."""


def add_reward(name: str, place: str) -> None:
    """Let settings name a product's reward, imported from `place` when it is needed."""
    ADDED[name] = place


def find_reward(settings: RewardSettings) -> Reward | None:
    """The reward that the settings name; None if they name none, so that the task's own score counts."""
    if settings.name is None:
        if settings.options:
            message = f"reward.options = {dict(settings.options)} is set, but reward.name is not"
            hint = "Set reward.name to the reward that takes these options."
            raise ConfigError(message, hint=hint, field="reward.name")
        return None
    reward = make_reward(settings.name, settings.options)
    # A reward may know before the run that it cannot score, such as a judge without a key.
    insist_usable = getattr(reward, "insist_usable", None)
    if insist_usable is not None:
        insist_usable()
    return reward


def make_reward(name: str, options: Mapping[str, Any] | None = None) -> Reward:
    """A reward by its name, or your own as FILE.py:NAME, with its options."""
    options = dict(options or {})
    if names_code(name):
        return _own(name, options)
    if name not in KNOWN and name not in ADDED:
        names = [*KNOWN, *ADDED]
        hint = f"{_near(name, names)}Known: {', '.join(names)}; or your own as FILE.py:NAME."
        raise _refused(name, "is not a known reward", hint)
    module, _, attribute = (ADDED.get(name) or f"groupwise.rewards.{KNOWN[name]}").partition(":")
    found: Reward = _called(name, getattr(importlib.import_module(module), attribute), options)
    return found


def _own(name: str, options: Mapping[str, Any]) -> Reward:
    place, attribute = place_and_name(name)
    if not attribute.isidentifier():
        raise _refused(name, "is incomplete", "Write FILE.py:NAME or MODULE:NAME.")
    module = load_module(place, lambda fault: _refused(name, fault))
    if not hasattr(module, attribute):
        public = [known for known in vars(module) if not known.startswith("_")]
        near = difflib.get_close_matches(attribute, public, 1)
        fault = f"does not exist: {place} has no {attribute!r}"
        raise _refused(name, fault, f"Did you mean {near[0]!r}?" if near else "")
    return _made(name, getattr(module, attribute), options)


def _made(name: str, given: Any, options: Mapping[str, Any]) -> Reward:
    """The reward that a user's class, object or function stands for."""
    if isinstance(given, type):
        return _checked(name, _called(name, given, options))
    if not callable(given):
        raise _refused(name, f"is {given!r:.60}, which cannot be called", "Name a class or a function.")
    if isinstance(given, RewardFunction) or not inspect.isroutine(given):
        if options:
            raise _refused(name, "is an object and takes no options", "Name its class, or remove reward.options.")
        return _checked(name, given)
    if needed(given) == 0 and not any(place.name == "completions" for place in parameters(given)):
        return _checked(name, _called(name, given, options))
    _check_options(name, given, options)
    try:
        return as_reward(given, name, options)
    except ConfigError as error:
        raise ConfigError(error.message, hint=error.hint, field="reward.name") from None


def _called(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    _check_options(name, make, options)
    try:
        return make(**options)
    except GroupwiseError as error:
        error.field = error.field or "reward.options"
        raise
    except (Exception, SystemExit) as error:
        raise _refused(name, f"raised {type(error).__name__} when it was created: {error}") from error


def _check_options(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> None:
    # Options are stored with the settings in the run folder.
    secret = next((option for option in options if option in SECRETS), None)
    if secret is not None:
        message = f"reward.options.{secret} would be stored in every run folder"
        raise ConfigError(message, hint="Set it as an environment variable instead.", field="reward.options")
    known = parameters(make)
    if any(p.kind is p.VAR_KEYWORD for p in known):
        return
    # What a function needs by position is the turns or the task, not an option.
    skipped = 0 if isinstance(make, type) else needed(make)
    taken = [p.name for p in known[skipped:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    unknown = [option for option in options if option not in taken]
    if unknown:
        raise ConfigError(
            f"reward.options.{unknown[0]} is not an option of {name!r}",
            hint=f"{_near(unknown[0], taken)}Its options: {', '.join(taken) or 'none'}.",
            field="reward.options",
        )


def _checked(name: str, made: Any) -> Reward:
    if isinstance(made, RewardFunction) or is_async(made):
        return made  # type: ignore[no-any-return]
    what = f"{made!r:.60}" if not callable(made) else f"a {type(made).__name__} whose call is not async"
    hint = f"Subclass RewardFunction, or write a function. {FORMS}"
    raise _refused(name, f"returns {what}, which is not a reward", hint)


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"Did you mean {near[0]!r}? " if near else ""


def _refused(name: str, fault: str, hint: str = "") -> ConfigError:
    return ConfigError(f"reward.name = {name!r} {fault}", hint=hint, field="reward.name")
